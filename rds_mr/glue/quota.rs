// SPDX-License-Identifier: GPL-2.0

//! The quota of a socket, by option or by ioctl.

use super::params;
use super::socket::Socket;
use crate::kern::rights;
use crate::kern::uapi::Quota;
use crate::policy::quota;
use kernel::prelude::*;

/// The limits in force.
pub(crate) fn get(socket: &Socket) -> Quota {
    let limits = socket.account().limits();
    Quota {
        max_keys: u32::try_from(limits.keys).unwrap_or(u32::MAX),
        flags: 0,
        max_pages: limits.pages,
    }
}

/// Change them. `EINVAL`: unknown flags. `EPERM`: above the ceiling.
pub(crate) fn set(socket: &Socket, asked: &Quota) -> Result {
    let limits = quota::resolve_quota(
        asked.max_keys,
        asked.flags,
        asked.max_pages,
        socket.account().limits(),
        params::socket_limits(),
        rights::net_admin(),
    )?;
    socket.account().set_limits(limits);
    Ok(())
}
