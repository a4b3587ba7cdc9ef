// SPDX-License-Identifier: GPL-2.0

//! The C functions that only tests need, each behind a safe one.

use crate::fault::Fault;
use crate::kern::ib::qp::Qp;
use crate::kern::ib::IbDevice;
use crate::sys::bindings as raw;
use core::ffi::CStr;
use kernel::error::to_result;
use kernel::ffi;
use kernel::prelude::*;

extern "C" {
    // helpers.c
    fn rds_mr_test_skip(reason: *const ffi::c_char);
    fn rds_mr_test_user_memory(bytes: usize) -> ffi::c_ulong;
    fn rds_mr_test_pinned(addr: ffi::c_ulong) -> bool;
    fn rds_mr_test_qp(
        qp: *mut raw::ib_qp,
        state: *mut u32,
        rq_psn: *mut u32,
        access: *mut u32,
    ) -> ffi::c_int;
    fn rds_mr_test_dma_map(dev: *mut raw::ib_device, buffer: *mut c_void, bytes: usize) -> u64;
    fn rds_mr_test_dma_unmap(dev: *mut raw::ib_device, addr: u64, bytes: usize);
    // faults.c
    fn rds_mr_test_fault(fault: u32, times: u32, arg: u32) -> ffi::c_int;
    fn rds_mr_test_fault_struck(fault: u32, struck: *mut u32) -> ffi::c_int;
    // slow_copy.c
    fn rds_mr_test_slow_copy(microseconds: u32) -> ffi::c_int;
}

/// Mark the running test as skipped.
pub(crate) fn skip(reason: &'static CStr) {
    // SAFETY: The reason is copied; only tests call this.
    unsafe { rds_mr_test_skip(reason.as_char_ptr()) };
}

/// `bytes` of zeroed memory of a process, which the test thread becomes.
pub(crate) fn user_memory(bytes: usize) -> Result<usize> {
    // SAFETY: Only tests call this.
    match unsafe { rds_mr_test_user_memory(bytes) } {
        0 => Err(ENOMEM),
        addr => Ok(addr),
    }
}

/// Whether the page at `addr` of the current task is pinned.
pub(crate) fn is_pinned(addr: usize) -> bool {
    // SAFETY: Looks at the page tables; any address will do.
    unsafe { rds_mr_test_pinned(addr) }
}

/// What the HCA has for a QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QpView {
    state: u32,
    /// The next packet that it takes.
    pub(crate) rq_psn: u32,
    /// `enum ib_access_flags` of remote peers.
    pub(crate) access: u32,
}

impl QpView {
    pub(crate) fn of(qp: &Qp) -> Result<Self> {
        let mut view = Self::default();
        // SAFETY: A live QP, and three numbers of ours.
        to_result(unsafe {
            rds_mr_test_qp(
                qp.as_raw(),
                &mut view.state,
                &mut view.rq_psn,
                &mut view.access,
            )
        })?;
        Ok(view)
    }

    pub(crate) fn is_in_error(&self) -> bool {
        self.state == raw::ib_qp_state_IB_QPS_ERR
    }
}

/// Map a contiguous buffer for DMA in both directions.
///
/// # Safety
///
/// The buffer must stay until [`dma_unmap`]; what the device does with it
/// meanwhile is up to the caller.
pub(crate) unsafe fn dma_map(device: &IbDevice, buffer: *mut u8, bytes: usize) -> Result<u64> {
    // SAFETY: A registered device, and a buffer as promised.
    match unsafe { rds_mr_test_dma_map(device.as_raw(), buffer.cast(), bytes) } {
        0 => Err(EIO),
        addr => Ok(addr),
    }
}

/// Undo [`dma_map`].
///
/// # Safety
///
/// `addr` and `bytes` are of a mapping of this device, undone only here.
pub(crate) unsafe fn dma_unmap(device: &IbDevice, addr: u64, bytes: usize) {
    // SAFETY: As promised.
    unsafe { rds_mr_test_dma_unmap(device.as_raw(), addr, bytes) };
}

/// Arm the fault of that number, for user space. `EINVAL`: there is none.
pub(crate) fn arm(fault: u32, times: u32, arg: u32) -> Result {
    // SAFETY: No preconditions.
    to_result(unsafe { rds_mr_test_fault(fault, times, arg) })
}

/// How often the fault of that number has struck since it was armed. `EINVAL`.
pub(crate) fn struck(fault: u32) -> Result<u32> {
    let mut struck = 0;
    // SAFETY: `struck` is a local to write to.
    to_result(unsafe { rds_mr_test_fault_struck(fault, &mut struck) })?;
    Ok(struck)
}

/// A fault that is armed. Dropping it disarms what is left of it.
pub(crate) struct Armed(Fault);

impl Armed {
    /// Let the next `times` uses fail; `arg` as faults.h says.
    pub(crate) fn new(fault: Fault, times: u32, arg: u32) -> Self {
        // SAFETY: No preconditions.
        unsafe { rds_mr_test_fault(fault as u32, times, arg) };
        Self(fault)
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        // SAFETY: No preconditions.
        unsafe { rds_mr_test_fault(self.0 as u32, 0, 0) };
    }
}

/// Delay every copy of rxe by that long; 0 ends it. `EINVAL`: too long.
/// `ENOENT`: rxe is not loaded.
pub(crate) fn slow_copy(microseconds: u32) -> Result {
    // SAFETY: No preconditions in process context.
    to_result(unsafe { rds_mr_test_slow_copy(microseconds) })
}
