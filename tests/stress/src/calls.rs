// SPDX-License-Identifier: GPL-2.0
//! What a worker does with sockets, keys apart.

use crate::ask::no;
use crate::model;
use crate::plan::Device;
use crate::socks::{address, place_between, place_now, Sock};
use crate::sys;
use crate::worker::{describe_result, errno, wrong, Done, Outcome, Thread};
use rdsmr::abi::{Revoked, RDS_MR_REVOKED_DEVICE, RDS_MR_REVOKED_OWNER};
use rdsmr::errno::*;
use rdsmr::socket::POLLPRI;
use rdsmr::Socket;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;

impl Thread<'_> {
    pub fn open(&self, at: u64, device: Device, no_memory: bool) -> Outcome {
        let before = place_now(self.ledger(), device);
        let result = self.fail.with(no_memory, || errno(Socket::new()));
        let socket = match result {
            Ok(socket) => socket,
            // ENFILE is what the socket layer makes of an inode that it cannot have.
            Err(ENOMEM | ENOBUFS | libc::ENFILE) if no_memory => return Ok(Done::Errno(ENOMEM)),
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

    pub fn open_unbound(&self, at: u64) -> Outcome {
        let result = errno(Socket::new());
        let Ok(socket) = result else {
            return wrong("socket", "success", describe_result(&result));
        };
        let sock =
            self.socks
                .new_sock(socket, place_now(self.ledger(), Device::Here), false, false);
        self.close(self.socks.put(at, Some(Arc::new(sock))), false, false)
    }

    pub fn bind_again(&self, sock: &Sock) -> Outcome {
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

    pub fn connect(&self, sock: &Sock, peer: Device) -> Outcome {
        let mut to = address(peer);
        to.set_port(77);
        self.must("connect", errno(sock.socket.connect(to)))
    }

    pub fn names(&self, sock: &Sock) -> Outcome {
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

    pub fn set_quota(&self, sock: &Sock, keys: u64, pages: u64) -> Outcome {
        sock.facts.limited.store(true, SeqCst);
        self.must(
            "setting a quota",
            errno(sock.socket.set_quota(keys as u32, pages)),
        )
    }

    /// Ask why keys have died, and whether there is something to ask.
    pub fn revoked(&self, sock: &Sock) -> Outcome {
        let events = errno(sock.socket.poll(libc::POLLIN | POLLPRI | libc::POLLOUT));
        if !matches!(events, Ok(events) if events & !POLLPRI == 0) {
            return wrong(
                "poll",
                format!("no events but {POLLPRI:#x}"),
                format!("{events:?}"),
            );
        }
        let result = errno(sock.socket.revoked());
        match &result {
            Err(EAGAIN) => Ok(Done::Yes),
            Ok(news) if news.reason == RDS_MR_REVOKED_OWNER || self.lost_device(sock, news) => {
                Ok(Done::Yes)
            }
            Ok(news) => wrong(
                "SIOCRDSMRREVOKED",
                "reason 1, or 2 after an unplug",
                format!("{news:?}"),
            ),
            Err(_) => wrong(
                "SIOCRDSMRREVOKED",
                "a key or no key",
                describe_result(&result),
            ),
        }
    }

    fn lost_device(&self, sock: &Sock, revoked: &Revoked) -> bool {
        revoked.reason == RDS_MR_REVOKED_DEVICE && self.ledger().unplugged(sock.facts.place)
    }

    pub fn dup(&self, at: u64, sock: &Arc<Sock>) -> Outcome {
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

    pub fn pass(&self, sock: &Sock, to: u64) -> Outcome {
        if !sock.facts.bound || to == self.worker {
            return Ok(Done::No);
        }
        sock.facts.passed.store(true, SeqCst);
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

    pub fn receive(&self, at: u64) -> Outcome {
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
}
