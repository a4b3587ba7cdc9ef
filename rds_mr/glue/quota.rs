// SPDX-License-Identifier: GPL-2.0

//! The quota of a socket, by option or by ioctl.

use super::params;
use super::socket::Socket;
use crate::kern::rights;
use crate::kern::uapi::Quota;
use crate::policy::error::Error as Reason;
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
    let ceiling = params::socket_limits();
    socket.account().change_limits(|current| {
        let resolve = |privileged| {
            quota::resolve_quota(
                asked.max_keys,
                asked.flags,
                asked.max_pages,
                current,
                ceiling,
                privileged,
            )
        };
        // The right is asked for only when it is needed: asking leaves traces.
        match resolve(false) {
            Err(Reason::Perm) if rights::net_admin() => Ok(resolve(true)?),
            other => Ok(other?),
        }
    })
}
