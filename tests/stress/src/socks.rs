// SPDX-License-Identifier: GPL-2.0
//! The sockets of a worker, and what it knows of them.

use crate::ledger::{place, Global, Ledger};
use crate::plan::{Device, SOCKETS};
use rdsmr::Socket;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What holds for all descriptors of one socket in this process.
#[derive(Debug)]
pub struct Facts {
    /// Names the socket within the worker.
    pub id: u64,
    /// Device and incarnation, see [`place`].
    pub place: u64,
    pub bound: bool,
    /// It is being closed: its keys end.
    pub lost: AtomicBool,
    /// An unbound socket has taken its descriptor.
    pub snatched: AtomicBool,
    /// Another process may have it.
    pub passed: AtomicBool,
    pub limited: AtomicBool,
    /// Keys whose cookie nobody asked for.
    pub nameless: AtomicU64,
}

#[derive(Debug)]
pub struct Sock {
    pub socket: Socket,
    pub facts: Arc<Facts>,
}

#[derive(Default)]
pub struct Socks {
    places: Mutex<Vec<Option<Arc<Sock>>>>,
    next: AtomicU64,
}

/// An incarnation that no device ever has.
const NEVER: u64 = (u64::MAX >> 1) - 1;

impl Socks {
    fn places(&self) -> MutexGuard<'_, Vec<Option<Arc<Sock>>>> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.resize(SOCKETS as usize, None);
        places
    }

    pub fn get(&self, at: u64) -> Option<Arc<Sock>> {
        self.places()[at as usize].clone()
    }

    /// Returns what was there.
    pub fn put(&self, at: u64, sock: Option<Arc<Sock>>) -> Option<Arc<Sock>> {
        std::mem::replace(&mut self.places()[at as usize], sock)
    }

    /// Put a second descriptor where the first one is, if it is there still.
    pub fn exchange(&self, at: u64, old: &Arc<Sock>, new: Sock) {
        let mut places = self.places();
        let there = &mut places[at as usize];
        if there.as_ref().is_some_and(|sock| Arc::ptr_eq(sock, old)) {
            *there = Some(Arc::new(new));
        }
    }

    pub fn find(&self, wanted: impl Fn(&Sock) -> bool) -> Option<Arc<Sock>> {
        self.places()
            .iter()
            .flatten()
            .find(|sock| wanted(sock))
            .cloned()
    }

    pub fn new_sock(&self, socket: Socket, place: u64, bound: bool, passed: bool) -> Sock {
        let facts = Facts {
            id: self.next.fetch_add(1, SeqCst),
            place,
            bound,
            lost: false.into(),
            snatched: false.into(),
            passed: passed.into(),
            // Whoever it comes from may have set a quota.
            limited: passed.into(),
            nameless: 0.into(),
        };
        Sock {
            socket,
            facts: Arc::new(facts),
        }
    }
}

/// The incarnation of a device now; it may be going away or coming back.
pub fn place_now(ledger: &Ledger, device: Device) -> u64 {
    match device {
        Device::Here => place(device, 0),
        Device::Peer => place(device, ledger.get(Global::Peer)),
    }
}

/// What to believe of a socket that was bound between two looks.
pub fn place_between(before: u64, after: u64, device: Device) -> u64 {
    let stable = before == after && (before >> 1) % 2 == 0;
    if stable {
        before
    } else {
        place(device, NEVER)
    }
}

pub fn address(device: Device) -> SocketAddr {
    let (name, default) = match device {
        Device::Here => ("RDS_MR_ADDR", "10.77.0.1"),
        Device::Peer => ("RDS_MR_PEER_ADDR", "10.77.0.2"),
    };
    let text = std::env::var(name).unwrap_or_else(|_| default.to_string());
    let ip = text
        .parse()
        .unwrap_or_else(|_| panic!("{name} must be an IP address, not \"{text}\""));
    SocketAddr::new(ip, 0)
}
