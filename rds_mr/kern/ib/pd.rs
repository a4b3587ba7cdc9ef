// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use super::IbDevice;
use crate::sys::bindings as raw;
use kernel::error::from_err_ptr;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;

/// A protection domain: which queue pairs may use which keys.
///
/// # Invariants
///
/// `raw` is a PD of `device` that this object alone deallocates.
pub(crate) struct Pd {
    raw: core::ptr::NonNull<raw::ib_pd>,
    device: ARef<IbDevice>,
}

// SAFETY: Verbs on a PD may come from any task.
unsafe impl Send for Pd {}
// SAFETY: And lock internally.
unsafe impl Sync for Pd {}

impl Pd {
    /// Allocate one. The device must be registered.
    pub(crate) fn alloc(device: &IbDevice) -> Result<Arc<Self>> {
        // SAFETY: A registered device, as the caller promises by the rule of `IbDevice`.
        let pd = from_err_ptr(unsafe { raw::rds_mr_helper_alloc_pd(device.as_raw()) })?;
        // INVARIANT: Just allocated on this device.
        let this = Self {
            raw: core::ptr::NonNull::new(pd).ok_or(ENOMEM)?,
            device: device.to_ref(),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
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

/// Sleeps (a command to the HCA).
impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: By the type invariant nobody else deallocates it; everything
        // made of it holds a reference, so nothing of it is left.
        let ret = unsafe { raw::ib_dealloc_pd_user(self.as_raw(), core::ptr::null_mut()) };
        if ret != 0 {
            pr_err!(
                "{:?}: PD not deallocated (error {})\n",
                self.device.name(),
                ret
            );
        }
    }
}
