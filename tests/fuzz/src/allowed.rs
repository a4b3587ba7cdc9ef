// SPDX-License-Identifier: GPL-2.0
//! The errnos that docs/errno.md allows for each call, and those of the socket
//! layer before it.

use crate::call::Call;
use rdsmr::abi::*;
use rdsmr::errno::*;

/// Of any call: no such descriptor, or memory that is not there.
const SOCKET_LAYER: &[i32] = &[EBADF, EFAULT, EINVAL];

const GET_MR: &[i32] = &[
    ENOTCONN, EPERM, EMSGSIZE, EAGAIN, ENOMEM, EOPNOTSUPP, EBUSY, ENODEV, EIO,
];

fn of_option(level: i32, option: i32) -> &'static [i32] {
    match option {
        _ if level != SOL_RDS => &[ENOPROTOOPT],
        RDS_GET_MR | RDS_GET_MR_FOR_DEST => GET_MR,
        RDS_FREE_MR => &[EIO],
        RDS_MR_QUOTA => &[EPERM],
        RDS_CANCEL_SENT_TO => &[ENOTCONN],
        SO_RDS_TRANSPORT => &[EOPNOTSUPP, EPROTOTYPE, ENOPROTOOPT],
        RDS_RECVERR
        | RDS_CONG_MONITOR
        | SO_RDS_MSG_RXPATH_LATENCY
        | SO_TIMESTAMP_OLD
        | SO_TIMESTAMP_NEW => &[],
        _ => &[ENOPROTOOPT],
    }
}

/// Options without a meaning of ours must say so, whatever else is wrong with
/// the call, as far as the socket layer lets it come to us.
fn must_fail(call: &Call) -> bool {
    let (level, option) = (call.arg("level") as i32, call.arg("opt") as i32);
    call.name() == "set" && of_option(level, option) == [ENOPROTOOPT]
        || call.name() == "get" && !is_readable(level, option)
}

fn is_readable(level: i32, option: i32) -> bool {
    level == SOL_RDS && [RDS_RECVERR, SO_RDS_TRANSPORT, RDS_MR_QUOTA].contains(&option)
}

fn own(call: &Call) -> &'static [i32] {
    match call.name() {
        "socket" => &[ESOCKTNOSUPPORT, ENOMEM],
        "bind" | "open" => &[EADDRNOTAVAIL, ENOPROTOOPT, ENOMEM, EADDRINUSE],
        "connect" => &[EAFNOSUPPORT, EDESTADDRREQ, EPROTOTYPE],
        "getname" => &[ENOTCONN],
        "set" => of_option(call.arg("level") as i32, call.arg("opt") as i32),
        "get" if !is_readable(call.arg("level") as i32, call.arg("opt") as i32) => &[ENOPROTOOPT],
        "get_mr" => GET_MR,
        "free_mr" => &[EIO],
        "quota" => &[EPERM],
        "probe" => &[EPERM, ENOTCONN, ENODEV, ENOMEM, EIO],
        "ioctl" => match call.arg("cmd") as u32 {
            SIOCRDSMRSQUOTA => &[EPERM],
            SIOCRDSMRPROBE => &[EPERM, ENOTCONN, ENODEV, ENOMEM, EIO],
            // Told keys, where the module has that; nobody's command elsewhere.
            0x89eb => &[EAGAIN, ENOTTY],
            _ => &[ENOTTY],
        },
        "send" => &[ENOTCONN, EOPNOTSUPP],
        "recv" | "misc" => &[EOPNOTSUPP, ENODEV],
        _ => &[],
    }
}

/// Levels and commands that tweaks lead to and that are not this module's.
fn is_not_ours(call: &Call) -> bool {
    const SOL_SOCKET: i32 = 1;
    match call.name() {
        "set" | "get" => call.arg("level") as i32 == SOL_SOCKET,
        "ioctl" => call.arg("cmd") as u32 & !0xf != SIOCRDSSETTOS,
        _ => false,
    }
}

/// What is wrong with the outcome of a call, if anything: `Err` is an errno.
pub fn judge(call: &Call, outcome: Result<(), i32>) -> Option<String> {
    match outcome {
        _ if is_not_ours(call) => None,
        Ok(()) if must_fail(call) => Some("success, where docs/errno.md has ENOPROTOOPT".into()),
        Ok(()) => None,
        Err(errno) if SOCKET_LAYER.contains(&errno) || own(call).contains(&errno) => None,
        Err(errno) => Some(format!(
            "{}, which docs/errno.md does not allow",
            name(errno)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_documented_passes_and_what_is_not_does_not() {
        let call = |line| Call::parse(line).unwrap();
        let free = call("free_mr s=0 cookie=0 xor=0 flags=0 at=arg-0x10 len=16");
        assert_eq!(judge(&free, Ok(())), None);
        assert_eq!(judge(&free, Err(EIO)), None);
        assert!(judge(&free, Err(ENOMEM)).is_some());
        let unknown = call("set s=0 level=276 opt=4 at=arg-0x10 len=16 value=0");
        assert_eq!(judge(&unknown, Err(ENOPROTOOPT)), None);
        assert!(judge(&unknown, Ok(())).is_some());
        let foreign = call("set s=0 level=1 opt=4 at=arg-0x10 len=16 value=0");
        assert_eq!(judge(&foreign, Ok(())), None);
    }
}
