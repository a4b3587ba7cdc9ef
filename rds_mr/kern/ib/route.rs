// SPDX-License-Identifier: GPL-2.0

//! The way from a port back to itself.

use super::IbDevice;
use crate::sys::bindings as raw;
use kernel::error::from_err_ptr;
use kernel::error::to_result;
use kernel::prelude::*;

/// A counted GID table entry.
struct GidAttr(*const raw::ib_gid_attr);

impl GidAttr {
    fn get(device: &IbDevice, port: u32, index: i32) -> Result<Self> {
        // SAFETY: A registered device (rule of `IbDevice`); the function checks
        // port and index.
        let attr = unsafe { raw::rdma_get_gid_attr(device.as_raw(), port, index) }.cast_mut();
        Ok(Self(from_err_ptr(attr)?))
    }

    /// The MAC address of its network device.
    fn mac(&self) -> Result<[u8; 6]> {
        let mut mac = [0; 6];
        // SAFETY: `self.0` is counted; `mac` holds an Ethernet address.
        to_result(unsafe {
            raw::rdma_read_gid_l2_fields(self.0, core::ptr::null_mut(), mac.as_mut_ptr())
        })?;
        Ok(mac)
    }

    fn is_v2(&self) -> bool {
        // SAFETY: `self.0` is counted.
        unsafe { raw::rds_mr_helper_gid_is_roce_v2(self.0) }
    }
}

impl Drop for GidAttr {
    fn drop(&mut self) {
        // SAFETY: Gives back the reference of `get`.
        unsafe { raw::rdma_put_gid_attr(self.0) };
    }
}

/// How a QP of a port reaches a QP of the same port.
///
/// RoCE needs a GID and a MAC address (kernel users resolve the latter
/// themselves), InfiniBand a LID.
pub(crate) struct Route {
    port: u32,
    mtu: raw::ib_mtu,
    lid: u16,
    gid: Option<(GidAttr, [u8; 6])>,
}

impl Route {
    /// The first ACTIVE port that has what it needs; `ENODEV` if none has.
    pub(crate) fn find(device: &IbDevice) -> Result<Self> {
        (1..=device.ports())
            .find_map(|port| Self::of_port(device, port).ok())
            .ok_or(ENODEV)
    }

    fn of_port(device: &IbDevice, port: u32) -> Result<Self> {
        let mut attr = raw::ib_port_attr::default();
        // SAFETY: A registered device; the function checks the port.
        to_result(unsafe { raw::ib_query_port(device.as_raw(), port, &mut attr) })?;
        if attr.state != raw::ib_port_state_IB_PORT_ACTIVE {
            return Err(ENODEV);
        }
        // SAFETY: The query above found the port.
        let roce = unsafe { raw::rds_mr_helper_is_roce(device.as_raw(), port) };
        Ok(Self {
            port,
            mtu: attr.active_mtu,
            // CAST: LIDs have 16 bits on the HCAs that are served.
            lid: attr.lid as u16,
            gid: if roce {
                Some(Self::gid_of_port(device, port)?)
            } else {
                None
            },
        })
    }

    fn gid_of_port(device: &IbDevice, port: u32) -> Result<(GidAttr, [u8; 6])> {
        // SAFETY: The caller found the port.
        let len = unsafe { raw::rds_mr_helper_gid_tbl_len(device.as_raw(), port) };
        (0..i32::try_from(len)?)
            .filter_map(|index| GidAttr::get(device, port, index).ok())
            .filter(GidAttr::is_v2)
            .find_map(|gid| gid.mac().ok().map(|mac| (gid, mac)))
            .ok_or(ENODEV)
    }

    /// The port's number.
    pub(super) fn port(&self) -> u32 {
        self.port
    }

    /// The path MTU.
    pub(super) fn mtu(&self) -> raw::ib_mtu {
        self.mtu
    }

    /// The same way in packets of at most `bytes` (256 to 4096) of payload.
    pub(super) fn in_packets_of(self, bytes: u32) -> Self {
        // `enum ib_mtu` n means 128 << n bytes.
        let mtu = bytes.checked_ilog2().unwrap_or(0).saturating_sub(7);
        let mtu = mtu.max(raw::ib_mtu_IB_MTU_256);
        Self {
            mtu: self.mtu.min(mtu),
            ..self
        }
    }

    /// Fill an address handle that leads back to the port.
    pub(super) fn fill(&self, device: &IbDevice, ah: &mut raw::rdma_ah_attr) {
        let (gid, mac) = match &self.gid {
            Some((gid, mac)) => (gid.0, mac.as_ptr()),
            None => (core::ptr::null(), core::ptr::null()),
        };
        // SAFETY: A registered device and a port of it; on RoCE, where the
        // helper reads them, `gid` is counted and `mac` has six bytes.
        unsafe {
            raw::rds_mr_helper_ah_loopback(ah, device.as_raw(), self.port, self.lid, gid, mac)
        };
    }
}
