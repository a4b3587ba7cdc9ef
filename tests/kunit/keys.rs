// SPDX-License-Identifier: GPL-2.0

//! Keys made by hand from the parts in `kern`: no socket, no account, no pool.

use crate::glue::device::Device;
use crate::kern::gate::Pass;
use crate::kern::ib::Access;
use crate::kern::ib::DeregOutcome;
use crate::kern::ib::DmaPages;
use crate::kern::ib::Invalidated;
use crate::kern::ib::Mr;
use crate::kern::ib::Pd;
use crate::kern::ib::RegOutcome;
use crate::kern::ib::Registration;
use crate::kern::ib::SendQueue;
use crate::kern::mm::PinnedPages;
use crate::peer::At;
use crate::policy::driver::dereg_is_proof;
use crate::support::soon_ns;
use crate::support::Memory;
use kernel::alloc::KVec;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::Arc;

/// What keys are made with: a device, its PD, and a queue of our own, so that
/// what tests do to it leaves the device's alone.
pub(crate) struct Verbs<'a> {
    device: &'a Device,
    pub(crate) pd: Arc<Pd>,
    pub(crate) queue: Arc<SendQueue>,
    // Dropped last: nothing of ours may outlive the device.
    _pass: Pass<'a>,
}

impl<'a> Verbs<'a> {
    pub(crate) fn new(device: &'a Device) -> Result<Self> {
        let pass = device.enter()?;
        let pd = device.pd(&pass)?;
        Ok(Self {
            device,
            queue: SendQueue::to_self(&pd)?,
            pd,
            _pass: pass,
        })
    }

    /// An idle MR of one page.
    pub(crate) fn mr(&self) -> Result<Mr> {
        Mr::alloc(&self.pd, 1)
    }

    /// Register page number `page` with `mr`.
    pub(crate) fn register(&self, mr: Mr, memory: &Memory, page: usize, byte: u8) -> Result<Key> {
        let addr = memory.at(page.checked_mul(PAGE_SIZE).ok_or(EINVAL)?);
        let pages = PinnedPages::pin(usize::try_from(addr)?, 1, true)?;
        let dma = DmaPages::map(self.device.ib(), pages, 0, u32::try_from(PAGE_SIZE)?)?;
        let mapped = mr.map(dma, byte)?;
        let driver_id = self.device.driver_id();
        let base = mapped.base();
        let key = |registration| Key {
            registration: Some(registration),
            base,
            driver_id,
        };
        match mapped.register(&self.queue, Access::ReadWrite, soon_ns()) {
            RegOutcome::Live(registration) => Ok(key(registration)),
            RegOutcome::Failed(registration, _) => {
                // Ends it.
                drop(key(registration));
                Err(EIO)
            }
            RegOutcome::Silent(registration) => {
                registration.leak();
                Err(EIO)
            }
            RegOutcome::NotPosted => Err(EIO),
        }
    }

    /// One key for each page.
    pub(crate) fn keys(&self, memory: &Memory, pages: usize) -> Result<KVec<Key>> {
        let mut keys = KVec::with_capacity(pages, GFP_KERNEL)?;
        for page in 0..pages {
            keys.push(self.register(self.mr()?, memory, page, 7)?, GFP_KERNEL)?;
        }
        Ok(keys)
    }

    /// Invalidate one key. `None` without the HCA's word that it did.
    pub(crate) fn invalidate(&self, rkey: u32) -> Option<Invalidated> {
        let mut proof = None;
        self.queue
            .invalidate(&[rkey], soon_ns(), |_, found| proof = found);
        proof
    }
}

/// A key. Dropping it deregisters.
pub(crate) struct Key {
    registration: Option<Registration>,
    base: u32,
    driver_id: u32,
}

impl Key {
    pub(crate) fn rkey(&self) -> u32 {
        self.registration.as_ref().map_or(0, Registration::rkey)
    }

    /// The first byte, for a peer.
    pub(crate) fn at(&self) -> At {
        At {
            rkey: self.rkey(),
            addr: self.base.into(),
        }
    }

    /// End it by `proof`; false if that proof is not about this key.
    pub(crate) fn quiesce(&mut self, proof: Invalidated) -> Result<Option<Mr>> {
        let registration = self.registration.take().ok_or(EINVAL)?;
        match registration.quiesce_by_invalidation(proof) {
            Ok((mr, quiesced)) => {
                drop(quiesced);
                Ok(Some(mr))
            }
            Err(registration) => {
                self.registration = Some(registration);
                Ok(None)
            }
        }
    }

    /// End it by deregistering. False if that was no proof.
    pub(crate) fn deregister(&mut self) -> bool {
        let Some(registration) = self.registration.take() else {
            return false;
        };
        match registration.quiesce_by_dereg(|ms| dereg_is_proof(self.driver_id, ms)) {
            DeregOutcome::Proven(quiesced) => {
                drop(quiesced);
                true
            }
            DeregOutcome::Refused(registration, _) => {
                self.registration = Some(registration);
                false
            }
            DeregOutcome::Unproven => false,
        }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.deregister();
        if let Some(registration) = self.registration.take() {
            registration.leak();
        }
    }
}

/// The answers to an invalidation of many, in order.
pub(crate) type Proofs = KVec<Option<Invalidated>>;

/// Invalidate `rkeys` with one call; every one must be answered once.
pub(crate) fn invalidate(queue: &SendQueue, rkeys: &[u32]) -> Result<Proofs> {
    let mut proofs = KVec::with_capacity(rkeys.len(), GFP_KERNEL)?;
    let mut in_order = true;
    queue.invalidate(rkeys, soon_ns(), |n, proof| {
        in_order &= n == proofs.len() && proofs.push_within_capacity(proof).is_ok();
    });
    check!(in_order);
    check_eq!(proofs.len(), rkeys.len());
    Ok(proofs)
}

/// End each key by its proof, or without one by deregistering it.
pub(crate) fn end_all(keys: KVec<Key>, proofs: Proofs) -> Result {
    for (mut key, proof) in keys.into_iter().zip(proofs) {
        match proof {
            Some(proof) => {
                check!(key.quiesce(proof)?.is_some());
            }
            None => {
                check!(key.deregister());
            }
        }
    }
    Ok(())
}

pub(crate) fn rkeys_of(keys: &[Key]) -> Result<KVec<u32>> {
    let mut rkeys = KVec::with_capacity(keys.len(), GFP_KERNEL)?;
    for key in keys {
        rkeys.push(key.rkey(), GFP_KERNEL)?;
    }
    Ok(rkeys)
}
