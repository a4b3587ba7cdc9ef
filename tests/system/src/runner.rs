// SPDX-License-Identifier: GPL-2.0
//! Runs each test in a process of its own and reports in TAP.

use crate::check::{End, Outcome};
use crate::inject;
use crate::reload;
use rdsmr::{process, spawn, stat, tap, Child, Hammer, Mapping, Status};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A hang is a failure. No test needs that long on a slow emulated machine with
/// every checker on; the limit is no statement on speed.
const LIMIT: Duration = Duration::from_secs(300);
/// What was killed must be gone soon; if not, the kernel holds it and whatever
/// comes next would be measured on a broken machine.
const DEATH_LIMIT: Duration = Duration::from_secs(120);
const NOTE_BYTES: u64 = 16 << 10;

pub struct Test {
    pub name: &'static str,
    run: fn() -> Outcome,
    reloads: bool,
    /// Pages that stay pinned for good.
    leaks: i64,
}

impl Test {
    pub const fn new(name: &'static str, run: fn() -> Outcome) -> Self {
        Test {
            name,
            run,
            reloads: false,
            leaks: 0,
        }
    }

    /// A test that loads the module with other parameters, or unloads it.
    pub const fn reloading(name: &'static str, run: fn() -> Outcome) -> Self {
        Test {
            name,
            run,
            reloads: true,
            leaks: 0,
        }
    }

    /// A test that reloads, and after which so many pages stay pinned for good.
    pub const fn leaking(name: &'static str, run: fn() -> Outcome, pages: i64) -> Self {
        Test {
            name,
            run,
            reloads: true,
            leaks: pages,
        }
    }
}

enum Verdict {
    Ok,
    Skip(String),
    NotOk(String),
}

/// Memory in which a test leaves its last words. It outlives any death, and
/// nobody can be made to wait for it, as for a pipe.
struct Note(Mapping);

impl Note {
    fn write(&self, text: &str) {
        let bytes = self.0.bytes();
        let text = text.as_bytes();
        let len = text.len().min(bytes.len() - 1);
        bytes
            .iter()
            .zip(&text[..len])
            .for_each(|(slot, byte)| slot.store(*byte, Relaxed));
        bytes[len].store(0, Relaxed);
    }

    fn read(&self) -> String {
        let bytes = self.0.bytes().iter().map(|slot| slot.load(Relaxed));
        let text: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&text).into_owned()
    }
}

const PASSED: i32 = 0;
const FAILED: i32 = 1;
const SKIPPED: i32 = 77;

fn in_child(test: &Test, note: &Note) -> i32 {
    if let Err(error) = process::lead_group() {
        note.write(&format!("cannot start a process group: {error}"));
        return FAILED;
    }
    match (test.run)() {
        Ok(()) => PASSED,
        Err(End::Skip(reason)) => {
            note.write(&reason);
            SKIPPED
        }
        Err(End::Fail {
            what,
            expected,
            got,
        }) => {
            note.write(&format!("{what}\nexpected: {expected}\ngot: {got}"));
            FAILED
        }
    }
}

fn judge(child: &mut Child, note: &Note) -> io::Result<Verdict> {
    let status = child.wait_for(LIMIT)?;
    let dead = child.end_group(DEATH_LIMIT);
    Ok(match (status, dead?) {
        (_, false) => {
            println!("Bail out! A killed process of this test still runs after {DEATH_LIMIT:?}.");
            process::exit(1);
        }
        (Some(Status::Exit(PASSED)), _) => Verdict::Ok,
        (Some(Status::Exit(SKIPPED)), _) => Verdict::Skip(note.read()),
        (Some(Status::Exit(FAILED)), _) => Verdict::NotOk(note.read()),
        (Some(status), _) => Verdict::NotOk(format!(
            "expected: the test's process ends by itself\ngot: {status:?}"
        )),
        (None, _) => Verdict::NotOk(format!("expected: an end within {LIMIT:?}\ngot: none")),
    })
}

/// Delays and faults belong to nobody's file: a test that was killed leaves them.
fn undo_faults() -> io::Result<()> {
    if Hammer::is_there() {
        let mut device = Hammer::open()?;
        device.slow_copy(0)?;
        device.disarm_all()?;
    }
    rdsmr::inject::stop()?;
    inject::lift()
}

/// The test, and what it must leave behind: no pinned page, the module as it was.
fn run(test: &Test) -> io::Result<Verdict> {
    let note = Note(Mapping::shared(NOTE_BYTES)?);
    let module = reload::Loaded::now()?;
    let before = stat::pins()? + test.leaks;
    let mut child = spawn(|_| in_child(test, &note))?;
    let verdict = judge(&mut child, &note)?;
    undo_faults()?;
    let after = stat::pins()?;
    if test.reloads {
        module.restore()?;
    }
    if matches!(verdict, Verdict::NotOk(_)) || before == after {
        return Ok(verdict);
    }
    let text = "pages pinned in the whole system, after the test's last process has ended";
    Ok(Verdict::NotOk(format!(
        "{text}\nexpected: {before}\ngot: {after}"
    )))
}

/// Returns whether all went well.
pub fn run_all(tests: &[&Test]) -> io::Result<bool> {
    println!("TAP version 13\n1..{}", tests.len());
    process::adopt_orphans()?;
    let mut failed = 0;
    for (index, test) in tests.iter().enumerate() {
        let (number, name) = (index + 1, test.name);
        match run(test)? {
            Verdict::Ok => println!("ok {number} - {name}"),
            Verdict::Skip(reason) => println!("ok {number} - {name} # SKIP {reason}"),
            Verdict::NotOk(text) => {
                failed += 1;
                tap::not_ok(number, name, &text);
            }
        }
    }
    println!("# {} tests, {failed} failed", tests.len());
    Ok(failed == 0 && !tests.is_empty())
}
