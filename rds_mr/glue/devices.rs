// SPDX-License-Identifier: GPL-2.0

//! All devices that we serve.

use super::device::Device;
use super::globals::DEVICES;
use crate::kern::ib::Client;
use crate::kern::ib::IbDevice;
use kernel::alloc::KVec;
use kernel::prelude::*;
use kernel::sync::Arc;

/// The list of devices. Lives in [`DEVICES`].
pub(crate) struct Devices(pub(crate) KVec<Arc<Device>>);

impl Devices {
    /// No device yet.
    pub(crate) const fn new() -> Self {
        Self(KVec::new())
    }

    /// The device that we serve for `ib`.
    pub(crate) fn find(&self, ib: &IbDevice) -> Option<Arc<Device>> {
        self.0
            .iter()
            .find(|device| device.ib().id() == ib.id())
            .cloned()
    }
}

/// The module as a client of the RDMA core.
pub(crate) struct RdmaClient;

impl RdmaClient {
    fn take_into_service(ib: &IbDevice) -> Result<Arc<Device>> {
        let device = Device::new(ib)?;
        DEVICES.lock().0.push(device.clone(), GFP_KERNEL)?;
        Ok(device)
    }
}

impl Client for RdmaClient {
    type Data = Arc<Device>;

    fn add(ib: &IbDevice) -> Result<Arc<Device>> {
        let device = Self::take_into_service(ib).inspect_err(|error| {
            pr_info!("{:?}: not served ({:?})\n", ib.name(), error);
        })?;
        pr_info!("{:?}: served, proof {:?}\n", ib.name(), device.proof());
        Ok(device)
    }

    fn remove(device: Arc<Device>) {
        let mut devices = DEVICES.lock();
        devices.0.retain(|other| !Arc::ptr_eq(other, &device));
        if devices.0.is_empty() {
            // A static is never dropped, and an empty vector keeps its memory.
            *devices = Devices::new();
        }
        drop(devices);
        device.remove();
    }
}
