// SPDX-License-Identifier: GPL-2.0

//! RDMA devices.

use crate::sys::bindings as raw;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::aref::AlwaysRefCounted;
use kernel::types::Opaque;

/// An RDMA device (`struct ib_device`).
///
/// A reference keeps the memory, not the registration (get_device, never
/// `ib_device_try_get`, which would block unregistration): verbs may be called
/// only until `Client::remove` has returned.
#[repr(transparent)]
pub(crate) struct IbDevice(Opaque<raw::ib_device>);

// SAFETY: Device references are counted by the driver core.
unsafe impl AlwaysRefCounted for IbDevice {
    fn inc_ref(&self) {
        // SAFETY: `self` is a live device, since it is borrowed.
        unsafe { raw::rds_mr_helper_get_device(self.as_raw()) }
    }

    unsafe fn dec_ref(obj: core::ptr::NonNull<Self>) {
        // SAFETY: The caller gives up a reference, so the device still lives.
        unsafe { raw::rds_mr_helper_put_device(obj.as_ptr().cast()) }
    }
}

// SAFETY: The reference count is atomic, and verbs lock internally.
unsafe impl Send for IbDevice {}
// SAFETY: As above.
unsafe impl Sync for IbDevice {}

impl IbDevice {
    /// Borrow a device from C.
    ///
    /// # Safety
    ///
    /// `ptr` must be a device that lives for `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut raw::ib_device) -> &'a Self {
        // SAFETY: `Self` is transparent over `ib_device`; the rest as promised.
        unsafe { &*ptr.cast() }
    }

    /// The C pointer; valid while `self` is.
    pub(crate) fn as_raw(&self) -> *mut raw::ib_device {
        self.0.get()
    }

    /// An address that tells devices apart while they live.
    pub(crate) fn id(&self) -> usize {
        self.as_raw() as usize
    }

    /// A counted reference.
    pub(crate) fn to_ref(&self) -> ARef<Self> {
        ARef::from(self)
    }

    /// Its name, such as "mlx5_0".
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: A registered device has a name, which lives with it.
        unsafe { CStr::from_char_ptr(raw::rds_mr_helper_device_name(self.as_raw())) }
    }

    /// `enum rdma_driver_id`.
    pub(crate) fn driver_id(&self) -> u32 {
        // SAFETY: A live device.
        unsafe { raw::rds_mr_helper_driver_id(self.as_raw()) }
    }

    /// Whether it can ever serve keys: an InfiniBand or RoCE HCA with fast
    /// registration whose DMA does not go through a bounce buffer.
    pub(crate) fn is_usable(&self) -> bool {
        // SAFETY: A live device.
        unsafe { raw::rds_mr_helper_device_usable(self.as_raw()) }
    }

    /// How many MRs it offers.
    pub(crate) fn max_mr(&self) -> u32 {
        // SAFETY: A live device.
        unsafe { raw::rds_mr_helper_max_mr(self.as_raw()) }
    }

    /// How many pages one MR may have. Some drivers say absurd numbers: clamp.
    pub(crate) fn max_mr_pages(&self) -> u32 {
        // SAFETY: A live device.
        unsafe { raw::rds_mr_helper_max_mr_pages(self.as_raw()) }
    }

    /// How many WRs a send queue may hold, with room in its CQ.
    pub(crate) fn max_wr(&self) -> u32 {
        // SAFETY: A live device.
        unsafe { raw::rds_mr_helper_max_wr(self.as_raw()) }
    }

    /// Number of ports; they count from 1.
    pub(crate) fn ports(&self) -> u32 {
        // SAFETY: A live device.
        unsafe { raw::rds_mr_helper_phys_port_cnt(self.as_raw()) }
    }
}
