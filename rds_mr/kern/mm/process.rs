// SPDX-License-Identifier: GPL-2.0

//! A process, also when it is dead.

use crate::sys::bindings as raw;
use kernel::bindings;

/// A reference to the id of a process. Drop does not sleep.
///
/// # Invariants
///
/// `tgid` is a reference that this object alone gives back.
pub(crate) struct Process {
    tgid: *mut bindings::pid,
}

// SAFETY: Ids are counted atomically.
unsafe impl Send for Process {}
// SAFETY: Nothing is changed through a shared reference.
unsafe impl Sync for Process {}

impl Process {
    /// The calling one (for a thread, its group).
    pub(crate) fn current() -> Self {
        // INVARIANT: A new reference.
        Self {
            // SAFETY: `current` exists in process context.
            tgid: unsafe { raw::rds_mr_helper_get_tgid() },
        }
    }

    /// Whether others can tell that it has ended: wait() would return, or has.
    pub(crate) fn is_seen_dead(&self) -> bool {
        // SAFETY: By the type invariant the id lives.
        unsafe { raw::rds_mr_helper_is_seen_dead(self.tgid) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the reference is ours to give back.
        unsafe { bindings::put_pid(self.tgid) }
    }
}
