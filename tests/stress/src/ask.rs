// SPDX-License-Identifier: GPL-2.0
//! Questions to the HCA, and what the answers are held against.

use crate::ledger::{Global, Key, Of, Seen, State, KEYS};
use crate::model::{judge, Conditions, Must, Situation, Verdict};
use crate::socks::Sock;
use crate::worker::{errno, wrong, Done, Outcome, Thread, Wrong};
use rdsmr::errno::ENOTCONN;
use std::sync::atomic::Ordering::SeqCst;

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
    limits: u64,
    calls: u64,
    forks: u64,
}

/// A question to the HCA.
pub struct Asked<'a> {
    pub cookie: u64,
    pub offset: u64,
    /// Asked after the answer.
    pub contended: &'a dyn Fn() -> bool,
}

impl Thread<'_> {
    pub fn before(&self, sock: &Sock) -> Before {
        Before {
            faults: self.ledger().get(Global::Faults),
            limited: self.limited(sock),
            limits: self.ledger().get(Global::Limits),
            calls: self.ledger().get(Global::Calls),
            forks: self.ledger().of(self.worker, Of::Reaped).load(SeqCst),
        }
    }

    fn limited(&self, sock: &Sock) -> bool {
        // Who got it may set a quota, too.
        sock.facts.limited.load(SeqCst)
            || sock.facts.passed.load(SeqCst)
            || self.ledger().of(self.worker, Of::Limited).load(SeqCst) != 0
    }

    pub fn faults_since(&self, before: Before) -> bool {
        let now = self.ledger().get(Global::Faults);
        now % 2 == 1 || now != before.faults
    }

    /// All children that may have inherited a socket by now had gone before.
    pub fn childless_since(&self, before: Before) -> bool {
        self.ledger().of(self.worker, Of::Forks).load(SeqCst) == before.forks
    }

    pub fn situation(&self, sock: &Sock, before: Before) -> Situation {
        Situation {
            unplugged: self.ledger().unplugged(sock.facts.place),
            faults: self.faults_since(before),
            limited: before.limited
                || self.limited(sock)
                || before.limits != self.ledger().get(Global::Limits),
            snatched: sock.facts.snatched.load(SeqCst),
            unbound: !sock.facts.bound,
            ..Default::default()
        }
    }

    /// Ask the HCA through `sock`, and hold the answer against the model.
    pub fn ask(
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
            (_, Must::Alive) => Global::Alive,
            (_, Must::Dead | Must::ProvenDead) => Global::Dead,
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

    pub fn must_be_alive(
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
            Must::Alive,
            before,
        )
    }

    /// For who ended the key, at once.
    pub fn must_be_dead(
        &self,
        what: &str,
        sock: &Sock,
        cookie: u64,
        must: Must,
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
            must,
            before,
        )
    }

    /// A live key of another worker, on the device of `sock`.
    pub fn foreign(&self, sock: &Sock, worker: u64, from: u64) -> Option<(Key<'_>, Seen)> {
        if worker == self.worker || !sock.facts.bound {
            return None;
        }
        let keys = (0..KEYS).map(|n| self.ledger().key(worker, from.wrapping_add(n)));
        let mut seen = keys.map(|key| (key, key.seen()));
        seen.find(|(_, seen)| seen.state() == State::Live && seen.place == sock.facts.place)
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
            Must::Alive,
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
}
