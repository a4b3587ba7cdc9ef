// SPDX-License-Identifier: GPL-2.0

//! A workqueue of our own: the system queues may still run an item when the
//! module's code is gone.

use kernel::bindings;
use kernel::prelude::*;
use kernel::workqueue::Queue;

/// An owned, unbound workqueue that makes progress under memory pressure.
///
/// # Invariants
///
/// `raw` came from `alloc_workqueue` and is destroyed by `drop` only.
pub(crate) struct OwnedQueue {
    raw: core::ptr::NonNull<bindings::workqueue_struct>,
}

// SAFETY: A workqueue may be used and destroyed by any task.
unsafe impl Send for OwnedQueue {}
// SAFETY: Queueing locks internally.
unsafe impl Sync for OwnedQueue {}

impl OwnedQueue {
    /// Make a queue that runs up to `max_active` items at a time.
    pub(crate) fn new(name: &'static CStr, max_active: i32) -> Result<Self> {
        let flags = bindings::wq_flags_WQ_UNBOUND | bindings::wq_flags_WQ_MEM_RECLAIM;
        // SAFETY: The format is a C string without conversions, so that no
        // variadic argument is read.
        let raw =
            unsafe { bindings::alloc_workqueue_noprof(name.as_char_ptr(), flags, max_active) };
        // INVARIANT: A new queue that nobody else destroys.
        Ok(Self {
            raw: core::ptr::NonNull::new(raw).ok_or(ENOMEM)?,
        })
    }

    /// The queue, for [`Queue::enqueue`].
    pub(crate) fn queue(&self) -> &Queue {
        // SAFETY: By the type invariant `raw` lives as long as `self`.
        unsafe { Queue::from_raw(self.raw.as_ptr()) }
    }
}

/// Sleeps until every item has run. Must not run in an item of the queue.
impl Drop for OwnedQueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariant nobody else destroys it.
        unsafe { bindings::destroy_workqueue(self.raw.as_ptr()) }
    }
}
