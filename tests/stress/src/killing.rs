// SPDX-License-Identifier: GPL-2.0
//! kill -9 of a worker, and what must hold when wait() is back.

use crate::ledger::{device_at, Global, Key, Of, State};
use crate::model::{judge, Conditions, Must, Verdict};
use crate::plan::Device;
use crate::supervisor::{broken, Supervisor, PATIENCE, TICK};
use crate::sys;
use crate::worker::errno;
use rdsmr::{process, Hammer};
use std::io;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// Keys of a dead owner that are asked about.
const SAMPLE: usize = 6;
/// Keys that a hammer is tried at.
const TRIES: usize = 8;
/// After the end, look at the memory so often, with such a pause.
const LOOKS: u32 = 15;
const PAUSE: Duration = Duration::from_millis(2);
const CHUNK: u64 = 16 << 10;

impl Supervisor<'_> {
    /// Kill a worker, and look at what it has left when wait() is back.
    pub fn kill(&mut self, worker: u64, hammer: bool) -> io::Result<()> {
        if self.workers[worker as usize].ended {
            return Ok(());
        }
        let ledger = &self.site.ledger;
        let hammer = if hammer { self.hammer(worker)? } else { None };
        let faults = ledger.get(Global::Faults);
        ledger.of(worker, Of::Dying).store(1, SeqCst);
        let pid = self.workers[worker as usize].pid;
        process::kill(pid)?;
        let Some(status) = sys::wait_for(pid, PATIENCE)? else {
            return Err(broken(format!(
                "worker {worker}, which was killed\nexpected: it dies\ngot: it is there after {PATIENCE:?}"
            )));
        };
        if ledger.stopping() {
            // It has failed; what it believed is still wanted.
            self.workers[worker as usize].ended = true;
            return Ok(());
        }
        if status != 128 + libc::SIGKILL {
            return Err(broken(format!(
                "worker {worker} was killed, and ended with status {status}"
            )));
        }
        let calm = faults % 2 == 0;
        if calm {
            if hammer.is_some() {
                self.memory_is_quiet(worker)?;
                ledger.count(Global::Hammered);
            }
            self.keys_are_dead(worker)?;
        }
        if let Some(hammer) = hammer {
            hammer.stop()?;
        }
        self.counts.kills += 1;
        self.end_group(pid)?;
        ledger.of(worker, Of::Life).fetch_add(1, SeqCst);
        self.start(worker)
    }

    /// Let a peer write to a key of the worker, without end. None if there is no
    /// hammer, or no key for it: keys may be ended at any moment.
    fn hammer(&self, worker: u64) -> io::Result<Option<Hammer>> {
        if !Hammer::is_there() {
            return Ok(None);
        }
        let ledger = &self.site.ledger;
        let good =
            |key: &Key<'_>| key.seen().state() == State::Live && !ledger.unplugged(key.place());
        for key in ledger.keys(worker).filter(good).take(TRIES) {
            let Some((_, bytes)) = key.writable() else {
                continue;
            };
            let hammer = Hammer::open()?;
            let chunk = bytes.min(CHUNK) as u32;
            if hammer.start(key.cookie(), bytes, chunk).is_ok() {
                return Ok(Some(hammer));
            }
        }
        Ok(None)
    }

    /// Not one byte changes any more: a peer has written to it all the time.
    fn memory_is_quiet(&self, worker: u64) -> io::Result<()> {
        let arena = &self.site.arenas[worker as usize];
        let after = arena.snapshot();
        for _ in 0..LOOKS {
            if let Some(offset) = arena.changed_since(&after) {
                return Err(broken(format!(
                    "memory of worker {worker}, which was killed and waited for\nexpected: not one byte changes\ngot: byte {offset} changed"
                )));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn keys_are_dead(&self, worker: u64) -> io::Result<()> {
        let ledger = &self.site.ledger;
        let owned = |key: &Key<'_>| {
            !matches!(
                key.seen().state(),
                State::Empty | State::Kins | State::Doubtful
            )
        };
        let keys = ledger
            .keys(worker)
            .filter(|key| owned(key) && key.cookie() != 0)
            .take(SAMPLE);
        let calls = ledger.get(Global::Calls);
        for key in keys {
            let place = key.place();
            let prober = match (device_at(place), self.peer.prober()) {
                (Device::Here, _) => &self.here,
                (Device::Peer, Some(socket)) if !ledger.unplugged(place) => socket,
                _ => continue,
            };
            let answer = errno(prober.probe(key.cookie(), 0));
            let conditions = Conditions {
                calls_since: ledger.get(Global::Calls) - calls,
                ..Default::default()
            };
            match judge(Must::Dead, answer, conditions) {
                Verdict::Holds => drop(ledger.count(Global::DeadByKill)),
                Verdict::Void => drop(ledger.count(Global::Void)),
                Verdict::Broken => {
                    return Err(broken(format!(
                        "a key of worker {worker}, which was killed and waited for\nexpected: {:?}\ngot: {answer:?} for cookie {:#x} in state {:?}",
                        Must::Dead,
                        key.cookie(),
                        key.seen().state()
                    )))
                }
            }
        }
        Ok(())
    }

    /// Kill and wait for whatever is left of a worker's children.
    fn end_group(&self, leader: i32) -> io::Result<()> {
        let end = Instant::now() + PATIENCE;
        sys::kill_group(leader);
        loop {
            match sys::has_ended(-leader) {
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(()),
                Err(error) => return Err(error),
                Ok(_) if Instant::now() > end => {
                    return Err(broken(format!("children of {leader} do not die")))
                }
                Ok(Some(_)) => {}
                Ok(None) => std::thread::sleep(TICK),
            }
        }
    }
}
