// SPDX-License-Identifier: GPL-2.0
//! Children: they inherit the sockets, and have a memory of their own.

use crate::ledger::{Global, Key, Of, State};
use crate::model::{self, Must};
use crate::plan::Kin;
use crate::socks::Sock;
use crate::sys;
use crate::worker::{describe_result, errno, wrong, Done, Outcome, Thread};
use rdsmr::abi::GetMrArgs;
use rdsmr::errno::*;
use rdsmr::{Access, Mapping, Socket, PAGE};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;

/// Exit statuses of a child; the others are errnos of its own troubles.
const OUTLIVED: i32 = 200;
const FAILED_FREE: i32 = 201;

impl Thread<'_> {
    pub fn fork(&self, sock: &Arc<Sock>, from: u64, kin: Kin) -> Outcome {
        match kin {
            Kin::Exits => self.child(|| 0).map(|_| Done::Yes),
            Kin::Closes => self
                .child(|| {
                    let closed = Socket::new().and_then(|other| sys::replace(&sock.socket, &other));
                    closed.map_or(1, |()| 0)
                })
                .map(|_| Done::Yes),
            Kin::Frees => self.child_frees(from),
            Kin::Registers => self.child_registers(sock, from, false),
            Kin::RegistersAndExecs => self.child_registers(sock, from, true),
        }
    }

    /// Fork, and wait for the end; its exit status.
    fn child(&self, body: impl FnOnce() -> i32) -> Result<i32, crate::worker::Wrong> {
        let ledger = self.ledger();
        ledger.of(self.worker, Of::Forks).fetch_add(1, SeqCst);
        let status = errno(sys::fork(body).and_then(sys::wait));
        match status {
            Ok(status) => {
                ledger.of(self.worker, Of::Reaped).fetch_add(1, SeqCst);
                Ok(status)
            }
            Err(_) => wrong("fork and wait", "success", describe_result(&status)),
        }
    }

    fn child_frees(&self, from: u64) -> Outcome {
        let Some(key) = self.claim(from) else {
            return Ok(Done::No);
        };
        let Some(sock) = self.sock_of(key) else {
            key.forget();
            return Ok(Done::No);
        };
        let (cookie, before) = (key.cookie(), self.before(&sock));
        let status = self
            .child(|| errno(sock.socket.free_mr(cookie, 0)).map_or_else(|errno| errno, |()| 0))?;
        let result = if status == 0 { Ok(()) } else { Err(status) };
        let now = self.situation(&sock, before);
        let outcome = self.right("FREE_MR by a child", &model::free_mr(now), result);
        match outcome {
            Ok(Done::Errno(EIO)) => key.set(State::Doubtful),
            _ => key.forget(),
        }
        if matches!(outcome, Ok(Done::Yes)) {
            self.must_be_dead(
                "a key after FREE_MR by a child",
                &sock,
                cookie,
                Must::ProvenDead,
                before,
            )?;
        }
        outcome
    }

    /// The key of a child dies with the child, or when that runs another
    /// program, although the socket stays. Who has the socket frees its slot.
    fn child_registers(&self, sock: &Arc<Sock>, from: u64, exec: bool) -> Outcome {
        if !sock.facts.bound {
            return Ok(Done::No);
        }
        let Some(key) = self.empty_key(from, State::Kins) else {
            return Ok(Done::No);
        };
        key.describe(sock.facts.place, sock.facts.id, u64::MAX, PAGE, false);
        let before = self.before(sock);
        // The child's calls, and those of the program.
        self.ledger().global(Global::Calls).fetch_add(2, SeqCst);
        let status = self.child(|| register(sock, key, exec));
        let cookie = key.cookie();
        key.forget();
        let status = status?;
        let calm = !self.faults_since(before) && !self.ledger().unplugged(sock.facts.place);
        if status == OUTLIVED && calm {
            return wrong(
                "a key when its owner runs another program",
                "it is dead",
                "alive",
            );
        }
        if cookie == 0 || sock.facts.snatched.load(SeqCst) {
            return Ok(Done::Errno(status));
        }
        self.must_be_dead(
            "a key whose owner has ended, the socket being open",
            sock,
            cookie,
            Must::Dead,
            before,
        )?;
        let result = errno(sock.socket.free_mr(cookie, 0));
        let outcome = self.right(
            "FREE_MR of the key of a child that ended",
            &model::free_mr(self.situation(sock, before)),
            result,
        )?;
        if outcome == Done::Yes {
            self.must_be_dead(
                "the key of a child, after FREE_MR",
                sock,
                cookie,
                Must::ProvenDead,
                before,
            )?;
        }
        Ok(outcome)
    }
}

/// In the child.
fn register(sock: &Sock, key: Key<'_>, exec: bool) -> i32 {
    let map = match errno(Mapping::anonymous(PAGE)) {
        Ok(map) => map,
        Err(errno) => return errno,
    };
    let args = GetMrArgs {
        addr: map.at(0),
        bytes: PAGE,
        cookie_addr: key.cookie_addr(),
        flags: 0,
    };
    if let Err(errno) = errno(sock.socket.get_mr_args(&args)) {
        return errno;
    }
    if !exec {
        return 0;
    }
    if let Err(errno) = errno(sys::keep_on_exec(sock.socket.as_raw_fd())) {
        return errno;
    }
    let words = [
        sock.socket.as_raw_fd().to_string(),
        key.cookie().to_string(),
    ];
    let args: Vec<String> = ["rds-mr-stress", "--heir"]
        .iter()
        .map(|s| s.to_string())
        .chain(words)
        .collect();
    sys::exec(&args).raw_os_error().unwrap_or(1)
}

/// The program that has inherited a socket, and its program's key: all that it
/// knows are two numbers.
pub fn heir(fd: RawFd, cookie: u64) -> i32 {
    // SAFETY: this program was started with it, and has not touched it yet.
    let fd = unsafe { sys::inherited(fd) };
    let Ok(socket) = sys::socket_of(&fd) else {
        return 1;
    };
    drop(fd);
    let answer = socket.probe(cookie, 0);
    let Ok(map) = Mapping::anonymous(PAGE) else {
        return 1;
    };
    if let Ok(own) = socket.get_mr(map.at(0), PAGE, 0) {
        if errno(socket.free_mr(own, 0)) == Err(EINVAL) {
            return FAILED_FREE;
        }
    }
    if matches!(answer, Ok(Access::Alive)) {
        return OUTLIVED;
    }
    0
}
