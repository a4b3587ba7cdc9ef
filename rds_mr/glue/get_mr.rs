// SPDX-License-Identifier: GPL-2.0

//! RDS_GET_MR: a key for a piece of the caller's memory.
//!
//! The order is part of the contract: copy in, check, watch the memory's end,
//! charge, pin, then with a pass of the device [map, register, publish], then
//! copy the cookie out. The steps that can block for ever (FUSE, userfaultfd)
//! hold nothing.

use super::account::Charge;
use super::account::Place;
use super::device::Device;
use super::key::Holdings;
use super::key::Key;
use super::lease::Lease;
use super::lease::Lent;
use super::params;
use super::register::expose;
use super::register::Entries;
use super::register::EAGAIN_ENGINE;
use super::revoke;
use super::slot::Slot;
use super::socket::Socket;
use super::table::Entry;
use crate::kern::ib::Access;
use crate::kern::ib::DmaPages;
use crate::kern::mm::PinnedPages;
use crate::kern::rights;
use crate::kern::uapi::GetMrArgs;
use crate::kern::uapi::RDS_RDMA_READWRITE;
use crate::policy::cause::Cause;
use crate::policy::deadline::Deadline;
use crate::policy::key::Cookie;
use crate::policy::range::PageSpan;
use crate::policy::range::UserRange;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::uaccess::UserPtr;
use kernel::uaccess::UserSlice;

/// How often a registration is tried when somebody else's error flushed it.
const TRIES: usize = 3;

/// Register the memory that `args` names; see docs/errno.md for what it returns.
pub(crate) fn get_mr(socket: &Socket, args: &GetMrArgs) -> Result {
    let device = socket.device()?;
    let range = UserRange::new(args.vec.addr, args.vec.bytes)?;
    if !rights::can_lock_memory() {
        return Err(EPERM);
    }
    let span = range.span()?;
    let write = args.flags & RDS_RDMA_READWRITE != 0 || !params::strict_access();

    let mut deadline = None;
    let (key, cookie) = (0..TRIES)
        .find_map(
            |_| match register(socket, &device, span, write, &mut deadline) {
                Err(error) => {
                    device.look_after_mrs();
                    (error != EAGAIN_ENGINE).then_some(Err(error))
                }
                other => Some(other),
            },
        )
        .unwrap_or(Err(EIO))?;
    device.start_refill();

    if args.cookie_addr == 0 {
        return Ok(());
    }
    let written = usize::try_from(args.cookie_addr)
        .map_err(Error::from)
        .and_then(|addr| {
            UserSlice::new(UserPtr::from_addr(addr), size_of::<u64>())
                .writer()
                .write(&cookie.raw())
        });
    match written {
        // The device went meanwhile, and the key with it.
        Ok(()) if device.is_gone() && key.wait(params::deadline()) => {
            socket.unlist(&key);
            Err(ENODEV)
        }
        Ok(()) => Ok(()),
        Err(_) => {
            if revoke::one(&key, Cause::Freed, params::deadline()) {
                socket.unlist(&key);
            }
            Err(EFAULT)
        }
    }
}

fn register(
    socket: &Socket,
    device: &Arc<Device>,
    span: PageSpan,
    write: bool,
    deadline: &mut Option<Deadline>,
) -> Result<(Arc<Key>, Cookie)> {
    // Before the first pin: from here on the end of the memory ends the key.
    let owner = socket.current_owner()?;
    let (entries, of_socket) = (Entries::owned()?, Entry::new()?);
    let (charge, place, lease) = charge(socket, device, span)?;
    let slot = Slot::new(socket.news().clone(), place);
    let pages = PinnedPages::pin(usize::try_from(span.first())?, span.pages() as usize, write)?;

    let pass = device.enter()?;
    let cgroup = lease.redeem(&pass)?;
    // Not before the pinning, which may take for ever.
    let deadline = *deadline.get_or_insert_with(params::deadline);
    let queue = device.queue(&pass)?;
    let dma = DmaPages::map(device.ib(), pages, span.offset(), span.bytes())?;
    let idle = device.pool().take(&device.pd(&pass)?, span.pages())?;
    let mapped = idle.mr.map(dma, idle.byte)?;
    let cookie = Cookie::new(mapped.rkey(), mapped.base());
    let holdings = Holdings {
        charge,
        cgroup,
        owner,
        slot,
    };
    let key = Key::new(device, cookie, idle.rest, span.pages(), Some(holdings))?;
    let access = if write {
        Access::ReadWrite
    } else {
        Access::Read
    };
    expose(entries, &key, mapped, &queue, access, deadline)?;
    let listed = socket.list(of_socket, &key);
    // The queue holds verbs objects, which must not outlive the pass.
    drop(queue);
    drop(pass);
    if listed.is_err() {
        // A revoked or quarantined key has the same number: this one cannot be told apart.
        revoke::one(&key, Cause::Freed, deadline);
        return Err(EAGAIN_ENGINE);
    }
    Ok((key, cookie))
}

/// Charge the key to everybody who has a limit. The device may go away after it.
fn charge(socket: &Socket, device: &Arc<Device>, span: PageSpan) -> Result<(Charge, Place, Lease)> {
    let (entry, lent) = (Entry::new()?, Lent::new()?);
    let pass = device.enter()?;
    let pages = u64::from(span.pages());
    Charge::take(socket.account(), device.account(), pages, || {
        Lease::take(device, entry, lent, &pass)
    })
}
