// SPDX-License-Identifier: GPL-2.0

//! Which device an IP address belongs to, as rdma_cm sees it.

use super::IbDevice;
use crate::sys::bindings as raw;
use kernel::error::from_err_ptr;
use kernel::error::to_result;
use kernel::prelude::*;

/// An rdma_cm id in the initial network namespace, unused but for binding.
struct CmId(*mut raw::rdma_cm_id);

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: Created by `device_of_address` and destroyed only here. Not in
        // an event handler.
        unsafe { raw::rdma_destroy_id(self.0) };
    }
}

/// Ask rdma_cm which device owns the address in `sockaddr` (a `sockaddr_in` or
/// `sockaddr_in6`, port 0), and call `found` with it. The device stays
/// registered during the call. Sleeps.
///
/// `ENODEV` if the address belongs to no RDMA device, or rdma_cm's own error.
pub(crate) fn device_of_address<R>(
    sockaddr: &[u8; 28],
    found: impl FnOnce(&IbDevice) -> Result<R>,
) -> Result<R> {
    // Aligned as a sockaddr must be.
    #[repr(C, align(8))]
    struct Aligned([u8; 128]);
    let mut addr = Aligned([0; 128]);
    for (to, from) in addr.0.iter_mut().zip(sockaddr) {
        *to = *from;
    }
    // SAFETY: No preconditions in process context.
    let id = CmId(from_err_ptr(unsafe { raw::rds_mr_helper_create_id() })?);
    // SAFETY: A new id, and an address in a buffer as large as any sockaddr.
    to_result(unsafe { raw::rdma_bind_addr(id.0, addr.0.as_mut_ptr().cast()) })?;
    // SAFETY: `id` is live.
    let device = unsafe { raw::rds_mr_helper_id_device(id.0) };
    if device.is_null() {
        return Err(ENODEV);
    }
    // SAFETY: A bound id keeps its device registered until it is destroyed,
    // which is after `found` has returned.
    found(unsafe { IbDevice::from_raw(device) })
}
