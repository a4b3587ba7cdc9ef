// SPDX-License-Identifier: GPL-2.0
//! What is said while it runs, when it fails, and at the end.

use crate::ledger::{Global, Of, RECENT, THREADS};
use crate::plan::{Plan, KINDS};
use crate::worker::Site;
use rdsmr::errno::name;
use rdsmr::tap;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// What the supervisor has done.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub kills: u64,
    pub unplugs: u64,
    pub faults: u64,
    pub quirks: u64,
    pub moves: u64,
    pub last_event: String,
}

/// What this machine lets us do.
#[derive(Clone, Copy, Debug)]
pub struct Can {
    pub faults: bool,
    pub groups: bool,
    pub hammer: bool,
}

fn actions(site: &Site) -> u64 {
    let threads =
        (0..site.workers).flat_map(|worker| (0..THREADS).map(move |thread| (worker, thread)));
    threads
        .map(|(worker, thread)| site.ledger.total(worker, thread).load(SeqCst))
        .sum()
}

pub fn progress(site: &Site, elapsed: Duration, counts: &Counts) {
    let of = |what| site.ledger.get(what);
    println!(
        "# {} s: {} actions, {} GET_MR; found alive {}, dead {}, dead by kill {}, no verdict {}; kills {}, of them hammered {}, unplugs {}, faults {}, quirks {}, moves {}",
        elapsed.as_secs(),
        actions(site),
        of(Global::Calls),
        of(Global::Alive),
        of(Global::Dead),
        of(Global::DeadByKill),
        of(Global::Void),
        counts.kills,
        of(Global::Hammered),
        counts.unplugs,
        counts.faults,
        counts.quirks,
        counts.moves,
    );
}

/// What took long is worth a look; it is no failure.
pub fn slow(what: &str, time: Duration) {
    if time > Duration::from_secs(3) {
        println!("# {what} took {} s", time.as_secs());
    }
}

/// How often everything took place that can, on this machine.
pub fn what_took_place(site: &Site, can: Can, counts: &Counts) -> Vec<(&'static str, u64)> {
    let of = |what| site.ledger.get(what);
    let done = |number| site.ledger.done(number).load(SeqCst);
    let kinds = (0..)
        .zip(KINDS)
        .filter(|(_, name)| can.hammer || **name != "Hammer");
    let mut all: Vec<_> = kinds.map(|(number, name)| (*name, done(number))).collect();
    all.extend([
        ("verdict alive", of(Global::Alive)),
        ("verdict dead", of(Global::Dead)),
        ("verdict dead after a kill", of(Global::DeadByKill)),
        ("kill", counts.kills),
        ("unplug", counts.unplugs),
    ]);
    let here = [
        (can.faults, "failing verb", counts.faults),
        (can.hammer, "quirk of the HCA", counts.quirks),
        (can.groups, "move to another group", counts.moves),
        (can.hammer, "kill under the hammer", of(Global::Hammered)),
        (
            can.hammer,
            "FREE_MR under the hammer",
            of(Global::HammeredFree),
        ),
    ];
    all.extend(
        here.iter()
            .filter(|(can, ..)| *can)
            .map(|(_, name, count)| (*name, *count)),
    );
    all
}

/// What has not taken place.
pub fn missing(site: &Site, can: Can, counts: &Counts) -> Vec<&'static str> {
    let all = what_took_place(site, can, counts).into_iter();
    all.filter(|(_, count)| *count == 0)
        .map(|(name, _)| name)
        .collect()
}

/// The last actions of each thread: the plan knows what they were.
pub fn last_actions(site: &Site) {
    for worker in 0..site.workers {
        let life = site.ledger.of(worker, Of::Life).load(SeqCst);
        for thread in 0..THREADS {
            let begun = site.ledger.begun(worker, thread).load(SeqCst);
            let first = begun.saturating_sub(RECENT);
            println!("# worker {worker}, life {life}, thread {thread}:");
            let plan = Plan::new(site.seed, site.workers, worker, life, thread);
            for (n, action) in (0..begun).zip(plan).skip(first as usize) {
                let result = match site.ledger.result(worker, thread, n).load(SeqCst) {
                    0 => "not back".to_string(),
                    1 => "done".to_string(),
                    2 => "nothing to do".to_string(),
                    999 => "WRONG".to_string(),
                    other => name(other as i32 - 2),
                };
                println!("#   {n}: {action:?}: {result}");
            }
        }
    }
}

/// The tests of a run, as TAP.
#[derive(Default)]
pub struct Tap {
    passed: u64,
    failed: u64,
}

impl Tap {
    pub fn test(&mut self, what: &str, result: Result<(), String>) {
        let number = self.passed + self.failed + 1;
        match result {
            Ok(()) => {
                self.passed += 1;
                println!("ok {number} - {what}");
            }
            Err(text) => {
                self.failed += 1;
                tap::not_ok(number, what, &text);
            }
        }
    }

    /// Whether all went well.
    pub fn end(&self) -> bool {
        println!("1..{}", self.passed + self.failed);
        println!("{} passed, {} failed", self.passed, self.failed);
        self.failed == 0 && self.passed != 0
    }
}
