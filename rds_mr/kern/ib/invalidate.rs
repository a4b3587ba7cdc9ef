// SPDX-License-Identifier: GPL-2.0

//! Invalidating keys, many at a time.

use super::Outcome;
use super::SendQueue;
use super::Wr;
use super::CHAIN;
use kernel::prelude::*;

/// The HCA has executed a LOCAL_INV of this key: no new access passes.
///
/// Whether accesses that were already running have stopped depends on the
/// driver; that is for the caller to judge before it lets go of memory.
pub(crate) struct Invalidated {
    rkey: u32,
    pd: usize,
}

impl Invalidated {
    /// Whether this is about `rkey` of the PD at address `pd`.
    pub(super) fn names(&self, rkey: u32, pd: usize) -> bool {
        self.rkey == rkey && self.pd == pd
    }
}

impl SendQueue {
    /// Invalidate up to [`CHAIN`] keys of this queue's PD with one chain, and
    /// wait until all have reported or the deadline has passed.
    ///
    /// `each(n, proof)` is called once for every key: with a proof if the
    /// LOCAL_INV of that very key succeeded, with `None` if it failed, was
    /// flushed, was not posted or has not reported. Allocates nothing.
    pub(crate) fn invalidate(
        &self,
        rkeys: &[u32],
        deadline_ns: u64,
        mut each: impl FnMut(usize, Option<Invalidated>),
    ) {
        let mut wrs = [Wr::LocalInv { rkey: 0 }; CHAIN];
        for (wr, &rkey) in wrs.iter_mut().zip(rkeys) {
            *wr = Wr::LocalInv { rkey };
        }
        let batch = wrs.get(..rkeys.len()).ok_or(EINVAL).and_then(|wrs| {
            // SAFETY: A LOCAL_INV refers to nothing in memory that has to live.
            unsafe { self.post(wrs, deadline_ns) }
        });
        if let Ok(batch) = &batch {
            batch.wait(deadline_ns);
        }
        for (n, &rkey) in rkeys.iter().enumerate() {
            let success = batch
                .as_ref()
                .is_ok_and(|batch| batch.outcome(n) == Outcome::Success);
            each(
                n,
                success.then(|| Invalidated {
                    rkey,
                    pd: self.pd().as_raw() as usize,
                }),
            );
        }
    }
}
