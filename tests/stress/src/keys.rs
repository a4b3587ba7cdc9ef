// SPDX-License-Identifier: GPL-2.0
//! The life of keys in a worker: registered, looked at, ended.

use crate::ledger::{Global, Key, Of, Seen, State, KEYS};
use crate::model::{self, judge, Conditions, Flaw, Must, Situation, Verdict};
use crate::plan::{Get, Memory, Place};
use crate::socks::Sock;
use crate::sys;
use crate::worker::{describe_result, errno, wrong, Done, Outcome, Thread, Wrong};
use rdsmr::abi::*;
use rdsmr::addr::encode;
use rdsmr::errno::*;
use rdsmr::Socket;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;

/// Larger than any number that the device gives to an MR.
const NO_INDEX: u64 = 1 << 31;
/// Of keys that cannot be freed, since nobody knows their cookies.
const NAMELESS: u64 = 8;

/// An error that is right, or a success that counts for nothing.
pub fn no<T>(result: &Result<T, i32>) -> Done {
    result
        .as_ref()
        .map_or_else(|errno| Done::Errno(*errno), |_| Done::No)
}

/// What can change under a call, as it was before it.
#[derive(Clone, Copy)]
pub struct Before {
    faults: u64,
    limited: bool,
    calls: u64,
    forks: u64,
}

impl Thread<'_> {
    pub fn before(&self, sock: &Sock) -> Before {
        Before {
            faults: self.ledger().get(Global::Faults),
            limited: self.limited(sock),
            calls: self.ledger().get(Global::Calls),
            forks: self.ledger().of(self.worker, Of::Reaped).load(SeqCst),
        }
    }

    fn limited(&self, sock: &Sock) -> bool {
        sock.facts.limited.load(SeqCst)
            || self.ledger().of(self.worker, Of::Limited).load(SeqCst) != 0
    }

    pub fn faults_since(&self, before: Before) -> bool {
        let now = self.ledger().get(Global::Faults);
        now % 2 == 1 || now != before.faults
    }

    /// All children that may have inherited a socket by now had gone before.
    fn childless_since(&self, before: Before) -> bool {
        self.ledger().of(self.worker, Of::Forks).load(SeqCst) == before.forks
    }

    pub fn situation(&self, sock: &Sock, before: Before) -> Situation {
        Situation {
            unplugged: self.ledger().unplugged(sock.facts.place),
            faults: self.faults_since(before),
            limited: before.limited || self.limited(sock),
            snatched: sock.facts.snatched.load(SeqCst),
            unbound: !sock.facts.bound,
            ..Default::default()
        }
    }

    /// Ask the HCA through `sock`, and hold the answer against the model.
    fn ask(
        &self,
        what: &str,
        sock: &Sock,
        key: Asked,
        must: Must,
        before: Before,
    ) -> Result<Verdict, Wrong> {
        let answer = errno(sock.socket.probe(key.cookie, key.offset));
        let conditions = Conditions {
            calls_since: self.ledger().get(Global::Calls) - before.calls,
            unplugged: self.ledger().unplugged(sock.facts.place),
            faults: self.faults_since(before),
            contended: (key.contended)(),
        };
        if answer == Err(ENOTCONN) && sock.facts.snatched.load(SeqCst) {
            return Ok(Verdict::Void);
        }
        let verdict = judge(must, answer, conditions);
        self.ledger().count(match (verdict, must) {
            (Verdict::Void, _) => Global::Void,
            (_, Must::BeAlive) => Global::Alive,
            (_, Must::BeDead) => Global::Dead,
        });
        if verdict == Verdict::Broken {
            let got = format!(
                "{answer:?} for cookie {:#x} with {conditions:?}",
                key.cookie
            );
            return wrong(what, format!("{must:?}"), got);
        }
        Ok(verdict)
    }

    fn must_be_alive(
        &self,
        what: &str,
        sock: &Sock,
        key: Key<'_>,
        seen: Seen,
        offset: u64,
    ) -> Result<Verdict, Wrong> {
        let before = self.before(sock);
        let contended = &|| key.seen() != seen;
        self.ask(
            what,
            sock,
            Asked {
                cookie: seen.cookie,
                offset,
                contended,
            },
            Must::BeAlive,
            before,
        )
    }

    /// For who ended the key, at once.
    pub fn must_be_dead(
        &self,
        what: &str,
        sock: &Sock,
        cookie: u64,
        before: Before,
    ) -> Result<Verdict, Wrong> {
        self.ask(
            what,
            sock,
            Asked {
                cookie,
                offset: 0,
                contended: &|| false,
            },
            Must::BeDead,
            before,
        )
    }

    pub fn empty_key(&self, from: u64, state: State) -> Option<Key<'_>> {
        (0..KEYS)
            .map(|n| self.ledger().key(self.worker, from.wrapping_add(n)))
            .find(|key| key.turn(State::Empty, state))
    }

    pub fn get(&self, sock: &Arc<Sock>, get: Get) -> Outcome {
        let flaw = match (get.memory, get.place) {
            (Memory::Nothing, _) => Flaw::NoBytes,
            (Memory::TooLong, _) => Flaw::TooLong,
            (_, Place::BadAddress) => Flaw::BadCookie,
            (Memory::Hostile, _) => Flaw::MayFault,
            _ => Flaw::None,
        };
        let bytes = match get.memory {
            Memory::Nothing => 0,
            Memory::TooLong => MAX_BYTES + 2 * rdsmr::PAGE,
            _ => get.bytes,
        };
        let nameless =
            get.place == Place::Nowhere && sock.facts.nameless.fetch_add(1, SeqCst) < NAMELESS;
        let key = match get.place {
            Place::BadAddress => None,
            Place::Nowhere if nameless => None,
            _ => match self.empty_key(get.offset, State::Registering) {
                Some(key) => Some(key),
                None => return Ok(Done::No),
            },
        };
        let (map, offset) = match get.memory {
            Memory::Hostile => (&self.hostile, u64::MAX),
            _ => (&self.site.arenas[self.worker as usize], get.offset),
        };
        if let Some(key) = key {
            key.describe(sock.facts.place, sock.facts.id, offset, bytes, get.write);
            if sock.facts.passed.load(SeqCst) {
                key.pass();
            }
            // From now on whoever takes the socket away finds the key.
            if sock.facts.lost.load(SeqCst) {
                key.forget();
                return Ok(Done::No);
            }
        }
        let before = self.before(sock);
        let surely_unplugged = self.ledger().surely_unplugged(sock.facts.place);
        let args = GetMrArgs {
            addr: map.at(get.offset),
            bytes,
            cookie_addr: match get.place {
                Place::BadAddress => 8,
                _ => key.map_or(0, |key| key.cookie_addr()),
            },
            flags: if get.write { RDS_RDMA_READWRITE } else { 0 },
        };
        self.ledger().count(Global::Calls);
        let result = errno(
            self.fail
                .with(get.no_memory, || call(&sock.socket, args, get.for_dest)),
        );
        let now = Situation {
            surely_unplugged,
            no_memory: get.no_memory,
            ..self.situation(sock, before)
        };
        let outcome = self.right("GET_MR", &model::get_mr(flaw, now), result);
        let Some(key) = key else { return outcome };
        if !matches!(outcome, Ok(Done::Yes)) {
            key.forget();
            return outcome;
        }
        let Some(seen) = key.turned(State::Registering, State::Live) else {
            // Its socket closes with us, or has.
            key.forget();
            return Ok(Done::Yes);
        };
        if get.verify {
            self.must_be_alive("a key after GET_MR", sock, key, seen, bytes - 1)?;
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
            self.must_be_dead("a key after FREE_MR", &sock, cookie, before)?;
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

    /// A live key of another worker, on the device of `sock`.
    fn foreign(&self, sock: &Sock, worker: u64, from: u64) -> Option<(Key<'_>, Seen)> {
        if worker == self.worker || !sock.facts.bound {
            return None;
        }
        let keys = (0..KEYS).map(|n| self.ledger().key(worker, from.wrapping_add(n)));
        let mut seen = keys.map(|key| (key, key.seen()));
        seen.find(|(_, seen)| seen.state() == State::Live && seen.place == sock.facts.place)
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

    pub fn probe_foreign(&self, sock: &Sock, worker: u64, from: u64) -> Outcome {
        let Some((key, seen)) = self.foreign(sock, worker, from) else {
            return Ok(Done::No);
        };
        let dying = self.ledger().of(worker, Of::Dying);
        let contended = &|| key.seen() != seen || dying.load(SeqCst) != 0;
        let asked = Asked {
            cookie: seen.cookie,
            offset: 0,
            contended,
        };
        self.ask(
            "a key of another worker",
            sock,
            asked,
            Must::BeAlive,
            self.before(sock),
        )?;
        Ok(Done::Yes)
    }

    pub fn probe_own(&self, from: u64) -> Outcome {
        let keys = (0..KEYS).map(|n| self.ledger().key(self.worker, from.wrapping_add(n)));
        let mut live = keys
            .map(|key| (key, key.seen()))
            .filter(|(_, seen)| seen.state() == State::Live);
        let Some((key, seen)) = live.next() else {
            return Ok(Done::No);
        };
        let Some(sock) = self.sock_of(key) else {
            return Ok(Done::No);
        };
        self.must_be_alive("a key that nobody has ended", &sock, key, seen, 0)?;
        Ok(Done::Yes)
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
                Must::BeDead,
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

/// A question to the HCA.
struct Asked<'a> {
    cookie: u64,
    offset: u64,
    /// Asked after the answer.
    contended: &'a dyn Fn() -> bool,
}

fn call(socket: &Socket, args: GetMrArgs, for_dest: bool) -> std::io::Result<()> {
    if !for_dest {
        return socket.get_mr_args(&args);
    }
    let mut dest = [0; 128];
    let name = encode(crate::socks::address(crate::plan::Device::Peer));
    dest[..name.len()].copy_from_slice(&name);
    let args = GetMrForDestArgs { dest, mr: args };
    socket.setsockopt(SOL_RDS, RDS_GET_MR_FOR_DEST, args.as_bytes())
}
