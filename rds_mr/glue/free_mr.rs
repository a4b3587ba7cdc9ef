// SPDX-License-Identifier: GPL-2.0

//! RDS_FREE_MR: the end of a key, proven when the call returns 0.

use super::params;
use super::revoke;
use super::socket::Socket;
use crate::kern::uapi::FreeMrArgs;
use crate::policy::cause::Cause;
use crate::policy::key::Cookie;
use kernel::prelude::*;

/// Free the key in `args`. Its flags change nothing: a freed key is always
/// invalidated at once.
///
/// `EINVAL`: not a key of this socket. `EIO`: no proof that the HCA has let go;
/// the key stays, quarantined, and can be freed again.
pub(crate) fn free_mr(socket: &Socket, args: &FreeMrArgs) -> Result {
    if args.cookie == 0 {
        // In-tree: flush what was freed lazily. Nothing is, here.
        return if socket.has_transport() {
            Ok(())
        } else {
            Err(EINVAL)
        };
    }
    let at = u64::from(Cookie::from_raw(args.cookie).rkey());
    let key = socket.keys().get(at).ok_or(EINVAL)?;
    if !revoke::one(&key, Cause::Freed, params::deadline()) {
        return Err(EIO);
    }
    // Of two that free the same key one finds it gone.
    if socket.unlist(&key) {
        Ok(())
    } else {
        Err(EINVAL)
    }
}
