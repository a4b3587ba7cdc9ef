// SPDX-License-Identifier: GPL-2.0

//! The rdma cgroup: an `hca_object` for every key.

use super::IbDevice;
use crate::sys::bindings as raw;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::aref::ARef;

/// One `hca_object`, charged to the cgroup of the task that asked for it.
///
/// To be dropped before `ib_client.remove` returns: the core forgets the device's
/// counters then. Drop may sleep (a global mutex).
///
/// # Invariants
///
/// `cgroup` was charged for `device`, which this object alone gives back.
pub(crate) struct CgroupCharge {
    cgroup: *mut raw::rdma_cgroup,
    device: ARef<IbDevice>,
}

// SAFETY: A charge belongs to the cgroup, not to a task.
unsafe impl Send for CgroupCharge {}
// SAFETY: Nothing is changed through a shared reference.
unsafe impl Sync for CgroupCharge {}

impl CgroupCharge {
    /// Charge the current task's cgroup. Sleeps.
    ///
    /// `EAGAIN`: over the limit in `rdma.max`. `ENOMEM`.
    pub(crate) fn take(device: &IbDevice) -> Result<Self> {
        let mut cgroup = core::ptr::null_mut();
        // SAFETY: A registered device, and a local to write to.
        to_result(unsafe { raw::rds_mr_helper_cgroup_charge(device.as_raw(), &mut cgroup) })?;
        // INVARIANT: Charged just now.
        Ok(Self {
            cgroup,
            device: device.to_ref(),
        })
    }
}

impl Drop for CgroupCharge {
    fn drop(&mut self) {
        // SAFETY: By the type invariant there is a charge to give back; the
        // device is registered still, as the type demands.
        unsafe { raw::rds_mr_helper_cgroup_uncharge(self.device.as_raw(), self.cgroup) }
    }
}
