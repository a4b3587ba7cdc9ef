// SPDX-License-Identifier: GPL-2.0

//! Protection domains, and the MRs that cannot be taken from them.

use super::mr;
use super::of_driver;
use super::IbDevice;
use crate::sys::bindings as raw;
use core::pin::Pin;
use core::ptr::NonNull;
use kernel::error::from_err_ptr;
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;
use kernel::sync::SpinLock;

/// An idle MR whose driver would not deregister it: there is no memory behind it,
/// but it is an MR, and its PD cannot go before it.
pub(super) struct Unwilling {
    /// `None` until it is in the list of its PD.
    mr: Option<NonNull<raw::ib_mr>>,
    next: Option<KBox<Unwilling>>,
}

// SAFETY: Verbs may come from any task.
unsafe impl Send for Unwilling {}

impl Unwilling {
    /// Memory for one, should it be needed.
    pub(super) fn new() -> Result<KBox<Self>> {
        let node = Self {
            mr: None,
            next: None,
        };
        Ok(KBox::new(node, GFP_KERNEL_ACCOUNT)?)
    }
}

/// A protection domain: which queue pairs may use which keys.
///
/// # Invariants
///
/// `raw` is a PD of `device` that this object alone deallocates. The MRs in
/// `unwilling` are of this PD, and who takes one out alone deregisters it.
#[pin_data(PinnedDrop)]
pub(crate) struct Pd {
    raw: NonNull<raw::ib_pd>,
    device: ARef<IbDevice>,
    #[pin]
    unwilling: SpinLock<Option<KBox<Unwilling>>>,
}

// SAFETY: Verbs on a PD may come from any task.
unsafe impl Send for Pd {}
// SAFETY: And lock internally.
unsafe impl Sync for Pd {}

impl Pd {
    /// Allocate one. The device must be registered.
    pub(crate) fn alloc(device: &IbDevice) -> Result<Arc<Self>> {
        // SAFETY: A registered device, as the caller promises by the rule of `IbDevice`.
        let pd = from_err_ptr(unsafe { raw::rds_mr_helper_alloc_pd(device.as_raw()) })
            .map_err(of_driver)?;
        let raw = NonNull::new(pd).ok_or(ENOMEM)?;
        // INVARIANT: Just allocated on this device.
        let this = Arc::pin_init(
            pin_init!(Self {
                raw,
                device: device.to_ref(),
                unwilling <- new_spinlock!(None, "Pd::unwilling"),
            }),
            GFP_KERNEL,
        );
        // SAFETY: Just allocated, and nobody else knows it.
        this.inspect_err(|_| unsafe { dealloc(raw, device) })
    }

    /// Keep an idle MR whose deregistration failed. Does not sleep.
    ///
    /// # Safety
    ///
    /// `mr` is a live MR of this PD that nobody else uses from now on.
    pub(super) unsafe fn keep_unwilling(&self, mut node: KBox<Unwilling>, mr: NonNull<raw::ib_mr>) {
        node.mr = Some(mr);
        self.push(node);
    }

    fn push(&self, mut node: KBox<Unwilling>) {
        let mut list = self.unwilling.lock();
        node.next = list.take();
        *list = Some(node);
    }

    /// Whether an idle MR waits for another try.
    pub(crate) fn has_unwilling(&self) -> bool {
        self.unwilling.lock().is_some()
    }

    /// Try again to deregister what could not be, until `stop()`. Returns how many
    /// are left. Sleeps, for as long as the driver takes for each.
    pub(crate) fn retry_unwilling(&self, stop: impl Fn() -> bool) -> usize {
        let mut left = 0_usize;
        // The whole list: what fails again is not met twice.
        let mut list = self.unwilling.lock().take();
        while let Some(mut node) = list {
            list = node.next.take();
            // SAFETY: By the type invariant it is ours, out of the list as it is.
            let dereg = |mr| unsafe { mr::dereg(mr) }.is_ok();
            let done = !stop() && node.mr.is_none_or(dereg);
            if !done {
                left = left.saturating_add(1);
                self.push(node);
            }
        }
        left
    }

    /// The C pointer; valid while `self` is.
    pub(super) fn as_raw(&self) -> *mut raw::ib_pd {
        self.raw.as_ptr()
    }

    /// Its device.
    pub(crate) fn device(&self) -> &IbDevice {
        &self.device
    }

    /// The lkey that covers all DMA addresses, for our own buffers only.
    pub(crate) fn local_dma_lkey(&self) -> u32 {
        // SAFETY: A live PD by the type invariant.
        unsafe { raw::rds_mr_helper_local_dma_lkey(self.as_raw()) }
    }
}

/// Deallocate. Sleeps (a command to the HCA).
///
/// # Safety
///
/// `pd` is a live PD of `device`, nothing made of it is left, and it is not used
/// again.
unsafe fn dealloc(pd: NonNull<raw::ib_pd>, device: &IbDevice) {
    // SAFETY: As promised.
    let ret = unsafe { raw::ib_dealloc_pd_user(pd.as_ptr(), core::ptr::null_mut()) };
    if ret != 0 {
        pr_err!("{:?}: PD not deallocated (error {})\n", device.name(), ret);
    }
}

/// Sleeps (commands to the HCA).
#[pinned_drop]
impl PinnedDrop for Pd {
    fn drop(self: Pin<&mut Self>) {
        // Who ends a device has tried them, and has told of what is lost.
        if self.has_unwilling() {
            // One at a time: a long list must not be dropped by recursion.
            let mut list = self.unwilling.lock().take();
            while let Some(mut node) = list {
                list = node.next.take();
            }
            return;
        }
        // SAFETY: By the type invariant nobody else deallocates it. What is made
        // of it holds a reference or was in `unwilling`, so nothing is left.
        unsafe { dealloc(self.raw, &self.device) };
    }
}
