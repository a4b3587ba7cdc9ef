// SPDX-License-Identifier: GPL-2.0

//! Waking those who poll a socket.

use crate::sys::bindings as raw;
use kernel::bindings;

/// A reference to a `struct sock`, to wake those who poll its socket. Does
/// nothing once the socket is closed. Drop does not sleep.
///
/// # Invariants
///
/// `sk` is a reference to a sock that this object alone gives back.
pub(crate) struct Waker {
    sk: *mut bindings::sock,
}

// SAFETY: References to a sock are counted atomically.
unsafe impl Send for Waker {}
// SAFETY: Waking locks internally.
unsafe impl Sync for Waker {}

impl Waker {
    /// # Safety
    ///
    /// `sock` must have a sock.
    pub(super) unsafe fn new(sock: *mut bindings::socket) -> Self {
        // INVARIANT: A new reference.
        Self {
            // SAFETY: As promised.
            sk: unsafe { raw::rds_mr_sk_hold(sock) },
        }
    }

    /// Wake who waits for POLLPRI. Never sleeps.
    pub(crate) fn wake(&self) {
        // SAFETY: By the type invariant the sock lives.
        unsafe { raw::rds_mr_sk_wake(self.sk) }
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the reference is ours to give back.
        unsafe { raw::rds_mr_sk_put(self.sk) }
    }
}
