// SPDX-License-Identifier: GPL-2.0

//! What the calling task may do.

use crate::sys::bindings as raw;
use kernel::bindings;

/// `capable(CAP_NET_ADMIN)`, in the initial user namespace.
pub(crate) fn net_admin() -> bool {
    capable(bindings::CAP_NET_ADMIN)
}

/// `capable(CAP_IPC_LOCK)`, in the initial user namespace.
pub(crate) fn ipc_lock() -> bool {
    capable(bindings::CAP_IPC_LOCK)
}

fn capable(cap: u32) -> bool {
    // CAST: Capability numbers are below 64.
    // SAFETY: `current` exists in process context.
    unsafe { raw::rds_mr_helper_capable(cap as i32) }
}

/// Whether the task may lock memory at all (RLIMIT_MEMLOCK above 0, or
/// CAP_IPC_LOCK).
pub(crate) fn can_lock_memory() -> bool {
    // SAFETY: `current` exists in process context.
    unsafe { raw::rds_mr_helper_can_do_mlock() }
}

/// RLIMIT_MEMLOCK of the task, in bytes; `u64::MAX` is no limit.
pub(crate) fn memlock_limit() -> u64 {
    // SAFETY: `current` exists in process context.
    unsafe { raw::rds_mr_helper_rlimit_memlock() as u64 }
}

/// Real user id of the task in the initial user namespace.
pub(crate) fn kuid() -> u32 {
    // SAFETY: `current` exists in process context.
    unsafe { raw::rds_mr_helper_current_kuid() }
}
