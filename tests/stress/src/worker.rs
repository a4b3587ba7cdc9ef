// SPDX-License-Identifier: GPL-2.0
//! A process that does what the plan says, in several threads, and compares what
//! comes of it with the model.

use crate::ledger::{Ledger, Of, THREADS};
use crate::model;
use crate::plan::{Action, Disturb, Plan};
use crate::socks::{Sock, Socks};
use crate::sys::{self, Mailbox, MakeItFail};
use rdsmr::errno::name;
use rdsmr::{mem, Mapping, PAGE};
use std::io;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;

/// What all processes of a run share.
pub struct Site {
    pub seed: u64,
    pub workers: u64,
    /// Actions of a thread, at most.
    pub actions: u64,
    pub ledger: Ledger,
    pub arenas: Vec<Mapping>,
    pub mailboxes: Vec<Mailbox>,
}

pub const ARENA: u64 = 512 * PAGE;

/// Something that the model rules out: what, what was right, what came.
#[derive(Debug)]
pub struct Wrong {
    pub what: String,
    pub expected: String,
    pub got: String,
}

pub fn wrong<T>(what: &str, expected: impl ToString, got: impl ToString) -> Result<T, Wrong> {
    Err(Wrong {
        what: what.to_string(),
        expected: expected.to_string(),
        got: got.to_string(),
    })
}

/// What came of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    Yes,
    /// There was nothing to do it with.
    No,
    Errno(i32),
}

pub type Outcome = Result<Done, Wrong>;

/// One thread of a worker.
pub struct Thread<'a> {
    pub site: &'a Site,
    pub socks: &'a Socks,
    pub worker: u64,
    pub hostile: Mapping,
    pub fail: MakeItFail,
}

/// The result of a call, as its errno.
pub fn errno<T>(result: io::Result<T>) -> Result<T, i32> {
    result.map_err(|error| error.raw_os_error().unwrap_or(0))
}

pub fn describe_result<T>(result: &Result<T, i32>) -> String {
    result
        .as_ref()
        .map_or_else(|errno| name(*errno), |_| "success".to_string())
}

/// A life of a worker; its exit status.
pub fn run(site: &Site, worker: u64) -> i32 {
    let socks = Socks::default();
    let life = site.ledger.of(worker, Of::Life).load(SeqCst);
    std::thread::scope(|scope| {
        for index in 0..THREADS {
            let socks = &socks;
            scope.spawn(move || {
                let run = || thread(site, socks, worker, life, index);
                if std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err() {
                    site.ledger
                        .fail("a thread of the stress program panicked, see its output");
                }
            });
        }
    });
    // From here on its keys end without a word.
    site.ledger.of(worker, Of::Dying).store(1, SeqCst);
    0
}

fn thread(site: &Site, socks: &Socks, worker: u64, life: u64, index: u64) {
    let ledger = &site.ledger;
    let hostile = match Mapping::anonymous(ARENA) {
        Ok(map) => map,
        Err(error) => return ledger.fail(&format!("mmap: {error}")),
    };
    let me = Thread {
        site,
        socks,
        worker,
        hostile,
        fail: MakeItFail::open(),
    };
    let plan = Plan::new(site.seed, site.workers, worker, life, index);
    for (n, action) in (0..site.actions).zip(plan) {
        if ledger.stopping() {
            break;
        }
        ledger.result(worker, index, n).store(0, SeqCst);
        ledger.begun(worker, index).store(n + 1, SeqCst);
        let outcome = me.act(action);
        let result = match &outcome {
            Ok(Done::Yes) => 1,
            Ok(Done::No) => 2,
            Ok(Done::Errno(errno)) => 2 + *errno as u64,
            Err(_) => 999,
        };
        ledger.result(worker, index, n).store(result, SeqCst);
        ledger.total(worker, index).fetch_add(1, SeqCst);
        match outcome {
            Ok(Done::Yes) => drop(ledger.done(action.number()).fetch_add(1, SeqCst)),
            Ok(_) => {}
            Err(wrong) => {
                return ledger.fail(&format!(
                    "worker {worker}, life {life}, thread {index}, action {n}: {action:?}\n{}\nexpected: {}\ngot: {}",
                    wrong.what, wrong.expected, wrong.got
                ))
            }
        }
    }
}

impl Thread<'_> {
    pub fn ledger(&self) -> &Ledger {
        &self.site.ledger
    }

    #[rustfmt::skip]
    fn act(&self, action: Action) -> Outcome {
        match action {
            Action::Open { socket, device, no_memory } => self.open(socket, device, no_memory),
            Action::OpenUnbound { socket } => self.open_unbound(socket),
            Action::BindAgain { socket } => self.on(socket, |sock| self.bind_again(sock)),
            Action::Connect { socket, peer } => self.on(socket, |sock| self.connect(sock, peer)),
            Action::Names { socket } => self.on(socket, |sock| self.names(sock)),
            Action::Get(get) => self.on(get.socket, |sock| self.get(sock, get)),
            Action::Free { key, verify, no_memory } => self.free(key, verify, no_memory, false),
            Action::FreeTwice { key } => self.free(key, false, false, true),
            Action::FreeNonsense { socket, cookie } => self.on(socket, |sock| self.free_nonsense(sock, cookie)),
            Action::FreeForeign { socket, worker, key } => self.on(socket, |sock| self.free_foreign(sock, worker, key)),
            Action::Probe { key } => self.probe_own(key),
            Action::ProbeForeign { socket, worker, key } => self.on(socket, |sock| self.probe_foreign(sock, worker, key)),
            Action::SetQuota { socket, keys, pages } => self.on(socket, |sock| self.set_quota(sock, keys, pages)),
            Action::GetQuota { socket } => self.on(socket, |sock| self.must("getting the quota", errno(sock.socket.quota()).map(drop))),
            Action::Revoked { socket } => self.on(socket, |sock| self.revoked(sock)),
            Action::Dup { socket } => self.on(socket, |sock| self.dup(socket, sock)),
            Action::Close { socket, verify, no_memory } => self.close(self.socks.put(socket, None), verify, no_memory),
            Action::Snatch { socket } => self.on(socket, |sock| self.snatch(socket, sock)),
            Action::Hammer { socket } => self.on(socket, |sock| self.hammer(sock)),
            Action::Fork { socket, key, kin } => self.on(socket, |sock| self.fork(sock, key, kin)),
            Action::Pass { socket, worker } => self.on(socket, |sock| self.pass(sock, worker)),
            Action::Receive { socket } => self.receive(socket),
            Action::Disturb { what, page, pages } => self.disturb(what, page * PAGE, pages * PAGE),
        }
    }

    fn on(&self, at: u64, action: impl FnOnce(&Arc<Sock>) -> Outcome) -> Outcome {
        self.socks
            .get(at)
            .map_or(Ok(Done::No), |sock| action(&sock))
    }

    pub fn must(&self, what: &str, result: Result<(), i32>) -> Outcome {
        match result {
            Ok(()) => Ok(Done::Yes),
            Err(_) => wrong(what, "success", describe_result(&result)),
        }
    }

    /// One of the errors that are right here is an outcome, too.
    pub fn right(&self, what: &str, right: &model::Right, result: Result<(), i32>) -> Outcome {
        match result {
            _ if !right.allows(result) => wrong(what, right, describe_result(&result)),
            Ok(()) => Ok(Done::Yes),
            Err(errno) => Ok(Done::Errno(errno)),
        }
    }

    fn disturb(&self, what: Disturb, offset: u64, bytes: u64) -> Outcome {
        let map = &self.hostile;
        let result = match what {
            Disturb::Unmap => map.renew(offset, bytes, mem::NONE),
            Disturb::Map => map.renew(offset, bytes, mem::READ_WRITE),
            Disturb::Protect => map.protect(offset, bytes, mem::READ),
            Disturb::Unprotect => map.protect(offset, bytes, mem::READ_WRITE),
            Disturb::Discard => sys::discard(map, offset, bytes),
        };
        self.must("changing a mapping", errno(result))
    }
}
