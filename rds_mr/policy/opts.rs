// SPDX-License-Identifier: GPL-2.0

//! Socket options whose checks have a fixed order (`net/rds/af_rds.c`).

use super::error::Error;

/// `RDS_TRANS_IB`: the only transport there is.
const TRANS_IB: i32 = 0;

/// `RDS_TRANS_TCP`: known to RDS in every network namespace, but not provided.
const TRANS_TCP: i32 = 2;

/// `RDS_TRANS_COUNT`.
const TRANS_COUNT: i32 = 3;

/// `RDS_MSG_RX_DGRAM_TRACE_MAX`: the points of a message's way that can be traced.
const RX_TRACE_MAX: u8 = 3;

/// Why `SO_RDS_TRANSPORT` is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransportError {
    /// The value could not be read (`EFAULT`).
    Fault,
    /// The request itself is refused.
    Refused(Error),
}

impl From<Error> for TransportError {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// Decides on `SO_RDS_TRANSPORT`; `Ok` attaches the socket to InfiniBand.
///
/// `attached` tells whether the socket has a transport already, `len` is the length of the
/// option, `value` the number read or `None` if that faulted, `init_net` whether the socket
/// lives in the initial network namespace.
///
/// # Errors
///
/// In this order: [`Error::NotSupported`] if already attached, [`Error::Invalid`] for a wrong
/// length, [`TransportError::Fault`], [`Error::Invalid`] for a number that is no transport,
/// [`Error::ProtoType`] for anything but TCP outside the initial namespace,
/// [`Error::NoProtoOpt`] for a transport that does not exist here.
pub(crate) fn transport_request(
    attached: bool,
    len: usize,
    value: Option<i32>,
    init_net: bool,
) -> Result<(), TransportError> {
    if attached {
        return Err(Error::NotSupported.into());
    }
    if len != size_of::<i32>() {
        return Err(Error::Invalid.into());
    }
    let transport = value.ok_or(TransportError::Fault)?;
    if !(0..TRANS_COUNT).contains(&transport) {
        return Err(Error::Invalid.into());
    }
    if transport != TRANS_TCP && !init_net {
        return Err(Error::ProtoType.into());
    }
    if transport != TRANS_IB {
        return Err(Error::NoProtoOpt.into());
    }
    Ok(())
}

/// Returns whether a `struct rds_rx_trace_so` (a count and three trace points) makes sense.
///
/// Points beyond the count are not looked at.
pub(crate) fn rx_trace_ok(bytes: [u8; 4]) -> bool {
    let [count, points @ ..] = bytes;
    count <= RX_TRACE_MAX
        && points
            .iter()
            .take(usize::from(count))
            .all(|&point| point < RX_TRACE_MAX)
}
