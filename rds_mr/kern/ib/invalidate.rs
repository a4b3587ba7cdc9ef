// SPDX-License-Identifier: GPL-2.0

//! Invalidating keys, many at a time.

use super::Outcome;
use super::SendQueue;
use super::Wr;
use super::CHAIN;

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
    /// Invalidate up to [`CHAIN`] keys of this queue's PD, with one chain if there
    /// is room for it, and wait until all have reported or the deadline has passed.
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
        let mut first = 0;
        while let Some(rest) = rkeys.get(first..).filter(|rest| !rest.is_empty()) {
            let asked = self.invalidate_some(rest, deadline_ns, |n, proof| {
                each(first.saturating_add(n), proof);
            });
            if asked == 0 {
                (first..rkeys.len()).for_each(|n| each(n, None));
                return;
            }
            first = first.saturating_add(asked);
        }
    }

    /// As [`Self::invalidate`], for as many as there is room for. Returns for how
    /// many it has called `each`.
    fn invalidate_some(
        &self,
        rkeys: &[u32],
        deadline_ns: u64,
        mut each: impl FnMut(usize, Option<Invalidated>),
    ) -> usize {
        let mut wrs = [Wr::LocalInv { rkey: 0 }; CHAIN];
        for (wr, &rkey) in wrs.iter_mut().zip(rkeys) {
            *wr = Wr::LocalInv { rkey };
        }
        let Some(wrs) = wrs.get(..rkeys.len()) else {
            return 0;
        };
        // SAFETY: A LOCAL_INV refers to nothing in memory that has to live.
        let Ok(batch) = (unsafe { self.post(wrs, deadline_ns) }) else {
            return 0;
        };
        batch.wait(deadline_ns);
        for (n, &rkey) in rkeys.iter().enumerate().take(batch.len()) {
            let success = batch.outcome(n) == Outcome::Success;
            let pd = self.pd().as_raw() as usize;
            each(n, success.then_some(Invalidated { rkey, pd }));
        }
        batch.len()
    }
}
