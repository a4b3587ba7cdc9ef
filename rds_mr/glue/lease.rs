// SPDX-License-Identifier: GPL-2.0

//! Charges of the rdma cgroup for calls that have no key yet.
//!
//! Such a call can be blocked for ever by user memory, and holds no pass. The
//! core wants all charges back before the removal of a device is over: so the
//! removal takes those away that are on lease.

use super::device::Device;
use super::table::Entry;
use crate::kern::gate::Pass;
use crate::kern::ib::CgroupCharge;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::sync::Mutex;

/// A charge that somebody has on lease. The lock is held while it is given back,
/// so that the removal waits for that.
#[pin_data]
pub(crate) struct Lent {
    #[pin]
    charge: Mutex<Option<CgroupCharge>>,
}

impl Lent {
    /// Nothing yet. Allocates, so that [`Lease::take`] need not, under locks.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self { charge <- new_mutex!(None, "Lent::charge") }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Give it back. For the removal, and for who had it.
    pub(crate) fn end(&self) {
        *self.charge.lock() = None;
    }
}

/// A charge until there is a key to keep it. Drop gives it back, and may sleep.
pub(crate) struct Lease {
    id: u64,
    device: Arc<Device>,
    lent: Arc<Lent>,
}

impl Lease {
    /// Charge the cgroup of the caller. `EAGAIN`: over its limit. `ENOMEM`.
    pub(crate) fn take(
        device: &Arc<Device>,
        entry: Entry<Lent>,
        lent: Arc<Lent>,
        _pass: &Pass<'_>,
    ) -> Result<Self> {
        let id = super::device::next_key_id();
        *lent.charge.lock() = Some(CgroupCharge::take(device.ib())?);
        // Ids are never used twice, so there is always room.
        device.leases().insert(entry, id, lent.clone())?;
        Ok(Self {
            id,
            device: device.clone(),
            lent,
        })
    }

    /// There will be a key: have the charge. `ENODEV` if the removal has it.
    pub(crate) fn redeem(self, _pass: &Pass<'_>) -> Result<CgroupCharge> {
        self.lent.charge.lock().take().ok_or(ENODEV)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.lent.end();
        self.device.leases().remove(self.id, &self.lent);
    }
}
