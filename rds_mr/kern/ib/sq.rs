// SPDX-License-Identifier: GPL-2.0

//! A send queue whose callers wait for what they posted.
//!
//! Every WR is signaled and owns a slot: the memory that the HCA's completion
//! refers to. A slot is used again only after its WR has reported, or after the
//! QP was destroyed. There is no interrupt: whoever waits polls, for everybody.
//!
//! Lock order: `poll` is taken with nothing held; `free` is innermost.

use super::qp::random_psn;
use super::qp::Qp;
use super::qp::Remote;
use super::wr::Outcome;
use super::wr::Slot;
use super::wr::Wr;
use super::Pd;
use super::Route;
use crate::kern::gate::Gate;
use crate::kern::gate::Pass;
use crate::kern::time;
use crate::sys::bindings as raw;
use core::cell::UnsafeCell;
use core::pin::Pin;
use kernel::alloc::KVec;
use kernel::bindings;
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::atomic::Acquire;
use kernel::sync::atomic::Atomic;
use kernel::sync::atomic::Relaxed;
use kernel::sync::atomic::Release;
use kernel::sync::Arc;
use kernel::sync::SpinLock;

/// Most WRs of one [`SendQueue::post`].
pub(crate) const CHAIN: usize = 64;
/// Most WRs a queue holds.
const DEPTH: u32 = 256;
/// How long a waiter spins before it sleeps between two polls.
const SPIN_NS: u64 = 300_000;

/// A send queue with its QP and CQ.
///
/// # Invariants
///
/// `slots` does not change. The slots whose index is in no [`Batch`] and not in
/// `free` belong to WRs that have not reported; they stay out of use. `qp` is
/// `Some` while a [`Pass`] of `gate` exists.
#[pin_data(PinnedDrop)]
pub(crate) struct SendQueue {
    #[pin]
    gate: Gate,
    qp: UnsafeCell<Option<Qp>>,
    pd: Arc<Pd>,
    slots: KVec<Slot>,
    #[pin]
    free: SpinLock<KVec<u16>>,
    #[pin]
    poll: SpinLock<()>,
    broken: Arc<Atomic<bool>>,
    destroyed: Atomic<bool>,
}

// SAFETY: `qp` changes only in `destroy`, when no pass exists; slots are used by
// the batch that owns them, and their status is atomic.
unsafe impl Send for SendQueue {}
// SAFETY: As above.
unsafe impl Sync for SendQueue {}

impl SendQueue {
    /// A queue whose QP is connected to itself and gives remote peers nothing:
    /// for registering and invalidating.
    pub(crate) fn to_self(pd: &Arc<Pd>) -> Result<Arc<Self>> {
        let route = Route::find(pd.device())?;
        let this = Self::unconnected(pd)?;
        let psn = random_psn();
        let qp = this.qp().ok_or(EIO)?;
        qp.connect(&route, qp.number(), psn, psn, Remote::Nothing)?;
        Ok(this)
    }

    /// Two queues whose QPs are connected to each other; `remote` is what the
    /// first may do through the second, in packets of at most `mtu` bytes.
    pub(crate) fn pair(pd: &Arc<Pd>, remote: Remote, mtu: u32) -> Result<(Arc<Self>, Arc<Self>)> {
        let route = Route::find(pd.device())?.in_packets_of(mtu);
        let (a, b) = (Self::unconnected(pd)?, Self::unconnected(pd)?);
        let (psn_a, psn_b) = (random_psn(), random_psn());
        let (qa, qb) = (a.qp().ok_or(EIO)?, b.qp().ok_or(EIO)?);
        qb.connect(&route, qa.number(), psn_b, psn_a, remote)?;
        qa.connect(&route, qb.number(), psn_a, psn_b, Remote::Nothing)?;
        Ok((a, b))
    }

    /// A queue whose QP is in RESET.
    pub(crate) fn unconnected(pd: &Arc<Pd>) -> Result<Arc<Self>> {
        let depth = DEPTH.min(pd.device().max_wr());
        let broken = Arc::new(Atomic::new(false), GFP_KERNEL)?;
        let qp = Qp::create(pd, depth, broken.clone())?;
        let mut slots = KVec::with_capacity(depth as usize, GFP_KERNEL)?;
        let mut free = KVec::with_capacity(depth as usize, GFP_KERNEL)?;
        for index in 0..u16::try_from(depth)? {
            slots.push(Slot::new(), GFP_KERNEL)?;
            free.push(index, GFP_KERNEL)?;
        }
        Arc::pin_init(
            pin_init!(Self {
                gate <- Gate::new(),
                qp: UnsafeCell::new(Some(qp)),
                pd: pd.clone(),
                slots,
                free <- new_spinlock!(free, "SendQueue::free"),
                poll <- new_spinlock!((), "SendQueue::poll"),
                broken,
                destroyed: Atomic::new(false),
            }),
            GFP_KERNEL,
        )
    }

    fn qp(&self) -> Option<&Qp> {
        // SAFETY: `qp` becomes `None` only in `destroy`, after the gate has let
        // out everybody; all callers hold a pass, or are `destroy`, or have the
        // only reference.
        unsafe { (*self.qp.get()).as_ref() }
    }

    /// Call `f` with the QP, unless that is being destroyed.
    pub(crate) fn with_qp<R>(&self, f: impl FnOnce(&Qp) -> R) -> Option<R> {
        let _pass = self.gate.enter()?;
        self.qp().map(f)
    }

    /// Its PD.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Whether something failed or fell silent: the owner should replace it.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Relaxed)
    }

    /// Say that something is wrong: the owner will replace it.
    pub(super) fn set_broken(&self) {
        self.broken.store(true, Relaxed);
    }

    /// Whether its QP is gone: WRs that did not report will never run.
    pub(crate) fn is_destroyed(&self) -> bool {
        self.destroyed.load(Acquire)
    }

    /// Post up to [`CHAIN`] WRs as one chain, as soon as the queue has room for
    /// one: the batch has as many as there was room for, the first ones. (Who
    /// waited for room for all could wait for ever, with others who take one
    /// slot each.)
    ///
    /// `Err` means that nothing was posted: `ENODEV` (queue gone), `EIO` (no
    /// room until the deadline), `EINVAL` (too many, or none).
    ///
    /// # Safety
    ///
    /// What the WRs refer to must live until they have reported or the queue is
    /// destroyed.
    pub(crate) unsafe fn post(&self, wrs: &[Wr], deadline_ns: u64) -> Result<Batch<'_>> {
        if wrs.is_empty() || wrs.len() > CHAIN {
            return Err(EINVAL);
        }
        let pass = self.gate.enter().ok_or(ENODEV)?;
        let qp = self.qp().ok_or(ENODEV)?;
        let mut batch = Batch {
            sq: self,
            slots: [0; CHAIN],
            len: 0,
            posted: 0,
            _pass: pass,
        };
        if !self.poll_until(deadline_ns, || self.take_slots(&mut batch, wrs.len())) {
            return Err(EIO);
        }
        // A WR that nobody can wait for would be silent, and break the queue.
        if time::now_ns() >= deadline_ns {
            return Err(EIO);
        }
        let mut next = core::ptr::null_mut();
        for (index, wr) in batch.slots().zip(wrs).rev() {
            let Some(slot) = self.slots.get(index) else {
                continue;
            };
            // SAFETY: The slot belongs to this batch, its WR is not posted, and
            // the caller promised the rest.
            unsafe { slot.fill(wr, next) };
            next = slot.send_wr();
        }
        let mut bad: *const raw::ib_send_wr = core::ptr::null();
        // SAFETY: A chain of filled WRs whose cqes live (type invariant); what
        // they refer to lives as the caller promised.
        let ret = unsafe { raw::rds_mr_helper_post_send(qp.as_raw(), next, &mut bad) };
        batch.posted = if ret == 0 {
            batch.len
        } else {
            self.broken.store(true, Relaxed);
            batch.before(bad)
        };
        Ok(batch)
    }

    fn take_slots(&self, batch: &mut Batch<'_>, count: usize) -> bool {
        let mut free = self.free.lock();
        let count = count.min(free.len());
        let rest = free.len().saturating_sub(count);
        for (to, from) in batch.slots.iter_mut().zip(free.iter().skip(rest)) {
            *to = *from;
        }
        free.truncate(rest);
        batch.len = count;
        count > 0
    }

    /// Poll until `done()`, or the deadline. Spins first, then sleeps between
    /// polls; never waits for a lock, so that a poller that lost its CPU stalls
    /// nobody.
    fn poll_until(&self, deadline_ns: u64, mut done: impl FnMut() -> bool) -> bool {
        let spin_end = time::now_ns().saturating_add(SPIN_NS);
        let mut sleep_us = 50;
        loop {
            if done() {
                return true;
            }
            self.poll_now();
            if done() {
                return true;
            }
            let now = time::now_ns();
            if now >= deadline_ns {
                return false;
            }
            if now < spin_end {
                time::relax();
            } else {
                // SAFETY: Process context, nothing held.
                unsafe {
                    bindings::usleep_range_state(
                        sleep_us,
                        sleep_us.saturating_mul(2),
                        bindings::TASK_UNINTERRUPTIBLE,
                    )
                };
                sleep_us = sleep_us.saturating_mul(2).min(2000);
            }
        }
    }

    fn poll_now(&self) {
        if let Some(_guard) = self.poll.try_lock() {
            if let Some(qp) = self.qp() {
                // SAFETY: The lock makes us the only poller; every WR was
                // filled by `post`, and its slot lives (type invariant).
                unsafe { qp.poll(64) };
            }
        }
    }

    /// Take the queue out of service: flush what is queued, wait (bounded by
    /// the deadlines of those who posted) and destroy the QP. Sleeps, as long
    /// as the driver takes. Idempotent.
    pub(crate) fn destroy(&self) {
        self.broken.store(true, Relaxed);
        if let Some(Err(error)) = self.with_qp(Qp::fail) {
            pr_err!(
                "{:?}: QP not flushed ({:?})\n",
                self.pd.device().name(),
                error
            );
        }
        self.gate.close_and_wait();
        let qp = {
            let _guard = self.poll.lock();
            // SAFETY: The gate is closed and everybody has left, so nobody
            // borrows `qp`; the lock keeps out a second `destroy`.
            unsafe { (*self.qp.get()).take() }
        };
        // A second caller finds nothing, and the flag as the first one leaves it.
        if qp.is_some_and(|qp| qp.destroy().is_ok()) {
            self.destroyed.store(true, Release);
        }
    }
}

#[pinned_drop]
impl PinnedDrop for SendQueue {
    fn drop(self: Pin<&mut Self>) {
        // The QP must go before the slots that its completions refer to.
        self.destroy();
        if !self.is_destroyed() {
            core::mem::forget(core::mem::take(self.project().slots));
        }
    }
}

/// WRs that were posted together. Dropping it gives back the slots of those
/// that have reported; the others stay out of use, and the queue is broken.
pub(crate) struct Batch<'a> {
    sq: &'a SendQueue,
    slots: [u16; CHAIN],
    len: usize,
    posted: usize,
    _pass: Pass<'a>,
}

impl Batch<'_> {
    /// How many of the WRs it was made of; the others have to be posted again.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn slots(&self) -> impl DoubleEndedIterator<Item = usize> + ExactSizeIterator + '_ {
        self.slots
            .iter()
            .take(self.len)
            .map(|&slot| usize::from(slot))
    }

    /// How many WRs stand before `bad`, the first one that was not posted.
    fn before(&self, bad: *const raw::ib_send_wr) -> usize {
        self.slots()
            .position(|index| {
                self.sq
                    .slots
                    .get(index)
                    .is_some_and(|slot| core::ptr::eq(slot.send_wr(), bad))
            })
            // A driver that names none has posted none.
            .unwrap_or(0)
    }

    fn reported(&self, n: usize) -> Option<u32> {
        let index = self.slots.get(n).copied().map(usize::from)?;
        self.sq.slots.get(index)?.reported()
    }

    /// Wait until all have reported. True if they did before the deadline.
    pub(crate) fn wait(&self, deadline_ns: u64) -> bool {
        let mut seen = 0;
        self.sq.poll_until(deadline_ns, || {
            while seen < self.posted && self.reported(seen).is_some() {
                seen = seen.saturating_add(1);
            }
            seen == self.posted
        })
    }

    /// What became of the `n`-th WR so far.
    pub(crate) fn outcome(&self, n: usize) -> Outcome {
        if n >= self.posted {
            return Outcome::NotPosted;
        }
        match self.reported(n) {
            None => Outcome::Silent,
            Some(raw::ib_wc_status_IB_WC_SUCCESS) => Outcome::Success,
            Some(status) => Outcome::Failed(status),
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let mut free = self.sq.free.lock();
        for n in 0..self.len {
            let outcome = self.outcome(n);
            if matches!(outcome, Outcome::Silent | Outcome::Failed(_)) {
                self.sq.broken.store(true, Relaxed);
            }
            let Some(&index) = self.slots.get(n) else {
                continue;
            };
            if outcome != Outcome::Silent {
                // Cannot fail: the vector once held every slot.
                let _ = free.push_within_capacity(index);
            }
        }
    }
}
