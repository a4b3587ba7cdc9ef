// SPDX-License-Identifier: GPL-2.0

//! Clocks, waits that end, and a limit on log lines.

use crate::sys::bindings as raw;
use kernel::bindings;
use kernel::prelude::*;
use kernel::time::delay::fsleep;
use kernel::time::msecs_to_jiffies;
use kernel::time::Delta;
use kernel::types::Opaque;

/// Nanoseconds of the monotonic clock.
pub(crate) fn now_ns() -> u64 {
    // SAFETY: No preconditions.
    unsafe { raw::rds_mr_helper_ktime_ns() }
}

/// A point in a busy wait: lets others run. Process context only.
pub(crate) fn relax() {
    // SAFETY: Called in process context with no spinlock held (documented above).
    unsafe {
        raw::rds_mr_helper_cond_resched();
        raw::rds_mr_helper_cpu_relax();
    }
}

/// Sleep, uninterruptibly, until `end_ns` of the monotonic clock. Process context
/// only.
pub(crate) fn sleep_until(end_ns: u64) {
    let left = i64::try_from(end_ns.saturating_sub(now_ns())).unwrap_or(i64::MAX);
    if left > 0 {
        fsleep(Delta::from_nanos(left));
    }
}

/// Whether a message that something outside the kernel can cause may be
/// printed now. One budget for the whole module: nobody can flood the log.
pub(crate) fn may_log() -> bool {
    // SAFETY: No preconditions.
    unsafe { raw::rds_mr_helper_ratelimit() }
}

/// A completion that can be waited for with a limit and used again.
///
/// The kernel crate's `Completion` has neither.
#[pin_data]
pub(crate) struct Completion {
    #[pin]
    inner: Opaque<bindings::completion>,
}

// SAFETY: A completion is made to be used from several tasks.
unsafe impl Send for Completion {}
// SAFETY: All its operations lock internally.
unsafe impl Sync for Completion {}

impl Completion {
    /// A completion that has not happened yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- Opaque::ffi_init(|slot: *mut bindings::completion| {
                // SAFETY: `slot` is valid, and pinned from here on.
                unsafe { raw::rds_mr_helper_init_completion(slot) }
            }),
        })
    }

    /// Make the next waiters wait again. Nobody may wait for the previous
    /// round any more, or does not mind to wait for the next one.
    pub(crate) fn reinit(&self) {
        // SAFETY: `inner` was initialised by `new`.
        unsafe { raw::rds_mr_helper_reinit_completion(self.inner.get()) }
    }

    /// Let everybody through, now and until [`Self::reinit`]. Never sleeps.
    pub(crate) fn complete_all(&self) {
        // SAFETY: `inner` was initialised by `new`.
        unsafe { bindings::complete_all(self.inner.get()) }
    }

    /// Whether it has happened. Never sleeps.
    pub(crate) fn is_done(&self) -> bool {
        // SAFETY: `inner` was initialised by `new`.
        unsafe { bindings::completion_done(self.inner.get()) }
    }

    /// Wait, uninterruptibly, for at most `ns` nanoseconds (rounded up to a
    /// millisecond). True if it happened.
    pub(crate) fn wait_ns(&self, ns: u64) -> bool {
        // A wait without time would last until the next tick all the same, and
        // there may be many.
        if ns == 0 || self.is_done() {
            return self.is_done();
        }
        let ms = u32::try_from(ns.div_ceil(1_000_000)).unwrap_or(u32::MAX / 2);
        // SAFETY: `inner` was initialised by `new`; process context, as `relax`.
        unsafe { raw::rds_mr_helper_wait_timeout(self.inner.get(), msecs_to_jiffies(ms)) != 0 }
    }
}
