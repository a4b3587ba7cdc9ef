// SPDX-License-Identifier: GPL-2.0

//! `bind(2)`: which HCA serves this socket.

use super::device::Device;
use super::globals::DEVICES;
use super::ports::Claim;
use super::socket::Socket;
use crate::kern::ib;
use crate::policy::addr;
use crate::policy::addr::Addr;
use crate::policy::error::Error as Reason;
use kernel::prelude::*;
use kernel::sync::Arc;

/// A bound address and the device that it belongs to.
pub(crate) struct Bound {
    claim: Claim,
    device: Arc<Device>,
}

impl Bound {
    pub(crate) fn addr(&self) -> Addr {
        self.claim.addr()
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

/// Bind `socket` to the sockaddr in `raw`; errors as net/rds/bind.c has them,
/// in its order.
pub(crate) fn bind(socket: &Socket, raw: &[u8]) -> Result {
    let mut state = socket.state().lock();
    if state.bound.is_some() {
        return Err(EINVAL);
    }
    // No HCA at that address: the answer depends on whether the application
    // has asked for this transport by name.
    let no_device = if state.transport {
        ENOPROTOOPT
    } else {
        EADDRNOTAVAIL
    };
    let addr = addr::parse_bind(raw).map_err(|reason| match reason {
        Reason::AddrNotAvail => no_device,
        other => other.into(),
    })?;
    if state.peer.is_some_and(|peer| !addr.is_on_link_of(&peer)) {
        return Err(EINVAL);
    }
    let device = device_of(addr, socket.in_init_net()).map_err(|error| {
        if error == ENOMEM {
            error
        } else {
            no_device
        }
    })?;
    let claim = Claim::new(addr)?;
    device.start_refill();
    state.bound = Some(Bound { claim, device });
    state.transport = true;
    Ok(())
}

fn device_of(addr: Addr, init_net: bool) -> Result<Arc<Device>> {
    if !init_net {
        return Err(EPROTOTYPE);
    }
    let mut sockaddr = [0; addr::MAX_SOCKADDR];
    Addr { port: 0, ..addr }.encode(&mut sockaddr);
    ib::device_of_address(&sockaddr, |ib| DEVICES.lock().find(ib).ok_or(ENODEV))
}
