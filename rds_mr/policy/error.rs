// SPDX-License-Identifier: GPL-2.0

//! Why a request is refused.

/// A refusal, one variant for each errno that this layer can cause.
///
/// The numbers stay outside: the glue holds the one table that maps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// The request makes no sense (`EINVAL`).
    Invalid,
    /// The buffer is larger than one key may cover (`EMSGSIZE`).
    MessageSize,
    /// A quota or a ceiling is used up; it may succeed later (`EAGAIN`).
    Again,
    /// The caller lacks the right (`EPERM`).
    Perm,
    /// The address is not one this family serves (`EADDRNOTAVAIL`).
    AddrNotAvail,
    /// Another socket has the address and port (`EADDRINUSE`).
    AddrInUse,
    /// A destination address is missing (`EDESTADDRREQ`).
    AddrRequired,
    /// The address or transport is of the wrong kind for this socket (`EPROTOTYPE`).
    ProtoType,
    /// The address belongs to another family (`EAFNOSUPPORT`).
    NoFamily,
    /// The operation is not available here (`EOPNOTSUPP`).
    NotSupported,
    /// The option, or what it asks for, does not exist (`ENOPROTOOPT`).
    NoProtoOpt,
}
