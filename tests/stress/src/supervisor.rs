// SPDX-License-Identifier: GPL-2.0
//! Starts the workers, does to them what the plan says, and looks at what the
//! dead have left.

use crate::chaos::{prober, Faults, Groups};
use crate::events::{Chaos, Event, Wrong, POINTS};
use crate::ledger::{Global, Of};
use crate::model::{judge, Conditions, Must, Verdict};
use crate::plan::Device;
use crate::plug::Plug;
use crate::report::{self, Counts};
use crate::sys;
use crate::worker::{self, errno, Site};
use rdsmr::{process, Armed, Hammer, Socket};
use std::io;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// A limit for the end of what was told or killed to end.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Beyond the time that was asked for, if the machine is slow.
const EXTENSION: Duration = Duration::from_secs(600);
pub const TICK: Duration = Duration::from_millis(10);
const PROGRESS: Duration = Duration::from_secs(10);

pub struct Worker {
    pub pid: i32,
    group: Option<u64>,
    pub ended: bool,
}

pub struct Supervisor<'a> {
    pub site: &'a Site,
    pub workers: Vec<Worker>,
    pub here: Socket,
    pub peer: Plug,
    faults: Faults,
    groups: Groups,
    limits: [bool; 2],
    /// What goes wrong now, and what makes it.
    armed: Option<(Wrong, Option<Armed>)>,
    lift_at: Option<Instant>,
    /// The module is made blind all the time: nothing else is made to fail.
    blind: bool,
    pub counts: Counts,
}

fn is_dereg(wrong: Wrong) -> bool {
    matches!(wrong, Wrong::Verb { point, .. } if POINTS[point].ends_with("dereg_mr"))
}

/// What went wrong outside of the workers.
pub fn broken(text: String) -> io::Error {
    io::Error::other(text)
}

impl<'a> Supervisor<'a> {
    pub fn new(site: &'a Site) -> io::Result<Self> {
        Ok(Supervisor {
            site,
            workers: Vec::new(),
            here: prober(Device::Here)?,
            peer: Plug::new()?,
            faults: Faults::prepare()?,
            groups: Groups::make(),
            limits: [false; 2],
            armed: None,
            lift_at: None,
            blind: false,
            counts: Counts::default(),
        })
    }

    /// The caller makes one function fail for the whole run. No other faults: only
    /// one can be made to fail at a time, and each would excuse what is wrong.
    pub fn only_blind(&mut self) {
        self.blind = true;
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
            Must::Dead,
            errno(self.here.probe(cookie, 0)),
            Conditions::default(),
        );
        self.here.free_mr(cookie, 0)?;
        let truth = judge(
            Must::Dead,
            errno(self.here.probe(cookie, 0)),
            Conditions::default(),
        );
        Ok(lie == Verdict::Broken && truth == Verdict::Holds)
    }

    pub fn start(&mut self, worker: u64) -> io::Result<()> {
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

    /// Until the time is over, or somebody has failed. A machine that is slow
    /// gets more time, so that everything has taken place; who is blind gets it
    /// until that is noticed.
    pub fn run(&mut self, duration: Duration) -> io::Result<()> {
        for worker in 0..self.site.workers {
            self.start(worker)?;
        }
        let start = Instant::now();
        let end = start + duration;
        let mut next_report = start + PROGRESS;
        let mut chaos = Chaos::new(self.site.seed, self.site.workers).peekable();
        let mut due = start;
        while !self.site.ledger.stopping() {
            let now = Instant::now();
            let enough =
                || !self.blind && report::missing(self.site, self.can(), &self.counts).is_empty();
            if now >= end && (now >= end + EXTENSION || enough()) {
                break;
            }
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

    /// What was begun, and has its time.
    fn catch_up(&mut self, now: Instant) -> io::Result<()> {
        if self.lift_at.is_some_and(|at| at <= now) {
            self.lift()?;
        }
        self.peer.step(&self.site.ledger)
    }

    fn happen(&mut self, event: Event) -> io::Result<()> {
        match event {
            Event::Kill { worker, hammer } => self.kill(worker, hammer),
            Event::Unplug { gone_ms } => self.unplug(gone_ms),
            Event::Fault { wrong, ms } => self.fault(wrong, Duration::from_millis(ms)),
            Event::MoveToGroup { worker, group } => self.move_to(worker, group),
            Event::LimitGroup { group, objects } => self.limit(group, objects),
        }
    }

    fn fault(&mut self, wrong: Wrong, time: Duration) -> io::Result<()> {
        let possible = match wrong {
            Wrong::Verb { .. } => self.faults.verbs,
            Wrong::Quirk { .. } => Hammer::is_there(),
        };
        if !possible || self.blind || self.armed.is_some() {
            return Ok(());
        }
        // What is not deregistered when the device goes is lost for good.
        if is_dereg(wrong) && self.peer.prober().is_none() {
            return Ok(());
        }
        self.site.ledger.count(Global::Faults);
        let armed = match wrong {
            Wrong::Verb { point, percent } => {
                self.counts.faults += 1;
                self.faults.arm(point, percent)?;
                None
            }
            Wrong::Quirk { fault, times, arg } => {
                self.counts.quirks += 1;
                Some(Armed::new(fault, times, arg)?)
            }
        };
        self.armed = Some((wrong, armed));
        self.lift_at = Some(Instant::now() + time);
        Ok(())
    }

    fn lift(&mut self) -> io::Result<()> {
        self.lift_at = None;
        if let Some((wrong, armed)) = self.armed.take() {
            drop(armed);
            // A quirk ends with what has armed it.
            if matches!(wrong, Wrong::Verb { .. }) {
                self.faults.lift()?;
            }
            self.site.ledger.count(Global::Faults);
        }
        Ok(())
    }

    fn unplug(&mut self, gone_ms: u64) -> io::Result<()> {
        if self.peer.prober().is_none() {
            return Ok(());
        }
        if self
            .armed
            .as_ref()
            .is_some_and(|(wrong, _)| is_dereg(*wrong))
        {
            self.lift()?;
        }
        self.counts.unplugs += 1;
        self.peer
            .pull(&self.site.ledger, Duration::from_millis(gone_ms))
    }

    fn move_to(&mut self, worker: u64, group: u64) -> io::Result<()> {
        if !self.groups.are_there() || self.workers[worker as usize].ended {
            return Ok(());
        }
        let limited = self.site.ledger.of(worker, Of::Limited);
        limited.store(1, SeqCst);
        self.site.ledger.count(Global::Limits);
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
        self.site.ledger.count(Global::Limits);
        self.groups.limit(group, objects);
        tell(objects != 0);
        self.limits[group as usize] = objects != 0;
        Ok(())
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
        while self.peer.prober().is_none() {
            self.peer.step(&self.site.ledger)?;
            std::thread::sleep(TICK);
        }
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
            sys::kill_group(worker.pid);
        }
        let _ = self.faults.end();
    }
}
