// SPDX-License-Identifier: GPL-2.0

//! MRs allocated ahead of need, since allocating one can take longer than all
//! the rest of GET_MR.

use super::params;
use crate::kern::ib::Mr;
use crate::kern::ib::Pd;
use crate::kern::random::random_u32;
use crate::policy::key::KeyBytes;
use crate::policy::sizes::Classes;
use crate::policy::sizes::MAX_CLASSES;
use kernel::alloc::KVec;
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::sync::SpinLock;

/// An idle MR.
pub(crate) struct PoolMr {
    /// The MR itself.
    pub(crate) mr: Mr,
    /// The key byte of its next life.
    pub(crate) byte: u8,
    /// What it needs to come back.
    pub(crate) rest: Rest,
}

/// The part of a [`PoolMr`] that its key keeps.
pub(crate) struct Rest {
    keys: KeyBytes,
    class: usize,
}

impl PoolMr {
    /// An MR that is new, or that comes back from a key with its invalidation
    /// proven. Gives it back if it has used all its key bytes.
    pub(crate) fn new(mr: Mr, mut rest: Rest) -> core::result::Result<Self, Mr> {
        match rest.keys.next() {
            Some(byte) => Ok(Self { mr, byte, rest }),
            None => Err(mr),
        }
    }
}

/// Idle MRs of one device, by size class.
#[pin_data]
pub(crate) struct Pool {
    classes: Classes,
    target: usize,
    #[pin]
    idle: SpinLock<[KVec<PoolMr>; MAX_CLASSES]>,
}

impl Pool {
    /// An empty pool; `classes` as requested and as the device can.
    pub(crate) fn new(classes: Classes) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            classes,
            target: params::pool_size(),
            idle <- new_spinlock!(Self::shelves(params::pool_size())?, "Pool::idle"),
        }? Error)
    }

    fn shelves(target: usize) -> Result<[KVec<PoolMr>; MAX_CLASSES]> {
        let mut shelves = [const { KVec::new() }; MAX_CLASSES];
        for shelf in &mut shelves {
            // Twice the target: MRs also come back from keys.
            shelf.reserve(target.saturating_mul(2), GFP_KERNEL)?;
        }
        Ok(shelves)
    }

    /// An MR for `pages` pages: an idle one, or a new one.
    pub(crate) fn take(&self, pd: &Arc<Pd>, pages: u32) -> Result<PoolMr> {
        let class = self.classes.class_for(pages).ok_or(EMSGSIZE)?;
        let idle = self.idle.lock().get_mut(class).and_then(KVec::pop);
        match idle {
            Some(mr) => Ok(mr),
            None => self.make(pd, class),
        }
    }

    fn make(&self, pd: &Arc<Pd>, class: usize) -> Result<PoolMr> {
        let pages = self.classes.pages_of(class).ok_or(EMSGSIZE)?;
        let keys = KeyBytes::new(random_u32());
        PoolMr::new(Mr::alloc(pd, pages)?, Rest { keys, class }).map_err(|_| EIO)
    }

    /// Put an MR back. Gives it back if there is no room: the caller should let
    /// it go where a deregistration may take long.
    pub(crate) fn put(&self, mr: PoolMr) -> core::result::Result<(), Mr> {
        let mut idle = self.idle.lock();
        match idle.get_mut(mr.rest.class) {
            Some(shelf) => shelf.push_within_capacity(mr).map_err(|error| error.0.mr),
            None => Err(mr.mr),
        }
    }

    /// Whether a class runs low.
    pub(crate) fn is_low(&self) -> bool {
        let idle = self.idle.lock();
        idle.iter()
            .take(self.classes.len())
            .any(|shelf| shelf.len() < self.target.div_ceil(2))
    }

    /// Allocate one MR for the first class that lacks some. False if none does
    /// or it failed.
    pub(crate) fn refill_one(&self, pd: &Arc<Pd>) -> bool {
        let lacking = {
            let idle = self.idle.lock();
            idle.iter()
                .take(self.classes.len())
                .position(|shelf| shelf.len() < self.target)
        };
        let Some(Ok(mr)) = lacking.map(|class| self.make(pd, class)) else {
            return false;
        };
        self.put(mr).is_ok()
    }

    /// Let all idle MRs go. Sleeps for as long as the driver takes.
    pub(crate) fn drain(&self) {
        for class in 0..MAX_CLASSES {
            loop {
                // Not under the lock: dropping deregisters.
                let mr = self.idle.lock().get_mut(class).and_then(KVec::pop);
                if mr.is_none() {
                    break;
                }
            }
        }
    }
}
