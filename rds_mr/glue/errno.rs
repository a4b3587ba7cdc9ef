// SPDX-License-Identifier: GPL-2.0

//! The one place where reasons become errnos. See docs/errno.md.

use crate::policy::error::Error as Reason;
use kernel::prelude::*;

impl From<Reason> for Error {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Invalid => EINVAL,
            Reason::MessageSize => EMSGSIZE,
            Reason::Again => EAGAIN,
            Reason::Perm => EPERM,
            Reason::AddrNotAvail => EADDRNOTAVAIL,
            Reason::AddrInUse => EADDRINUSE,
            Reason::AddrRequired => EDESTADDRREQ,
            Reason::ProtoType => EPROTOTYPE,
            Reason::NoFamily => EAFNOSUPPORT,
            Reason::NotSupported => EOPNOTSUPP,
            Reason::NoProtoOpt => ENOPROTOOPT,
        }
    }
}
