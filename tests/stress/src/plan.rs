// SPDX-License-Identifier: GPL-2.0
//! What is done, in which order: follows from the seed alone. What comes of it
//! depends on the scheduling, too.

use rdsmr::abi::MAX_BYTES;
use rdsmr::rng::Rng;

/// Places for sockets in a worker; all of its threads use all of them.
pub const SOCKETS: u64 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Stays where it is.
    Here = 0,
    /// Is unplugged now and then.
    Peer = 1,
}

/// What to register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Never disturbed; the supervisor sees it, too.
    Arena,
    /// The thread's own, which it unmaps and protects as it likes.
    Hostile,
    Nothing,
    TooLong,
}

/// Where the cookie goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Ledger,
    Nowhere,
    BadAddress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get {
    pub socket: u64,
    pub offset: u64,
    pub bytes: u64,
    pub memory: Memory,
    pub place: Place,
    pub write: bool,
    pub for_dest: bool,
    /// Every allocation of this thread may fail during the call.
    pub no_memory: bool,
    pub verify: bool,
}

/// What a forked child does with the socket that it inherits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kin {
    Exits,
    Closes,
    /// It frees a key of its parent.
    Frees,
    /// It registers its own memory, and exits.
    Registers,
    /// It registers its own memory, and execs a program that has the socket.
    RegistersAndExecs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturb {
    Unmap,
    Map,
    Protect,
    Unprotect,
    Discard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[rustfmt::skip]
pub enum Action {
    Open { socket: u64, device: Device, no_memory: bool },
    OpenUnbound { socket: u64 },
    BindAgain { socket: u64 },
    Connect { socket: u64, peer: Device },
    Names { socket: u64 },
    Get(Get),
    Free { key: u64, verify: bool, no_memory: bool },
    FreeTwice { key: u64 },
    FreeNonsense { socket: u64, cookie: u64 },
    FreeForeign { socket: u64, worker: u64, key: u64 },
    Probe { key: u64 },
    ProbeForeign { socket: u64, worker: u64, key: u64 },
    SetQuota { socket: u64, keys: u64, pages: u64 },
    GetQuota { socket: u64 },
    Revoked { socket: u64 },
    Dup { socket: u64 },
    Close { socket: u64, verify: bool, no_memory: bool },
    /// Close under the hands of the threads that are using it.
    Snatch { socket: u64 },
    /// A key that is freed while a peer writes to it.
    Hammer { socket: u64 },
    Fork { socket: u64, key: u64, kin: Kin },
    Pass { socket: u64, worker: u64 },
    Receive { socket: u64 },
    Disturb { what: Disturb, page: u64, pages: u64 },
}

/// The kinds of actions, by number.
#[rustfmt::skip]
pub const KINDS: &[&str] = &[
    "Open", "OpenUnbound", "BindAgain", "Connect", "Names", "Get", "Free", "FreeTwice", "FreeNonsense",
    "FreeForeign", "Probe", "ProbeForeign", "SetQuota", "GetQuota", "Revoked", "Dup", "Close", "Snatch", "Hammer",
    "Fork", "Pass", "Receive", "Disturb",
];

impl Action {
    /// The number of its kind, for counting.
    pub fn number(&self) -> u64 {
        let text = format!("{self:?}");
        let kind = text.split([' ', '(']).next().unwrap_or_default();
        KINDS
            .iter()
            .position(|name| *name == kind)
            .unwrap_or(KINDS.len()) as u64
    }
}

/// The actions of one thread of one life of one worker. Endless.
pub struct Plan {
    rng: Rng,
    workers: u64,
    opened: u64,
}

impl Plan {
    pub fn new(seed: u64, workers: u64, worker: u64, life: u64, thread: u64) -> Self {
        Plan {
            rng: Rng::stream(seed, &[1, worker, life, thread]),
            workers,
            opened: 0,
        }
    }

    fn device(&mut self) -> Device {
        self.rng.pick(&[Device::Here, Device::Here, Device::Peer])
    }

    fn get(&mut self) -> Get {
        let rng = &mut self.rng;
        let bytes = match rng.below(8) {
            0 => 1,
            1 => 4096,
            2..=4 => 1 + rng.below(3 * 4096),
            5 | 6 => 1 + rng.below(MAX_BYTES / 4),
            _ => MAX_BYTES,
        };
        Get {
            socket: rng.below(SOCKETS),
            offset: rng.pick(&[0, 1, 4095, 8192]) + 4096 * rng.below(200),
            bytes,
            memory: match rng.below(32) {
                0 => Memory::Nothing,
                1 => Memory::TooLong,
                2..=8 => Memory::Hostile,
                _ => Memory::Arena,
            },
            place: match rng.below(24) {
                0 => Place::Nowhere,
                1 => Place::BadAddress,
                _ => Place::Ledger,
            },
            write: rng.one_in(2),
            for_dest: rng.one_in(6),
            no_memory: rng.one_in(12),
            verify: rng.one_in(4),
        }
    }

    #[rustfmt::skip]
    fn action(&mut self) -> Action {
        let socket = self.rng.below(SOCKETS);
        let worker = self.rng.below(self.workers);
        let key = self.rng.next();
        let no_memory = self.rng.one_in(10);
        let verify = self.rng.one_in(3);
        match self.rng.below(100) {
            0..=5 => Action::Open { socket, device: self.device(), no_memory },
            6 => Action::OpenUnbound { socket },
            7 => Action::BindAgain { socket },
            8 => Action::Connect { socket, peer: self.device() },
            9 => Action::Names { socket },
            10..=49 => Action::Get(self.get()),
            50..=64 => Action::Free { key, verify, no_memory },
            65 | 66 => Action::FreeTwice { key },
            67 => Action::FreeNonsense { socket, cookie: key },
            68 | 69 => Action::FreeForeign { socket, worker, key },
            70..=74 => Action::Probe { key },
            75 | 76 => Action::ProbeForeign { socket, worker, key },
            77 => self.quota(socket),
            78 => Action::GetQuota { socket },
            79 => Action::Revoked { socket },
            80 | 81 => Action::Dup { socket },
            82..=85 => Action::Close { socket, verify, no_memory },
            86 => Action::Snatch { socket },
            87 | 88 => Action::Fork { socket, key, kin: self.kin() },
            89 | 90 => Action::Pass { socket, worker },
            91 | 92 => Action::Receive { socket },
            93 => Action::Hammer { socket },
            _ => self.disturb(),
        }
    }

    fn kin(&mut self) -> Kin {
        use Kin::*;
        self.rng
            .pick(&[Exits, Closes, Frees, Registers, RegistersAndExecs])
    }

    fn quota(&mut self, socket: u64) -> Action {
        let keys = self.rng.pick(&[1, 4, 40, 0]);
        let pages = self.rng.pick(&[1, 300, 5000, 0]);
        Action::SetQuota {
            socket,
            keys,
            pages,
        }
    }

    fn disturb(&mut self) -> Action {
        use Disturb::*;
        let what = self
            .rng
            .pick(&[Unmap, Map, Map, Protect, Unprotect, Unprotect, Discard]);
        let page = self.rng.below(400);
        Action::Disturb {
            what,
            page,
            pages: 1 + self.rng.below(100),
        }
    }
}

impl Iterator for Plan {
    type Item = Action;

    /// Sockets first: without one there is little to do.
    fn next(&mut self) -> Option<Action> {
        if self.opened < 2 {
            self.opened += 1;
            let (socket, device) = (self.rng.below(SOCKETS), self.device());
            return Some(Action::Open {
                socket,
                device,
                no_memory: false,
            });
        }
        Some(self.action())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn actions(seed: u64, worker: u64, life: u64, thread: u64) -> Vec<Action> {
        Plan::new(seed, 4, worker, life, thread)
            .take(2000)
            .collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_plan() {
        assert_eq!(actions(7, 1, 2, 0), actions(7, 1, 2, 0));
    }

    #[test]
    fn seed_worker_life_and_thread_each_matter() {
        let all = [
            (7, 1, 2, 0),
            (8, 1, 2, 0),
            (7, 2, 2, 0),
            (7, 1, 3, 0),
            (7, 1, 2, 1),
        ];
        let plans = all.map(|(seed, worker, life, thread)| actions(seed, worker, life, thread));
        for (n, plan) in plans.iter().enumerate() {
            assert!(plans[..n].iter().all(|other| other != plan));
        }
    }

    #[test]
    fn every_kind_of_action_comes_soon() {
        let kinds: HashSet<_> = actions(1, 0, 0, 0).iter().map(Action::number).collect();
        assert_eq!(kinds, (0..KINDS.len() as u64).collect());
    }
}
