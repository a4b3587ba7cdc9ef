// SPDX-License-Identifier: GPL-2.0

//! Memory regions for fast registration, and who may let go of memory when.
//!
//! The way of an MR and of the pages behind it, as types:
//!
//! ```text
//! Mr + DmaPages --map--> MappedMr --register--> Registration
//!                                                    |  LOCAL_INV succeeded (by driver)
//!                                                    |  or ib_dereg_mr returned 0
//!                                                    v
//!                             Mr (or nothing) + Quiesced --drop--> unmapped, unpinned
//! ```
//!
//! While a `Registration` exists an HCA may reach the pages. It owns them, and
//! nothing but a proof for this very key takes them out. Dropping it without
//! one is a programming error: the pages are leaked, which is safe, and a
//! warning says so.

use super::of_driver;
use super::pd::Unwilling;
use super::DmaPages;
use super::Invalidated;
use super::Outcome;
use super::Pd;
use super::SendQueue;
use super::Wr;
use crate::kern::time;
use crate::sys::bindings as raw;
use core::mem::ManuallyDrop;
use kernel::error::from_err_ptr;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::Arc;

/// An MR that no HCA can use: freshly allocated, or proven invalid.
///
/// Drop deregisters it and sleeps, without a bound that we know: not for tasks
/// that must make progress. One that the driver will not let go is kept by its
/// PD, see [`Pd::retry_unwilling`].
///
/// # Invariants
///
/// `raw` is an MR of `pd` that this object alone deregisters.
pub(crate) struct Mr {
    raw: core::ptr::NonNull<raw::ib_mr>,
    pd: Arc<Pd>,
    /// `None` only once `raw` is gone. Memory for the list of the PD: there may
    /// be none left when it is needed.
    node: Option<KBox<Unwilling>>,
}

// SAFETY: Verbs may come from any task.
unsafe impl Send for Mr {}
// SAFETY: Nothing is done through a shared reference but reading the rkey.
unsafe impl Sync for Mr {}

impl Mr {
    /// Allocate an MR for up to `pages` pages.
    pub(crate) fn alloc(pd: &Arc<Pd>, pages: u32) -> Result<Self> {
        let node = Unwilling::new()?;
        // SAFETY: A live PD.
        let mr = from_err_ptr(unsafe { raw::rds_mr_helper_alloc_mr(pd.as_raw(), pages) })
            .map_err(of_driver)?;
        // INVARIANT: Just allocated.
        Ok(Self {
            raw: core::ptr::NonNull::new(mr).ok_or(ENOMEM)?,
            pd: pd.clone(),
            node: Some(node),
        })
    }

    fn rkey(&self) -> u32 {
        // SAFETY: A live MR.
        unsafe { raw::rds_mr_helper_mr_rkey(self.raw.as_ptr()) }
    }

    fn dereg(mut self) -> Result<(), (Self, Error)> {
        // SAFETY: A live MR that nobody else deregisters (type invariant).
        match unsafe { dereg(self.raw) } {
            Ok(()) => {
                // Nothing is left for `drop` to do.
                self.node = None;
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }

    /// Tell the MR about `pages`; remote addresses start at the offset of the
    /// buffer in its first page, and the lowest byte of the key becomes
    /// `key_byte`.
    ///
    /// On failure the MR is deregistered, never used again, and the pages are
    /// released: no HCA has heard of them. `EIO` if the driver's view differs
    /// from ours.
    pub(crate) fn map(self, mut pages: DmaPages, key_byte: u8) -> Result<MappedMr> {
        // SAFETY: A live MR that is not registered; a mapped table.
        let mapped = unsafe { raw::rds_mr_helper_map_mr_sg(self.raw.as_ptr(), pages.sgt()) };
        to_result(mapped).map_err(of_driver)?;
        // SAFETY: A live MR.
        let length = unsafe { raw::rds_mr_helper_mr_length(self.raw.as_ptr()) };
        if u32::try_from(mapped)? != pages.nents() || length != u64::from(pages.bytes()) {
            return Err(EIO);
        }
        // SAFETY: A live MR that is not registered.
        let base = unsafe {
            raw::rds_mr_helper_set_rkey(self.raw.as_ptr(), key_byte);
            raw::rds_mr_helper_mr_zero_base(self.raw.as_ptr())
        };
        Ok(MappedMr {
            mr: self,
            pages,
            base,
        })
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        let Some(node) = self.node.take() else {
            return;
        };
        // SAFETY: A live MR that nobody else deregisters (type invariant), and
        // that is not used again.
        if let Err(error) = unsafe { dereg(self.raw) } {
            if time::may_log() {
                pr_err!(
                    "{:?}: idle MR not deregistered ({:?}), will try again\n",
                    self.pd.device().name(),
                    error
                );
            }
            // SAFETY: As above: from now on it is the PD's.
            unsafe { self.pd.keep_unwilling(node, self.raw) };
        }
    }
}

/// Deregister. On failure the MR is still there.
///
/// # Safety
///
/// `mr` is a live MR that nobody else deregisters, and gone if this succeeds.
pub(super) unsafe fn dereg(mr: core::ptr::NonNull<raw::ib_mr>) -> Result {
    // SAFETY: As promised.
    to_result(unsafe { raw::rds_mr_helper_dereg_mr(mr.as_ptr()) })
}

/// What peers may do through a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// RDMA READ.
    Read,
    /// RDMA READ and WRITE.
    ReadWrite,
}

impl Access {
    fn flags(self) -> i32 {
        let flags = match self {
            Self::Read => raw::ib_access_flags_IB_ACCESS_REMOTE_READ,
            Self::ReadWrite => {
                raw::ib_access_flags_IB_ACCESS_LOCAL_WRITE
                    | raw::ib_access_flags_IB_ACCESS_REMOTE_READ
                    | raw::ib_access_flags_IB_ACCESS_REMOTE_WRITE
            }
        };
        // CAST: Low bits.
        flags as i32
    }
}

/// An MR that knows its pages, before any HCA does. Drop as [`Mr`].
pub(crate) struct MappedMr {
    // Dropped first, so that the MR is gone before its pages are.
    mr: Mr,
    pages: DmaPages,
    base: u32,
}

/// How a registration ended.
pub(crate) enum RegOutcome {
    /// The key is alive.
    Live(Registration),
    /// The WR reported an `ib_wc_status`: it will not run any more. Whether the
    /// HCA learnt of the pages is unknown, so they need a proof all the same.
    Failed(Registration, u32),
    /// The WR has not reported and may still run. It holds a pointer to the MR:
    /// not even deregistering is allowed until its queue is destroyed.
    Silent(Registration),
    /// The WR never reached the queue: no HCA has heard of the pages, and MR
    /// and pages have been let go.
    NotPosted,
}

impl MappedMr {
    /// The key that it will have.
    pub(crate) fn rkey(&self) -> u32 {
        self.mr.rkey()
    }

    /// Remote address of the first byte: its offset in its page.
    pub(crate) fn base(&self) -> u32 {
        self.base
    }

    /// Make the key alive, and wait for that until the deadline.
    pub(crate) fn register(self, sq: &SendQueue, access: Access, deadline_ns: u64) -> RegOutcome {
        let wr = [Wr::RegMr {
            mr: self.mr.raw.as_ptr(),
            access: access.flags(),
        }];
        // SAFETY: Posted or not, the MR stays: in `self`, or in a `Registration`,
        // whose user waits for the end of the queue if the WR is silent (see
        // `RegOutcome::Silent`, `Registration::quiesce_by_dereg`).
        let Ok(batch) = (unsafe { sq.post(&wr, deadline_ns) }) else {
            return RegOutcome::NotPosted;
        };
        batch.wait(deadline_ns);
        match batch.outcome(0) {
            Outcome::NotPosted => RegOutcome::NotPosted,
            Outcome::Silent => {
                // Even if it reports now: only the end of the queue tells.
                sq.set_broken();
                RegOutcome::Silent(self.expose())
            }
            Outcome::Failed(status) => RegOutcome::Failed(self.expose(), status),
            Outcome::Success => RegOutcome::Live(self.expose()),
        }
    }

    fn expose(self) -> Registration {
        Registration {
            rkey: self.mr.rkey(),
            parts: Some((self.mr, self.pages)),
        }
    }
}

/// A key, and the pages that an HCA may reach through it.
pub(crate) struct Registration {
    rkey: u32,
    /// `None` only while being taken apart.
    parts: Option<(Mr, DmaPages)>,
}

/// How a deregistration ended.
pub(crate) enum DeregOutcome {
    /// No HCA can reach the pages.
    Proven(Quiesced),
    /// The driver refused; the MR still exists.
    Refused(Registration, Error),
    /// The driver said yes, but not in a way that proves anything. The MR is
    /// gone, there is nothing left to try: the pages have been leaked.
    Unproven,
}

impl Registration {
    /// The key.
    #[allow(dead_code, reason = "the keys of tests/kunit are built on it")]
    pub(crate) fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Take the pages out by proof of an executed LOCAL_INV. For drivers where
    /// that stops accesses that were already running.
    ///
    /// Gives everything back if the proof is about another key.
    pub(crate) fn quiesce_by_invalidation(
        mut self,
        proof: Invalidated,
    ) -> Result<(Mr, Quiesced), Self> {
        match self.parts.take() {
            Some((mr, pages)) if proof.names(self.rkey, mr.pd.as_raw() as usize) => {
                Ok((mr, Quiesced(pages)))
            }
            parts => {
                self.parts = parts;
                Err(self)
            }
        }
    }

    /// Take the pages out by deregistering the MR. `is_proof(milliseconds)`
    /// says whether a 0 from this driver after that time means what it should.
    ///
    /// Sleeps without a bound that we know. No REG_MR of this MR may be
    /// [`Silent`](RegOutcome::Silent) on a queue that still exists.
    pub(crate) fn quiesce_by_dereg(mut self, is_proof: impl FnOnce(u64) -> bool) -> DeregOutcome {
        let Some((mr, pages)) = self.parts.take() else {
            // Only the methods that consume `self` take the parts.
            return DeregOutcome::Unproven;
        };
        // Whatever happens below, the pages are not released by accident.
        let pages = ManuallyDrop::new(pages);
        let start = time::now_ns();
        match mr.dereg() {
            Err((mr, error)) => {
                self.parts = Some((mr, ManuallyDrop::into_inner(pages)));
                DeregOutcome::Refused(self, error)
            }
            Ok(()) => {
                let elapsed_ms = time::now_ns().saturating_sub(start) / 1_000_000;
                if is_proof(elapsed_ms) {
                    DeregOutcome::Proven(Quiesced(ManuallyDrop::into_inner(pages)))
                } else {
                    DeregOutcome::Unproven
                }
            }
        }
    }

    /// Give up: leave MR and pages as they are, for good. For a device that
    /// goes away with keys whose end could not be proven.
    pub(crate) fn leak(mut self) {
        core::mem::forget(self.parts.take());
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            kernel::warn_on!(true);
            pr_err!("key dropped without proof; its pages stay pinned for good\n");
            core::mem::forget(parts);
        }
    }
}

/// Pages that provably no HCA can reach any more. Drop unmaps and unpins, and
/// may sleep.
#[must_use = "dropping it releases the pages; do so where sleeping is fine"]
pub(crate) struct Quiesced(#[expect(dead_code, reason = "held for its drop")] DmaPages);
