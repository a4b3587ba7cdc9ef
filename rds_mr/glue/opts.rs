// SPDX-License-Identifier: GPL-2.0

//! Socket options and ioctls: one arm each, and where the work is done.

use super::free_mr::free_mr;
use super::get_mr::get_mr;
use super::key::Key;
use super::probe::probe;
use super::quota;
use super::socket::Socket;
use crate::kern::sock::OptIn;
use crate::kern::sock::OptOut;
use crate::kern::uapi::*;
use crate::policy::addr;
use crate::policy::cause::Cause;
use crate::policy::opts;
use crate::policy::opts::TransportError;
use kernel::prelude::*;
use kernel::uaccess::UserPtr;
use kernel::uaccess::UserSlice;

/// `setsockopt(2)`.
pub(crate) fn set(socket: &Socket, level: i32, name: i32, value: OptIn) -> Result {
    if level != SOL_RDS {
        return Err(ENOPROTOOPT);
    }
    match name {
        RDS_CANCEL_SENT_TO => cancel_sent_to(socket, value),
        RDS_GET_MR => get_mr(socket, &value.read_exact()?),
        RDS_GET_MR_FOR_DEST => get_mr(socket, &value.read_exact::<GetMrForDestArgs>()?.args),
        RDS_FREE_MR => free_mr(socket, &value.read_exact()?),
        RDS_RECVERR => {
            socket.state().lock().recverr = value.read::<i32>()? != 0;
            Ok(())
        }
        // No messages, no congestion: checked, and of no effect.
        RDS_CONG_MONITOR => value.read::<i32>().map(drop),
        SO_RDS_TRANSPORT => set_transport(socket, value),
        SO_RDS_MSG_RXPATH_LATENCY => {
            // In-tree answers EFAULT for every mistake here.
            let traces = value.read_exact().map_err(|_| EFAULT)?;
            if opts::rx_trace_ok(traces) {
                Ok(())
            } else {
                Err(EFAULT)
            }
        }
        SO_TIMESTAMP_OLD | SO_TIMESTAMP_NEW => {
            value.read_exact::<i32>().map(drop).map_err(|_| EFAULT)
        }
        RDS_MR_QUOTA => quota::set(socket, &value.read_exact()?),
        _ => Err(ENOPROTOOPT),
    }
}

/// `getsockopt(2)`.
pub(crate) fn get(socket: &Socket, level: i32, name: i32, value: &mut OptOut<'_>) -> Result {
    if level != SOL_RDS {
        return Err(ENOPROTOOPT);
    }
    match name {
        RDS_RECVERR => {
            let recverr = i32::from(socket.state().lock().recverr);
            value.write(&recverr)
        }
        SO_RDS_TRANSPORT => {
            let transport = if socket.has_transport() {
                RDS_TRANS_IB
            } else {
                RDS_TRANS_NONE
            };
            value.write(&transport)
        }
        RDS_MR_QUOTA => value.write(&quota::get(socket)),
        _ => Err(ENOPROTOOPT),
    }
}

/// `ioctl(2)`; `None` for what is not ours.
pub(crate) fn ioctl(socket: &Socket, cmd: u32, arg: UserPtr) -> Option<Result> {
    Some(match cmd {
        SIOCRDSSETTOS => set_tos(socket, arg)?,
        SIOCRDSGETTOS => {
            let tos = socket.state().lock().tos;
            user(arg, 1).writer().write(&tos)
        }
        SIOCRDSMRGQUOTA => user(arg, size_of::<Quota>())
            .writer()
            .write(&quota::get(socket)),
        SIOCRDSMRSQUOTA => user(arg, size_of::<Quota>())
            .reader()
            .read()
            .and_then(|asked| quota::set(socket, &asked)),
        SIOCRDSMRPROBE => {
            let (mut reader, mut writer) = user(arg, size_of::<ProbeArgs>()).reader_writer();
            reader.read().and_then(|mut args: ProbeArgs| {
                probe(socket, &mut args)?;
                writer.write(&args)
            })
        }
        SIOCRDSMRREVOKED => {
            let (mut reader, mut writer) = user(arg, size_of::<RevokedArgs>()).reader_writer();
            reader
                .read()
                .and_then(|args: RevokedArgs| revoked(socket, &args, |news| writer.write(news)))
        }
        _ => return None,
    })
}

/// Tell one key that was revoked. What cannot be told stays news.
fn revoked(
    socket: &Socket,
    args: &RevokedArgs,
    mut tell: impl FnMut(&RevokedArgs) -> Result,
) -> Result {
    if args.flags != 0 {
        return Err(EINVAL);
    }
    let (key, (cause, proven)) = socket.news().take(Key::take_news).ok_or(EAGAIN)?;
    tell(&RevokedArgs {
        cookie: key.cookie().raw(),
        reason: if cause == Cause::Device {
            RDS_MR_REVOKED_DEVICE
        } else {
            RDS_MR_REVOKED_OWNER
        },
        flags: if proven { 0 } else { RDS_MR_REVOKED_UNPROVEN },
    })
    .inspect_err(|_| key.renew_news())
}

fn user(arg: UserPtr, len: usize) -> UserSlice {
    UserSlice::new(arg, len)
}

/// There is nothing sent that could be cancelled, but the address is checked.
fn cancel_sent_to(socket: &Socket, value: OptIn) -> Result {
    if !socket.is_bound() {
        return Err(ENOTCONN);
    }
    if value.len() < addr::SOCKADDR_IN {
        return Err(EINVAL);
    }
    let (raw, len) = value.read_prefix::<{ addr::MAX_SOCKADDR }>()?;
    addr::parse_cancel(raw.get(..len).unwrap_or(&raw))?;
    Ok(())
}

fn set_transport(socket: &Socket, value: OptIn) -> Result {
    let len = value.len();
    // Read before the lock is taken: reading can block for ever.
    let number = value.read_exact::<i32>().ok();
    let mut state = socket.state().lock();
    opts::transport_request(state.transport, len, number, socket.in_init_net()).map_err(
        |error| match error {
            TransportError::Fault => EFAULT,
            TransportError::Refused(reason) => reason.into(),
        },
    )?;
    state.transport = true;
    Ok(())
}

/// `None` (ENOTTY) without a transport, as in-tree. A TOS can be set once.
fn set_tos(socket: &Socket, arg: UserPtr) -> Option<Result> {
    let tos: u8 = match user(arg, 1).reader().read() {
        Ok(tos) => tos,
        Err(error) => return Some(Err(error)),
    };
    let mut state = socket.state().lock();
    if !state.transport {
        return None;
    }
    if state.tos != 0 {
        return Some(Err(EINVAL));
    }
    state.tos = tos;
    Some(Ok(()))
}
