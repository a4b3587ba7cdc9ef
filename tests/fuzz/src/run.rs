// SPDX-License-Identifier: GPL-2.0
//! Runs programs in processes of their own and looks at what they leave.

use crate::call::{text, Program};
use crate::kcov::Kcov;
use crate::{exec, space};
use rdsmr::{spawn, stat, Mapping, Status};
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// No program needs that long on a slow emulated machine; more is a hang.
const LIMIT: Duration = Duration::from_secs(120);

const RIGHT: i32 = 0;
const WRONG: i32 = 1;

/// The places in the module's code that a program came to.
pub type Places = BTreeSet<u64>;

pub struct Runner {
    kcov: Option<Kcov>,
    note: Mapping,
    pins: i64,
    pub programs: u64,
}

impl Runner {
    pub fn new() -> io::Result<Self> {
        space::make()?;
        Ok(Runner {
            kcov: Kcov::new()?,
            note: Mapping::shared(rdsmr::PAGE)?,
            pins: stat::pins()?,
            programs: 0,
        })
    }

    pub fn sees(&self) -> bool {
        self.kcov.is_some()
    }

    /// Where the program went; `Err` says what was wrong, with the program.
    pub fn run(&mut self, program: &Program) -> io::Result<Result<Places, String>> {
        self.programs += 1;
        let mut child = spawn(|_| self.in_child(program))?;
        let wrong = match child.wait_for(LIMIT)? {
            Some(Status::Exit(RIGHT)) => self.pins_differ()?,
            Some(Status::Exit(WRONG)) => Some(self.said()),
            Some(status) => Some(format!(
                "the program's process ended by itself, got {status:?}"
            )),
            None => {
                // Waiting for its death may be in vain, too.
                println!("Bail out! A program is not over after {LIMIT:?}:");
                text(program).lines().for_each(|line| println!("#| {line}"));
                rdsmr::process::exit(1);
            }
        };
        Ok(match wrong {
            None => Ok(self.kcov.iter().flat_map(Kcov::trace).collect()),
            Some(what) => Err(format!("{what}\n{}", text(program))),
        })
    }

    fn in_child(&self, program: &Program) -> i32 {
        if let Some(kcov) = &self.kcov {
            if let Err(error) = kcov.enable() {
                self.say(&format!("KCOV_ENABLE: {error}"));
                return WRONG;
            }
        }
        match exec::run(program) {
            None => RIGHT,
            Some(what) => {
                self.say(&what);
                WRONG
            }
        }
    }

    fn pins_differ(&mut self) -> io::Result<Option<String>> {
        let (before, after) = (self.pins, stat::pins()?);
        // Told once, not again for every program that follows.
        self.pins = after;
        let what = format!("pages pinned: {before} before the program, {after} after its end");
        Ok((before != after).then_some(what))
    }

    fn say(&self, what: &str) {
        let bytes = self.note.bytes();
        let len = what.len().min(bytes.len() - 1);
        let pairs = bytes.iter().zip(&what.as_bytes()[..len]);
        pairs.for_each(|(slot, byte)| slot.store(*byte, Relaxed));
        bytes[len].store(0, Relaxed);
    }

    fn said(&self) -> String {
        let bytes = self.note.bytes().iter().map(|slot| slot.load(Relaxed));
        let text: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&text).into_owned()
    }
}
