// SPDX-License-Identifier: GPL-2.0
//! What everybody believes, in memory that all processes share: it survives the
//! kill of who wrote it. No locks, since whoever held one may be killed.

use crate::plan::Device;
use rdsmr::{Mapping, PAGE};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

pub const THREADS: u64 = 3;
/// Keys of one worker at a time.
pub const KEYS: u64 = 64;
/// Results that are kept of each thread.
pub const RECENT: u64 = 16;
pub const KINDS: u64 = 32;

const HEADER: u64 = 64;
const KEY: u64 = 8;
const THREAD: u64 = 2 + RECENT;
const WORKER: u64 = 8 + KEYS * KEY + THREADS * THREAD;
const NOTE: u64 = 4 * PAGE;

/// Words of the header.
#[derive(Clone, Copy)]
pub enum Global {
    /// Everybody finishes.
    Stop,
    /// Odd while verbs are made to fail.
    Faults,
    /// Incarnation of the peer device; odd while it may be away.
    Peer,
    /// Changes of limits of groups, and of who is in which.
    Limits,
    /// GET_MRs that have begun.
    Calls,
    /// Somebody writes, or has written, the note.
    Noted,
    NoteReady,
    Alive,
    Dead,
    Void,
    Hammered,
    HammeredFree,
    /// Keys whose owner was killed, and that were found dead.
    DeadByKill,
}

/// Words of a worker.
#[derive(Clone, Copy)]
pub enum Of {
    Life,
    /// It is being killed.
    Dying,
    /// Children, begun and gone.
    Forks,
    Reaped,
    /// Its group has a limit, or is about to change.
    Limited,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum State {
    Empty = 0,
    /// GET_MR runs; the kernel itself writes the cookie into the entry.
    Registering = 1,
    Live = 2,
    /// Somebody is about to end it, and nobody else may.
    Ending = 3,
    /// There was no proof of its end.
    Doubtful = 4,
    /// A child's: it goes with the child.
    Kins = 5,
}

/// Words of a key.
#[derive(Clone, Copy)]
enum Field {
    State,
    Cookie,
    /// Device and its incarnation.
    Where,
    Offset,
    Bytes,
    /// Which socket of the worker.
    Socket,
    Write,
}

pub struct Ledger {
    words: Mapping,
    note: Mapping,
}

/// One entry for a key.
#[derive(Clone, Copy)]
pub struct Key<'a> {
    ledger: &'a Ledger,
    base: u64,
}

/// An entry at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    raw: u64,
    pub cookie: u64,
    pub place: u64,
}

impl Seen {
    pub fn state(&self) -> State {
        state_of(self.raw)
    }
}

fn state_of(raw: u64) -> State {
    use State::*;
    [Empty, Registering, Live, Ending, Doubtful, Kins][(raw & 7) as usize]
}

fn next(raw: u64, to: State) -> u64 {
    (((raw >> 3) + 1) << 3) | to as u64
}

/// Where a key lives: the device, and which incarnation of it.
pub fn place(device: Device, incarnation: u64) -> u64 {
    (incarnation << 1) | device as u64
}

pub fn device_at(place: u64) -> Device {
    if place & 1 == 0 {
        Device::Here
    } else {
        Device::Peer
    }
}

impl Ledger {
    pub fn new(workers: u64) -> io::Result<Self> {
        let words = Mapping::shared((HEADER + workers * WORKER) * 8)?;
        Ok(Ledger {
            words,
            note: Mapping::shared(NOTE)?,
        })
    }

    fn word(&self, index: u64) -> &AtomicU64 {
        &self.words.words()[index as usize]
    }

    pub fn global(&self, what: Global) -> &AtomicU64 {
        self.word(what as u64)
    }

    pub fn get(&self, what: Global) -> u64 {
        self.global(what).load(SeqCst)
    }

    pub fn count(&self, what: Global) -> u64 {
        self.global(what).fetch_add(1, SeqCst)
    }

    /// Actions of a kind that went through.
    pub fn done(&self, kind: u64) -> &AtomicU64 {
        self.word(HEADER - KINDS + kind)
    }

    fn worker(worker: u64) -> u64 {
        HEADER + worker * WORKER
    }

    pub fn of(&self, worker: u64, what: Of) -> &AtomicU64 {
        self.word(Self::worker(worker) + what as u64)
    }

    pub fn key(&self, worker: u64, index: u64) -> Key<'_> {
        Key {
            ledger: self,
            base: Self::worker(worker) + 8 + (index % KEYS) * KEY,
        }
    }

    pub fn keys(&self, worker: u64) -> impl Iterator<Item = Key<'_>> + Clone {
        (0..KEYS).map(move |index| self.key(worker, index))
    }

    fn thread(worker: u64, thread: u64) -> u64 {
        Self::worker(worker) + 8 + KEYS * KEY + thread * THREAD
    }

    /// How many actions of this life a thread has begun.
    pub fn begun(&self, worker: u64, thread: u64) -> &AtomicU64 {
        self.word(Self::thread(worker, thread))
    }

    /// What came of its `n`-th action: 0 not yet, 1 success, else 2 + errno.
    pub fn result(&self, worker: u64, thread: u64, n: u64) -> &AtomicU64 {
        self.word(Self::thread(worker, thread) + 2 + n % RECENT)
    }

    /// Actions of all threads of all lives.
    pub fn total(&self, worker: u64, thread: u64) -> &AtomicU64 {
        self.word(Self::thread(worker, thread) + 1)
    }

    /// A new life of a worker begins with nothing.
    pub fn clear(&self, worker: u64) {
        self.keys(worker).for_each(|key| key.forget());
        for what in [Of::Dying, Of::Forks, Of::Reaped] {
            self.of(worker, what).store(0, SeqCst);
        }
        for thread in 0..THREADS {
            self.begun(worker, thread).store(0, SeqCst);
        }
    }

    pub fn stopping(&self) -> bool {
        self.get(Global::Stop) != 0
    }

    /// Something is wrong. The first who says so is heard, and all stop.
    pub fn fail(&self, text: &str) {
        if self.count(Global::Noted) == 0 {
            let text = &text.as_bytes()[..text.len().min(NOTE as usize - 1)];
            self.note
                .bytes()
                .iter()
                .zip(text)
                .for_each(|(slot, byte)| slot.store(*byte, SeqCst));
            self.count(Global::NoteReady);
        }
        self.count(Global::Stop);
    }

    pub fn failure(&self) -> Option<String> {
        if self.get(Global::NoteReady) == 0 {
            return None;
        }
        let bytes = self.note.bytes().iter().map(|byte| byte.load(SeqCst));
        let text: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    /// May the device at `place` have been unplugged by now?
    pub fn unplugged(&self, place: u64) -> bool {
        device_at(place) == Device::Peer && place >> 1 != self.get(Global::Peer)
    }

    /// Is it another device by now, for sure?
    pub fn surely_unplugged(&self, place: u64) -> bool {
        self.unplugged(place) && (place >> 1) % 2 == 0 && self.get(Global::Peer) >= (place >> 1) + 2
    }
}

impl Key<'_> {
    fn field(&self, field: Field) -> &AtomicU64 {
        self.ledger.word(self.base + field as u64)
    }

    pub fn seen(&self) -> Seen {
        Seen {
            raw: self.field(Field::State).load(SeqCst),
            cookie: self.field(Field::Cookie).load(SeqCst),
            place: self.field(Field::Where).load(SeqCst),
        }
    }

    /// From one state to another; for one of those who try. Each change has a
    /// number of its own, so that nobody takes a new key for the old one.
    pub fn turn(&self, from: State, to: State) -> bool {
        self.turned(from, to).is_some()
    }

    /// The same; what it is then.
    pub fn turned(&self, from: State, to: State) -> Option<Seen> {
        let word = self.field(Field::State);
        let raw = word.load(SeqCst);
        let next = next(raw, to);
        if state_of(raw) != from || word.compare_exchange(raw, next, SeqCst, SeqCst).is_err() {
            return None;
        }
        Some(Seen {
            raw: next,
            ..self.seen()
        })
    }

    pub fn set(&self, to: State) {
        let raw = self.field(Field::State).load(SeqCst);
        self.field(Field::State).store(next(raw, to), SeqCst);
    }

    pub fn forget(&self) {
        self.field(Field::Cookie).store(0, SeqCst);
        self.set(State::Empty);
    }

    /// To be filled by the kernel: the entry is the caller's by `turn`.
    pub fn describe(&self, place: u64, socket: u64, offset: u64, bytes: u64, write: bool) {
        self.field(Field::Cookie).store(0, SeqCst);
        self.field(Field::Where).store(place, SeqCst);
        self.field(Field::Socket).store(socket, SeqCst);
        self.field(Field::Offset).store(offset, SeqCst);
        self.field(Field::Bytes).store(bytes, SeqCst);
        self.field(Field::Write).store(write.into(), SeqCst);
    }

    pub fn cookie_addr(&self) -> u64 {
        self.ledger.words.at((self.base + Field::Cookie as u64) * 8)
    }

    pub fn cookie(&self) -> u64 {
        self.field(Field::Cookie).load(SeqCst)
    }

    pub fn place(&self) -> u64 {
        self.field(Field::Where).load(SeqCst)
    }

    pub fn socket(&self) -> u64 {
        self.field(Field::Socket).load(SeqCst)
    }

    /// In the arena, for writing: offset and length.
    pub fn writable(&self) -> Option<(u64, u64)> {
        let range = (
            self.field(Field::Offset).load(SeqCst),
            self.field(Field::Bytes).load(SeqCst),
        );
        (self.field(Field::Write).load(SeqCst) != 0 && range.0 != u64::MAX).then_some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_two_gets_the_key() {
        let ledger = Ledger::new(2).unwrap();
        let key = ledger.key(1, 5);
        assert!(key.turn(State::Empty, State::Registering));
        key.set(State::Live);
        let before = key.seen();
        assert!(key.turn(State::Live, State::Ending));
        assert!(!key.turn(State::Live, State::Ending));
        key.set(State::Live);
        assert_ne!(key.seen(), before);
        assert_eq!(key.seen().state(), State::Live);
    }

    #[test]
    fn entries_do_not_overlap() {
        let ledger = Ledger::new(2).unwrap();
        for worker in 0..2 {
            for index in 0..KEYS {
                ledger.key(worker, index).describe(1, 2, 3, 4, true);
            }
        }
        assert_eq!(ledger.get(Global::Stop), 0);
        for worker in 0..2 {
            assert_eq!(ledger.begun(worker, 0).load(SeqCst), 0);
            assert_eq!(ledger.of(worker, Of::Limited).load(SeqCst), 0);
            assert!(ledger
                .keys(worker)
                .all(|key| key.writable() == Some((3, 4))));
        }
    }

    #[test]
    fn a_device_that_came_back_is_another_one() {
        let ledger = Ledger::new(1).unwrap();
        let there = place(Device::Peer, 0);
        assert!(!ledger.unplugged(there) && !ledger.unplugged(place(Device::Here, 0)));
        ledger.count(Global::Peer);
        assert!(ledger.unplugged(there) && !ledger.surely_unplugged(there));
        ledger.count(Global::Peer);
        assert!(ledger.surely_unplugged(there));
        assert!(!ledger.unplugged(place(Device::Peer, 2)));
        assert!(!ledger.unplugged(place(Device::Here, 0)));
    }

    #[test]
    fn the_first_failure_is_heard() {
        let ledger = Ledger::new(1).unwrap();
        assert_eq!(ledger.failure(), None);
        ledger.fail("one");
        ledger.fail("two");
        assert_eq!(ledger.failure().as_deref(), Some("one"));
        assert!(ledger.stopping());
    }
}
