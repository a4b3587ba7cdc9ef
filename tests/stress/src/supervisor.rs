// SPDX-License-Identifier: GPL-2.0
//! Starts the workers, does to them what the plan says, and looks at what the
//! dead have left.

use crate::chaos::{prober, Faults, Groups, Peer};
use crate::ledger::{device_at, Global, Key, Of, State};
use crate::model::{judge, Conditions, Must, Verdict, OWNED_BY_MEMORY};
use crate::plan::{Chaos, Device, Event, POINTS};
use crate::report::{self, Counts};
use crate::sys;
use crate::worker::{self, errno, Site};
use rdsmr::{process, Hammer, Socket};
use std::io;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// A limit for the end of what was told or killed to end.
const PATIENCE: Duration = Duration::from_secs(120);
const TICK: Duration = Duration::from_millis(10);
const PROGRESS: Duration = Duration::from_secs(10);
/// Keys of a dead owner that are asked about.
const SAMPLE: usize = 12;
/// After the end, look at the memory so often, with such a pause.
const LOOKS: u32 = 15;
const PAUSE: Duration = Duration::from_millis(2);
const CHUNK: u64 = 16 << 10;

struct Worker {
    pid: i32,
    group: Option<u64>,
    ended: bool,
}

/// The end of a period, and what to do then.
#[derive(Debug)]
enum Later {
    Lift,
    Replug,
}

pub struct Supervisor<'a> {
    site: &'a Site,
    workers: Vec<Worker>,
    here: Socket,
    /// With the incarnation of the device that it is for.
    peer: Option<(Socket, u64)>,
    device: Peer,
    faults: Faults,
    groups: Groups,
    limits: [bool; 2],
    /// What is armed now.
    armed: Option<usize>,
    later: Vec<(Instant, Later)>,
    pub counts: Counts,
}

/// What went wrong outside of the workers.
fn broken(text: String) -> io::Error {
    io::Error::other(text)
}

impl<'a> Supervisor<'a> {
    pub fn new(site: &'a Site) -> io::Result<Self> {
        Ok(Supervisor {
            site,
            workers: Vec::new(),
            here: prober(Device::Here)?,
            peer: Some((prober(Device::Peer)?, 0)),
            device: Peer::new(),
            faults: Faults::prepare()?,
            groups: Groups::make(),
            limits: [false; 2],
            armed: None,
            later: Vec::new(),
            counts: Counts::default(),
        })
    }

    pub fn can(&self) -> report::Can {
        report::Can {
            faults: self.faults.verbs,
            groups: self.groups.are_there(),
            hammer: Hammer::is_there(),
        }
    }

    /// The HCA must refuse what the model calls dead; a key that lives is
    /// called dead here, and the model must notice.
    pub fn model_bites(&self) -> io::Result<bool> {
        let map = rdsmr::Mapping::anonymous(rdsmr::PAGE)?;
        let cookie = self.here.get_mr(map.at(0), rdsmr::PAGE, 0)?;
        let lie = judge(
            Must::BeDead,
            errno(self.here.probe(cookie, 0)),
            Conditions::default(),
        );
        self.here.free_mr(cookie, 0)?;
        let truth = judge(
            Must::BeDead,
            errno(self.here.probe(cookie, 0)),
            Conditions::default(),
        );
        Ok(lie == Verdict::Broken && truth == Verdict::Holds)
    }

    fn start(&mut self, worker: u64) -> io::Result<()> {
        let site = self.site;
        site.ledger.clear(worker);
        site.ledger.of(worker, Of::Limited).store(0, SeqCst);
        // The child has a copy of this process's probers; no key is theirs.
        let pid = sys::fork(|| match process::lead_group() {
            Ok(()) => {
                // Who judges must not wait for those who are judged.
                sys::be_nice();
                worker::run(site, worker)
            }
            Err(_) => 1,
        })?;
        let new = Worker {
            pid,
            group: None,
            ended: false,
        };
        match self.workers.get_mut(worker as usize) {
            Some(old) => *old = new,
            None => self.workers.push(new),
        }
        Ok(())
    }

    /// Until the time is over, or somebody has failed.
    pub fn run(&mut self, duration: Duration) -> io::Result<()> {
        for worker in 0..self.site.workers {
            self.start(worker)?;
        }
        let start = Instant::now();
        let end = start + duration;
        let mut next_report = start + PROGRESS;
        let mut chaos = Chaos::new(self.site.seed, self.site.workers).peekable();
        let mut due = start;
        while Instant::now() < end && !self.site.ledger.stopping() {
            let now = Instant::now();
            if let Some((pause, _)) = chaos.peek() {
                if now >= due + Duration::from_millis(*pause) {
                    if let Some((_, event)) = chaos.next() {
                        self.counts.last_event = format!("{event:?}");
                        self.happen(event)?;
                        report::slow(&self.counts.last_event, now.elapsed());
                    }
                    // After the event, however long that took.
                    due = Instant::now();
                }
            }
            self.catch_up(now)?;
            self.see_who_ended()?;
            if now >= next_report {
                next_report += PROGRESS;
                report::progress(self.site, start.elapsed(), &self.counts);
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// A worker ends only when it is told to, or has done all of its actions.
    fn see_who_ended(&mut self) -> io::Result<()> {
        let ledger = &self.site.ledger;
        for (index, worker) in self.workers.iter_mut().enumerate() {
            if worker.ended {
                continue;
            }
            match sys::has_ended(worker.pid)? {
                None => {}
                Some(0) => {
                    worker.ended = true;
                    ledger.count(Global::Stop);
                }
                // Killed by the kernel, or a panic: the reason is in the note, if anywhere.
                Some(status) => {
                    worker.ended = true;
                    return Err(broken(format!(
                        "worker {index} ended by itself with status {status}"
                    )));
                }
            }
        }
        Ok(())
    }

    fn catch_up(&mut self, now: Instant) -> io::Result<()> {
        while let Some(at) = self.later.iter().position(|(when, _)| *when <= now) {
            let later = self.later.swap_remove(at).1;
            let start = Instant::now();
            match later {
                Later::Lift => self.lift()?,
                Later::Replug => self.replug()?,
            }
            report::slow(&format!("{later:?}"), start.elapsed());
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> io::Result<()> {
        match event {
            Event::Kill { worker, hammer } => self.kill(worker, hammer),
            Event::Unplug { gone_ms } => self.unplug(gone_ms),
            Event::Fault { point, percent, ms } => self.fault(point, percent, ms),
            Event::MoveToGroup { worker, group } => self.move_to(worker, group),
            Event::LimitGroup { group, objects } => self.limit(group, objects),
        }
    }

    fn fault(&mut self, point: usize, percent: u64, ms: u64) -> io::Result<()> {
        if !self.faults.verbs || self.armed.is_some() {
            return Ok(());
        }
        self.site.ledger.count(Global::Faults);
        self.faults.arm(point, percent)?;
        self.armed = Some(point);
        self.counts.faults += 1;
        self.later
            .push((Instant::now() + Duration::from_millis(ms), Later::Lift));
        Ok(())
    }

    fn lift(&mut self) -> io::Result<()> {
        if self.armed.take().is_some() {
            self.faults.lift()?;
            self.site.ledger.count(Global::Faults);
        }
        Ok(())
    }

    fn unplug(&mut self, gone_ms: u64) -> io::Result<()> {
        if self.peer.take().is_none() {
            return Ok(());
        }
        // What is not deregistered when the device goes is lost for good.
        if self
            .armed
            .is_some_and(|point| POINTS[point].ends_with("dereg_mr"))
        {
            self.lift()?;
        }
        self.site.ledger.count(Global::Peer);
        self.device.unplug()?;
        self.counts.unplugs += 1;
        self.later.push((
            Instant::now() + Duration::from_millis(gone_ms),
            Later::Replug,
        ));
        Ok(())
    }

    fn replug(&mut self) -> io::Result<()> {
        if self.peer.is_none() {
            self.lift()?;
            let socket = self.device.replug()?;
            let incarnation = self.site.ledger.count(Global::Peer) + 1;
            self.peer = Some((socket, incarnation));
        }
        Ok(())
    }

    fn move_to(&mut self, worker: u64, group: u64) -> io::Result<()> {
        if !self.groups.are_there() || self.workers[worker as usize].ended {
            return Ok(());
        }
        let limited = self.site.ledger.of(worker, Of::Limited);
        limited.store(1, SeqCst);
        self.groups
            .enter(group, self.workers[worker as usize].pid)?;
        self.workers[worker as usize].group = Some(group);
        limited.store(self.limits[group as usize].into(), SeqCst);
        self.counts.moves += 1;
        Ok(())
    }

    fn limit(&mut self, group: u64, objects: u64) -> io::Result<()> {
        if !self.groups.are_there() {
            return Ok(());
        }
        let inside: Vec<u64> = (0..)
            .zip(&self.workers)
            .filter(|(_, w)| w.group == Some(group))
            .map(|(n, _)| n)
            .collect();
        let tell = |limited: bool| {
            inside.iter().for_each(|n| {
                self.site
                    .ledger
                    .of(*n, Of::Limited)
                    .store(limited.into(), SeqCst)
            })
        };
        tell(true);
        self.groups.limit(group, objects);
        tell(objects != 0);
        self.limits[group as usize] = objects != 0;
        Ok(())
    }

    /// Kill a worker, and look at what it has left when wait() is back.
    fn kill(&mut self, worker: u64, hammer: bool) -> io::Result<()> {
        if self.workers[worker as usize].ended {
            return Ok(());
        }
        let ledger = &self.site.ledger;
        let hammer = if hammer { self.hammer(worker)? } else { None };
        let faults = ledger.get(Global::Faults);
        ledger.of(worker, Of::Dying).store(1, SeqCst);
        let pid = self.workers[worker as usize].pid;
        sys::kill(pid);
        let status = sys::wait(pid)?;
        if status != 128 + libc::SIGKILL && !ledger.stopping() {
            return Err(broken(format!(
                "worker {worker} was killed, and ended with status {status}"
            )));
        }
        let calm = faults % 2 == 0;
        if calm {
            self.memory_is_quiet(worker, hammer.is_some())?;
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
    /// hammer, or no key for it.
    fn hammer(&self, worker: u64) -> io::Result<Option<Hammer>> {
        if !Hammer::is_there() {
            return Ok(None);
        }
        let ledger = &self.site.ledger;
        let good =
            |key: &Key<'_>| key.seen().state() == State::Live && !ledger.unplugged(key.place());
        let mut keys = ledger
            .keys(worker)
            .filter(good)
            .filter_map(|key| Some((key.cookie(), key.writable()?)));
        let Some((cookie, (_, bytes))) = keys.next() else {
            return Ok(None);
        };
        let hammer = Hammer::open()?;
        // The key may be ended at any moment, and be one of another device.
        let started = hammer.start(cookie, bytes, bytes.min(CHUNK) as u32).is_ok();
        Ok(started.then_some(hammer))
    }

    /// Does something other than the owner's life keep this key alive?
    fn held_by_others(&self, worker: u64, key: &Key<'_>) -> bool {
        let of = |what| self.site.ledger.of(worker, what).load(SeqCst);
        !OWNED_BY_MEMORY && (key.is_passed() || of(Of::Forks) != of(Of::Reaped))
    }

    /// Not one byte changes any more.
    fn memory_is_quiet(&mut self, worker: u64, hammered: bool) -> io::Result<()> {
        if self
            .site
            .ledger
            .keys(worker)
            .any(|key| key.writable().is_some() && self.held_by_others(worker, &key))
        {
            return Ok(());
        }
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
        if hammered {
            self.site.ledger.count(Global::Hammered);
        }
        Ok(())
    }

    fn keys_are_dead(&mut self, worker: u64) -> io::Result<()> {
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
            let prober = match (device_at(place), &self.peer) {
                (Device::Here, _) => &self.here,
                (Device::Peer, Some((socket, incarnation))) if place >> 1 == *incarnation => socket,
                _ => continue,
            };
            let answer = errno(prober.probe(key.cookie(), 0));
            let conditions = Conditions {
                calls_since: ledger.get(Global::Calls) - calls,
                contended: self.held_by_others(worker, &key),
                ..Default::default()
            };
            match judge(Must::BeDead, answer, conditions) {
                Verdict::Holds => drop(ledger.count(Global::DeadByKill)),
                Verdict::Void => drop(ledger.count(Global::Void)),
                Verdict::Broken => {
                    return Err(broken(format!(
                        "a key of worker {worker}, which was killed and waited for\nexpected: {:?}\ngot: {answer:?} for cookie {:#x} in state {:?}",
                        Must::BeDead,
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
        sys::kill(-leader);
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

    /// Let all finish, and give everything back.
    pub fn finish(mut self) -> io::Result<Counts> {
        self.site.ledger.count(Global::Stop);
        let end = Instant::now() + PATIENCE;
        while self.workers.iter().any(|worker| !worker.ended) {
            self.see_who_ended()?;
            if Instant::now() > end {
                let left = self.workers.iter().filter(|worker| !worker.ended);
                let pids: Vec<i32> = left.map(|worker| worker.pid).collect();
                return Err(broken(format!(
                    "workers {pids:?} do not end within {PATIENCE:?}"
                )));
            }
            std::thread::sleep(TICK);
        }
        self.lift()?;
        self.faults.end()?;
        self.replug()?;
        self.groups.remove();
        // Sockets that were passed on and not received.
        for mailbox in &self.site.mailboxes {
            while mailbox.fetch()?.is_some() {}
        }
        Ok(self.counts)
    }

    /// After a failure: nothing of it is left to disturb whoever looks at it.
    pub fn abandon(&self) {
        for worker in self.workers.iter().filter(|worker| !worker.ended) {
            sys::kill(-worker.pid);
        }
        let _ = self.faults.end();
    }
}
