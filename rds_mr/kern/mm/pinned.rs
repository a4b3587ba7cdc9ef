// SPDX-License-Identifier: GPL-2.0

//! Pinned user pages that no device knows yet, or any more.

use kernel::alloc::KVVec;
use kernel::bindings;
use kernel::prelude::*;

/// User pages, pinned for long (FOLL_PIN | FOLL_LONGTERM).
///
/// This type unpins when dropped: it is for pages that no HCA can reach. While
/// one can, the pages live inside a [`Registration`], which gives them back
/// only for a proof. Drop may sleep (it takes folio locks).
///
/// # Invariants
///
/// Every element is a page that is pinned once for this object.
///
/// [`Registration`]: crate::kern::ib::Registration
pub(crate) struct PinnedPages {
    pages: KVVec<*mut bindings::page>,
    write: bool,
}

// SAFETY: A pin belongs to the page, not to the task that took it.
unsafe impl Send for PinnedPages {}
// SAFETY: Nothing is changed through a shared reference.
unsafe impl Sync for PinnedPages {}

impl PinnedPages {
    /// Pin `count` pages of the current process from the page-aligned `addr` on.
    ///
    /// Without `write` also read-only mappings can be pinned. Sleeps, possibly
    /// for ever (FUSE, userfaultfd), and ends on a fatal signal: hold nothing.
    ///
    /// `EFAULT`: not mapped, no right, or memory that must not be pinned.
    /// `EOPNOTSUPP`: file system DAX.
    pub(crate) fn pin(addr: usize, count: usize, write: bool) -> Result<Self> {
        let mut this = Self {
            pages: KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?,
            write,
        };
        let mut flags = bindings::FOLL_LONGTERM;
        if write {
            flags |= bindings::FOLL_WRITE;
        }
        while this.pages.len() < count {
            let done = this.pages.len();
            let start = done
                .checked_mul(kernel::page::PAGE_SIZE)
                .and_then(|bytes| addr.checked_add(bytes))
                .ok_or(EFAULT)?;
            let rest = count.saturating_sub(done);
            // SAFETY: The spare capacity holds at least `rest` pointers, and no
            // lock is held.
            let pinned = unsafe {
                bindings::pin_user_pages_fast(
                    start,
                    i32::try_from(rest)?,
                    flags,
                    this.pages.spare_capacity_mut().as_mut_ptr().cast(),
                )
            };
            // On an error `this` is dropped, which unpins what is there.
            let pinned = usize::try_from(kernel::error::to_result(pinned).map(|()| pinned)?)?;
            if pinned == 0 {
                return Err(EFAULT);
            }
            // INVARIANT: That many pages were just pinned for us.
            // SAFETY: That many pointers were just written, within capacity.
            unsafe { this.pages.inc_len(pinned) };
        }
        Ok(this)
    }

    /// How many pages.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// The page pointers, for an sg table. They must not outlive the pin.
    pub(in crate::kern) fn as_mut_ptr(&mut self) -> *mut *mut bindings::page {
        self.pages.as_mut_ptr()
    }

    /// Whether they were pinned for writing.
    pub(crate) fn is_write(&self) -> bool {
        self.write
    }
}

impl Drop for PinnedPages {
    fn drop(&mut self) {
        // SAFETY: By the type invariant these pages are pinned once for us; in
        // process context, as the type says. Dirty if a device could write.
        unsafe {
            bindings::unpin_user_pages_dirty_lock(
                self.pages.as_mut_ptr(),
                self.pages.len(),
                self.write,
            )
        };
    }
}
