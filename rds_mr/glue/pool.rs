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

/// An idle MR and the key bytes that it has not used yet.
pub(crate) struct PoolMr {
    pub(crate) mr: Mr,
    pub(crate) keys: KeyBytes,
    class: usize,
}

impl PoolMr {
    /// An MR that comes back from a key, its invalidation proven.
    pub(crate) fn returned(mr: Mr, keys: KeyBytes, class: usize) -> Self {
        Self { mr, keys, class }
    }

    /// Its size class, for [`Self::returned`].
    pub(crate) fn class(&self) -> usize {
        self.class
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
        Ok(PoolMr {
            mr: Mr::alloc(pd, pages)?,
            keys: KeyBytes::new(random_u32()),
            class,
        })
    }

    /// Put an MR back. `Some` if there is no room: the caller should let it go
    /// where a deregistration may take long.
    pub(crate) fn put(&self, mr: PoolMr) -> Option<PoolMr> {
        let mut idle = self.idle.lock();
        let Some(shelf) = idle.get_mut(mr.class) else {
            return Some(mr);
        };
        if shelf.len() >= shelf.capacity() {
            return Some(mr);
        }
        shelf.push_within_capacity(mr).err().map(|error| error.0)
    }

    /// Whether a class runs low.
    pub(crate) fn is_low(&self) -> bool {
        let idle = self.idle.lock();
        idle.iter()
            .take(self.classes.len())
            .any(|shelf| shelf.len() < self.target / 2)
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
        self.put(mr).is_none()
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
