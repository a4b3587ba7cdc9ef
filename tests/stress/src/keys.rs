// SPDX-License-Identifier: GPL-2.0
//! The life of keys in a worker: registered, looked at, ended.

use crate::ask::Asked;
use crate::ledger::{Global, Key, State, KEYS};
use crate::model::{self, Flaw, Must, Situation};
use crate::plan::{Device, Get, Memory, Place};
use crate::socks::{address, Sock};
use crate::sys;
use crate::worker::{describe_result, errno, wrong, Done, Outcome, Thread};
use rdsmr::abi::*;
use rdsmr::addr::encode;
use rdsmr::errno::*;
use rdsmr::{Mapping, Socket};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;

/// Larger than any number that the device gives to an MR.
const NO_INDEX: u64 = 1 << 31;
/// Of keys that cannot be freed, since nobody knows their cookies.
const NAMELESS: u64 = 8;

impl Thread<'_> {
    pub fn empty_key(&self, from: u64, state: State) -> Option<Key<'_>> {
        (0..KEYS)
            .map(|n| self.ledger().key(self.worker, from.wrapping_add(n)))
            .find(|key| key.turn(State::Empty, state))
    }

    pub fn get(&self, sock: &Arc<Sock>, get: Get) -> Outcome {
        let nameless =
            get.place == Place::Nowhere && sock.facts.nameless.fetch_add(1, SeqCst) < NAMELESS;
        let key = if nameless || get.place == Place::BadAddress {
            None
        } else {
            match self.entry_for(sock, get) {
                Some(key) => Some(key),
                None => return Ok(Done::No),
            }
        };
        let before = self.before(sock);
        let surely_unplugged = self.ledger().surely_unplugged(sock.facts.place);
        let args = GetMrArgs {
            addr: self.memory(get).at(get.offset),
            bytes: bytes(get),
            cookie_addr: match get.place {
                Place::BadAddress => 8,
                // The kernel itself writes it there: whoever is killed before
                // the call is back has left it.
                _ => key.map_or(0, |key| key.cookie_addr()),
            },
            flags: if get.write { RDS_RDMA_READWRITE } else { 0 },
        };
        self.ledger().count(Global::Calls);
        let made = || call(&sock.socket, args, get.for_dest);
        let result = errno(self.fail.with(get.no_memory, made));
        let now = Situation {
            surely_unplugged,
            no_memory: get.no_memory,
            ..self.situation(sock, before)
        };
        let outcome = self.right("GET_MR", &model::get_mr(flaw(get), now), result);
        match (key, &outcome) {
            (Some(key), Ok(Done::Yes)) => self.got(sock, key, get),
            (Some(key), _) => {
                key.forget();
                outcome
            }
            (None, _) => outcome,
        }
    }

    fn memory(&self, get: Get) -> &Mapping {
        match get.memory {
            Memory::Hostile => &self.hostile,
            _ => &self.site.arenas[self.worker as usize],
        }
    }

    /// An entry for a key of `sock`. None if there is no room, or the socket is
    /// about to be closed: from then on whoever takes it away finds the key.
    fn entry_for(&self, sock: &Sock, get: Get) -> Option<Key<'_>> {
        let key = self.empty_key(get.offset, State::Registering)?;
        let offset = if get.memory == Memory::Hostile {
            u64::MAX
        } else {
            get.offset
        };
        key.describe(
            sock.facts.place,
            sock.facts.id,
            offset,
            bytes(get),
            get.write,
        );
        if sock.facts.lost.load(SeqCst) {
            key.forget();
            return None;
        }
        Some(key)
    }

    fn got(&self, sock: &Sock, key: Key<'_>, get: Get) -> Outcome {
        let Some(seen) = key.turned(State::Registering, State::Live) else {
            // Its socket closes with us, or has.
            key.forget();
            return Ok(Done::Yes);
        };
        if get.verify {
            self.must_be_alive("a key after GET_MR", sock, key, seen, bytes(get) - 1)?;
        }
        Ok(Done::Yes)
    }

    /// A key of this worker that the caller alone may end now.
    pub fn claim(&self, from: u64) -> Option<Key<'_>> {
        let keys = (0..KEYS).map(|n| self.ledger().key(self.worker, from.wrapping_add(n)));
        keys.into_iter().find(|key| {
            key.turn(State::Live, State::Ending) || key.turn(State::Doubtful, State::Ending)
        })
    }

    pub fn sock_of(&self, key: Key<'_>) -> Option<Arc<Sock>> {
        let id = key.socket();
        self.socks
            .find(|sock| sock.facts.id == id && !sock.facts.lost.load(SeqCst))
    }

    pub fn free(&self, from: u64, verify: bool, no_memory: bool, twice: bool) -> Outcome {
        let Some(key) = self.claim(from) else {
            return Ok(Done::No);
        };
        let Some(sock) = self.sock_of(key) else {
            key.forget();
            return Ok(Done::No);
        };
        let cookie = key.cookie();
        let before = self.before(&sock);
        let result = self
            .fail
            .with(no_memory, || errno(sock.socket.free_mr(cookie, 0)));
        let now = self.situation(&sock, before);
        let outcome = self.right("FREE_MR", &model::free_mr(now), result);
        match outcome {
            Ok(Done::Yes) => {}
            Ok(Done::Errno(EIO)) => {
                key.set(State::Doubtful);
                return outcome;
            }
            _ => {
                key.forget();
                return outcome;
            }
        }
        if verify {
            self.must_be_dead(
                "a key after FREE_MR",
                &sock,
                cookie,
                Must::ProvenDead,
                before,
            )?;
        }
        if twice {
            let result = errno(sock.socket.free_mr(cookie, 0));
            if result != Err(EINVAL) {
                return wrong(
                    "FREE_MR of a key that is freed",
                    "EINVAL",
                    describe_result(&result),
                );
            }
        }
        key.forget();
        Ok(Done::Yes)
    }

    pub fn free_nonsense(&self, sock: &Sock, cookie: u64) -> Outcome {
        let result = errno(sock.socket.free_mr(cookie | NO_INDEX, 0));
        match result {
            Err(EINVAL) => Ok(Done::Yes),
            _ => wrong(
                "FREE_MR of a cookie that nobody has",
                "EINVAL",
                describe_result(&result),
            ),
        }
    }

    pub fn free_foreign(&self, sock: &Sock, worker: u64, from: u64) -> Outcome {
        let Some((_, seen)) = self.foreign(sock, worker, from) else {
            return Ok(Done::No);
        };
        // Asked after the key was seen: if the key is one of this very socket,
        // the socket had been passed on before.
        if sock.facts.passed.load(SeqCst) {
            return Ok(Done::No);
        }
        let result = errno(sock.socket.free_mr(seen.cookie, 0));
        match result {
            Err(EINVAL) => Ok(Done::Yes),
            _ => wrong(
                "FREE_MR of a key of another socket",
                "EINVAL",
                describe_result(&result),
            ),
        }
    }

    /// Say that the keys of a socket end with it. Returns the cookies of those
    /// that nobody else is about to end.
    fn announce_end(&self, sock: &Sock) -> Vec<u64> {
        sock.facts.lost.store(true, SeqCst);
        let keys = self
            .ledger()
            .keys(self.worker)
            .filter(|key| key.socket() == sock.facts.id);
        let ended = keys.filter(|key| {
            key.turn(State::Live, State::Ending) || key.turn(State::Doubtful, State::Ending)
        });
        let ended: Vec<_> = ended.collect();
        let cookies = ended.iter().map(|key| key.cookie()).collect();
        ended.iter().for_each(|key| key.forget());
        // Who registers one now sees it, and forgets it.
        self.ledger()
            .keys(self.worker)
            .filter(|key| key.socket() == sock.facts.id)
            .for_each(|key| {
                key.turn(State::Registering, State::Ending);
            });
        cookies
    }

    pub fn close(&self, sock: Option<Arc<Sock>>, verify: bool, no_memory: bool) -> Outcome {
        let Some(sock) = sock else {
            return Ok(Done::No);
        };
        let cookies = self.announce_end(&sock);
        let before = self.before(&sock);
        let (passed, place) = (sock.facts.passed.load(SeqCst), sock.facts.place);
        // Whoever else is using it, or has a second descriptor, is the last.
        let Some(Sock { socket, facts }) = Arc::into_inner(sock) else {
            return Ok(Done::Yes);
        };
        let last = Arc::into_inner(facts).is_some();
        self.fail.with(no_memory, || drop(socket));
        if !verify || !last || passed {
            return Ok(Done::Yes);
        }
        let Some(other) = self
            .socks
            .find(|other| other.facts.bound && other.facts.place == place)
        else {
            return Ok(Done::Yes);
        };
        for cookie in cookies.into_iter().take(3) {
            let contended = &|| !self.childless_since(before);
            let asked = Asked {
                cookie,
                offset: 0,
                contended,
            };
            self.ask(
                "a key after the last close",
                &other,
                asked,
                Must::Dead,
                before,
            )?;
        }
        Ok(Done::Yes)
    }

    pub fn snatch(&self, at: u64, sock: &Arc<Sock>) -> Outcome {
        self.announce_end(sock);
        sock.facts.snatched.store(true, SeqCst);
        let result = Socket::new().and_then(|unbound| sys::replace(&sock.socket, &unbound));
        drop(self.socks.put(at, None));
        self.must("putting another socket in its place", errno(result))
    }
}

fn flaw(get: Get) -> Flaw {
    match (get.memory, get.place) {
        (Memory::Nothing, _) => Flaw::NoBytes,
        (Memory::TooLong, _) => Flaw::TooLong,
        (_, Place::BadAddress) => Flaw::BadCookie,
        (Memory::Hostile, _) => Flaw::MayFault,
        _ => Flaw::None,
    }
}

fn bytes(get: Get) -> u64 {
    match get.memory {
        Memory::Nothing => 0,
        Memory::TooLong => MAX_BYTES + 2 * rdsmr::PAGE,
        _ => get.bytes,
    }
}

fn call(socket: &Socket, args: GetMrArgs, for_dest: bool) -> std::io::Result<()> {
    if !for_dest {
        return socket.get_mr_args(&args);
    }
    let mut dest = [0; 128];
    let name = encode(address(Device::Peer));
    dest[..name.len()].copy_from_slice(&name);
    let args = GetMrForDestArgs { dest, mr: args };
    socket.setsockopt(SOL_RDS, RDS_GET_MR_FOR_DEST, args.as_bytes())
}
