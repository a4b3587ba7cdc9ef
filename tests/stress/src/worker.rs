// SPDX-License-Identifier: GPL-2.0
//! A process that does what the plan says, in several threads, and compares what
//! comes of it with the model.

use crate::keys::no;
use crate::ledger::{Ledger, Of, THREADS};
use crate::model;
use crate::plan::{Action, Device, Disturb, Plan};
use crate::socks::{address, place_between, place_now, Sock, Socks};
use crate::sys::{self, Mailbox, MakeItFail, Revoked, SIOCRDSMRREVOKED};
use rdsmr::errno::*;
use rdsmr::{mem, Mapping, Socket, PAGE};
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

    fn open(&self, at: u64, device: Device, no_memory: bool) -> Outcome {
        let before = place_now(self.ledger(), device);
        let result = self.fail.with(no_memory, || errno(Socket::new()));
        let socket = match result {
            Ok(socket) => socket,
            Err(ENOMEM | ENOBUFS) if no_memory => return Ok(Done::Errno(ENOMEM)),
            Err(_) => return wrong("socket", "success", describe_result(&result)),
        };
        let bound = self
            .fail
            .with(no_memory, || errno(socket.bind(address(device))));
        let after = place_now(self.ledger(), device);
        let place = place_between(before, after, device);
        let now = model::Situation {
            unplugged: before != after || self.ledger().unplugged(place),
            no_memory,
            ..Default::default()
        };
        let outcome = self.right("bind", &model::bind(now), bound)?;
        if outcome == Done::Yes {
            let sock = self.socks.new_sock(socket, place, true, false);
            self.close(self.socks.put(at, Some(Arc::new(sock))), false, false)?;
        }
        Ok(outcome)
    }

    fn open_unbound(&self, at: u64) -> Outcome {
        let result = errno(Socket::new());
        let Ok(socket) = result else {
            return wrong("socket", "success", describe_result(&result));
        };
        let sock =
            self.socks
                .new_sock(socket, place_now(self.ledger(), Device::Here), false, false);
        self.close(self.socks.put(at, Some(Arc::new(sock))), false, false)
    }

    fn bind_again(&self, sock: &Sock) -> Outcome {
        if !sock.facts.bound {
            return Ok(Done::No);
        }
        let result = errno(sock.socket.bind(address(Device::Here)));
        match result {
            Err(EINVAL) => Ok(Done::Yes),
            // It became the unbound one meanwhile, which a thread will lose soon.
            _ if sock.facts.snatched.load(SeqCst) => Ok(no(&result)),
            _ => wrong("bind of a bound socket", "EINVAL", describe_result(&result)),
        }
    }

    fn connect(&self, sock: &Sock, peer: Device) -> Outcome {
        let mut to = address(peer);
        to.set_port(77);
        self.must("connect", errno(sock.socket.connect(to)))
    }

    fn names(&self, sock: &Sock) -> Outcome {
        let name = match errno(sock.socket.local()) {
            Ok(name) => name,
            result => return wrong("getsockname", "success", describe_result(&result)),
        };
        let bound = name.addr().is_some_and(|addr| addr.port() != 0);
        if bound != sock.facts.bound && !sock.facts.snatched.load(SeqCst) {
            return wrong(
                "getsockname",
                format!("bound: {}", sock.facts.bound),
                format!("{name:?}"),
            );
        }
        match errno(sock.socket.peer()) {
            Ok(_) | Err(ENOTCONN) => Ok(Done::Yes),
            result => wrong(
                "getpeername",
                "success or ENOTCONN",
                describe_result(&result),
            ),
        }
    }

    fn set_quota(&self, sock: &Sock, keys: u64, pages: u64) -> Outcome {
        sock.facts.limited.store(true, SeqCst);
        self.must(
            "setting a quota",
            errno(sock.socket.set_quota(keys as u32, pages)),
        )
    }

    /// Ask why keys have died, and whether there is something to ask.
    fn revoked(&self, sock: &Sock) -> Outcome {
        let events = errno(
            sock.socket
                .poll(libc::POLLIN | libc::POLLPRI | libc::POLLOUT),
        );
        let legal = if model::OWNED_BY_MEMORY {
            libc::POLLPRI
        } else {
            0
        };
        if !matches!(events, Ok(events) if events & !legal == 0) {
            return wrong(
                "poll",
                format!("no events but {legal:#x}"),
                format!("{events:?}"),
            );
        }
        let mut revoked = Revoked::default();
        let result = errno(sock.socket.ioctl(SIOCRDSMRREVOKED, &mut revoked));
        match result {
            Err(ENOTTY) if !model::OWNED_BY_MEMORY => Ok(Done::Yes),
            Err(EAGAIN) if model::OWNED_BY_MEMORY => Ok(Done::Yes),
            Ok(())
                if model::OWNED_BY_MEMORY
                    && (revoked.reason == 1 || self.lost_device(sock, &revoked)) =>
            {
                Ok(Done::Yes)
            }
            Ok(()) => wrong(
                "SIOCRDSMRREVOKED",
                "reason 1, or 2 after an unplug",
                format!("{revoked:?}"),
            ),
            Err(_) => wrong(
                "SIOCRDSMRREVOKED",
                "a key or no key",
                describe_result(&result),
            ),
        }
    }

    fn lost_device(&self, sock: &Sock, revoked: &Revoked) -> bool {
        revoked.reason == 2 && self.ledger().unplugged(sock.facts.place)
    }

    fn dup(&self, at: u64, sock: &Arc<Sock>) -> Outcome {
        match errno(sock.socket.dup()) {
            Ok(socket) => {
                // A copy of the unbound one that took its place would be one for good.
                if !sock.facts.snatched.load(SeqCst) {
                    let facts = sock.facts.clone();
                    self.socks.exchange(at, sock, Sock { socket, facts });
                }
                Ok(Done::Yes)
            }
            result => wrong("dup", "success", describe_result(&result)),
        }
    }

    fn pass(&self, sock: &Sock, to: u64) -> Outcome {
        if !sock.facts.bound || to == self.worker {
            return Ok(Done::No);
        }
        sock.facts.passed.store(true, SeqCst);
        self.ledger()
            .keys(self.worker)
            .filter(|key| key.socket() == sock.facts.id)
            .for_each(|key| key.pass());
        match errno(self.site.mailboxes[to as usize].post(sock.facts.place, &sock.socket)) {
            Ok(true) => Ok(Done::Yes),
            Ok(false) => Ok(Done::No),
            result => wrong(
                "sendmsg with SCM_RIGHTS",
                "success",
                describe_result(&result),
            ),
        }
    }

    fn receive(&self, at: u64) -> Outcome {
        let (place, fd) = match errno(self.site.mailboxes[self.worker as usize].fetch()) {
            Ok(Some(got)) => got,
            Ok(None) => return Ok(Done::No),
            result => {
                return wrong(
                    "recvmsg with SCM_RIGHTS",
                    "success",
                    describe_result(&result),
                )
            }
        };
        let socket = match errno(sys::socket_of(&fd)) {
            Ok(socket) => socket,
            result => {
                return wrong(
                    "dup3 of a received socket",
                    "success",
                    describe_result(&result),
                )
            }
        };
        drop(fd);
        // The sender may have lost it on the way.
        if !matches!(socket.local().map(|name| name.addr()), Ok(Some(_))) {
            return Ok(Done::No);
        }
        let sock = self.socks.new_sock(socket, place, true, true);
        self.close(self.socks.put(at, Some(Arc::new(sock))), false, false)
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
