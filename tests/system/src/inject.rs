// SPDX-License-Identifier: GPL-2.0
//! Allocations that fail on purpose: the kernel's failslab and fail_page_alloc.

use crate::check::{fail, skip, Check, End, Outcome};
use rdsmr::attribute::write_all;
use rdsmr::errno::describe;
use rdsmr::inject::{say_fed, say_starving};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

const DIRS: [&str; 2] = [
    "/sys/kernel/debug/failslab",
    "/sys/kernel/debug/fail_page_alloc",
];
/// Every allocation counts that may fail at all, and nothing is said about it:
/// a trace of each would be longer than the test.
const PREPARE: [(&str, &str); 7] = [
    ("probability", "0"),
    ("interval", "1"),
    ("times", "-1"),
    ("space", "0"),
    ("verbose", "0"),
    ("task-filter", "N"),
    ("ignore-gfp-wait", "N"),
];
/// Of fail_page_alloc only.
const PAGES: [(&str, &str); 2] = [("min-order", "0"), ("ignore-gfp-highmem", "N")];
/// As the kernel has them at boot.
const LIFTED: [(&str, &str); 4] = [
    ("probability", "0"),
    ("space", "0"),
    ("task-filter", "N"),
    ("ignore-gfp-wait", "Y"),
];

/// No call here makes more allocations; more mean that it never comes to an end.
const MOST: u32 = 20_000;

/// For calls whose allocations are to be counted, not failed.
pub const NEVER: u32 = 1_000_000;

fn set(name: &str, value: &str) -> io::Result<()> {
    DIRS.iter()
        .try_for_each(|dir| write_all(dir, &[(name, value)]))
}

/// Says in the kernel log that memory runs out on purpose, for as long as it lives.
pub struct Announced(());

impl Announced {
    pub fn now() -> Result<Self, End> {
        say_starving().must("writing to /dev/kmsg")?;
        Ok(Announced(()))
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        let _ = say_fed();
    }
}

/// End all injection. Also for the runner, after a test that was killed.
pub fn lift() -> io::Result<()> {
    if !Path::new(DIRS[0]).exists() {
        return Ok(());
    }
    DIRS.iter().try_for_each(|dir| write_all(dir, &LIFTED))?;
    say_fed()
}

/// Injection is set up, and lifted with the end of this.
pub struct Faults {
    nth: File,
    task: File,
}

impl Drop for Faults {
    fn drop(&mut self) {
        let _ = self.nth.write_at(b"0", 0);
        let _ = self.task.write_at(b"0", 0);
        let _ = lift();
    }
}

impl Faults {
    pub fn new() -> Result<Self, End> {
        if !DIRS.iter().all(|dir| Path::new(dir).exists()) {
            return skip("this kernel injects no faults (no CONFIG_FAILSLAB)");
        }
        let open = |name: &str| {
            let path = format!("/proc/thread-self/{name}");
            let file = File::options().read(true).write(true).open(&path);
            file.must(format!("opening {path}"))
        };
        let faults = Faults {
            nth: open("fail-nth")?,
            task: open("make-it-fail")?,
        };
        say_starving().must("writing to /dev/kmsg")?;
        for dir in DIRS {
            write_all(dir, &PREPARE).must("setting up fault injection")?;
        }
        write_all(DIRS[1], &PAGES).must("setting up fault injection")?;
        Ok(faults)
    }

    /// Let the `n`th allocation of this thread within `call` fail. Returns also
    /// how many it was short of that: 0 if one did fail.
    pub fn nth<T>(&self, n: u32, call: impl FnOnce() -> T) -> Result<(T, u32), End> {
        let (number, mut left) = (n.to_string(), [0; 16]);
        // Nothing between the two may allocate but the call.
        let armed = self.nth.write_at(number.as_bytes(), 0);
        let result = call();
        let read = self.nth.read_at(&mut left, 0);
        let disarmed = self.nth.write_at(b"0", 0);
        armed.and(disarmed).must("writing fail-nth")?;
        let text = String::from_utf8_lossy(&left[..read.must("reading fail-nth")?]).into_owned();
        match text.trim().parse() {
            Ok(left) => Ok((result, left)),
            Err(_) => fail("what fail-nth says", "a number", text),
        }
    }

    /// Every allocation fails while `call` runs: those of this thread (and of
    /// the children that it makes), or with `everybody` all in the system. The
    /// first `space` bytes of each kind are given.
    pub fn all<T>(&self, everybody: bool, space: u32, call: impl FnOnce() -> T) -> Result<T, End> {
        let filter = if everybody { "N" } else { "Y" };
        set("task-filter", filter).must("setting task-filter")?;
        set("space", &space.to_string()).must("setting space")?;
        self.task.write_at(b"1", 0).must("writing make-it-fail")?;
        // Files that are open: opening them would allocate.
        let open = |dir: &str| {
            File::options()
                .write(true)
                .open(Path::new(dir).join("probability"))
        };
        let switches = [
            open(DIRS[0]).must("opening")?,
            open(DIRS[1]).must("opening")?,
        ];
        let turn = |value: &[u8]| switches.iter().try_for_each(|mut s| s.write_all(value));
        let on = turn(b"100");
        let result = on.is_ok().then(call);
        let off = turn(b"0");
        self.task.write_at(b"0", 0).must("writing make-it-fail")?;
        on.and(off).must("switching injection on and off")?;
        let Some(result) = result else {
            return fail("injection", "on", "off");
        };
        Ok(result)
    }
}

/// One call whose allocations fail one by one.
pub struct Steps<'a> {
    pub what: &'a str,
    /// What it may return when an allocation failed.
    pub errnos: &'a [i32],
    /// How many of the failures must be seen by the caller, else this is no test.
    pub at_least: usize,
}

impl Steps<'_> {
    /// Let allocation number `first` of `call` fail, then that `stride` further on,
    /// ... until it has no more. `after` sees every result and must undo it. An allocation that is
    /// not needed (a debug kernel's own, a reserve) may fail unseen.
    pub fn run<T: std::fmt::Debug>(
        &self,
        faults: &Faults,
        (first, stride): (u32, usize),
        mut call: impl FnMut() -> io::Result<T>,
        mut after: impl FnMut(u32, io::Result<T>) -> Outcome,
    ) -> Outcome {
        let mut refused = Vec::new();
        for n in (first..first + MOST).step_by(stride) {
            let (result, left) = faults.nth(n, &mut call)?;
            if left > 0 {
                let what = format!("{} that lacks nothing any more, step {n}", self.what);
                let value = result.must(what)?;
                after(n, Ok(value))?;
                println!("# {}: {n} steps, refused at {refused:?}", self.what);
                return self.enough(refused.len());
            }
            if let Err(error) = &result {
                self.is_allowed(n, error)?;
                refused.push(n);
            }
            after(n, result)?;
        }
        fail(self.what, format!("an end after {MOST} steps"), "none")
    }

    fn is_allowed(&self, n: u32, error: &io::Error) -> Outcome {
        if error
            .raw_os_error()
            .is_some_and(|e| self.errnos.contains(&e))
        {
            return Ok(());
        }
        let names: Vec<_> = self.errnos.iter().map(|e| rdsmr::errno::name(*e)).collect();
        let what = format!("{} whose allocation number {n} fails", self.what);
        fail(
            what,
            format!("success or {}", names.join(" or ")),
            describe(error),
        )
    }

    fn enough(&self, seen: usize) -> Outcome {
        if seen >= self.at_least {
            return Ok(());
        }
        let what = format!("{}: failures that the caller saw", self.what);
        fail(what, format!("{} or more", self.at_least), seen)
    }
}
