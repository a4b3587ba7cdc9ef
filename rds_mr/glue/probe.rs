// SPDX-License-Identifier: GPL-2.0

//! SIOCRDSMRPROBE: the HCA's own word on whether a key is alive.

use super::device::Device;
use super::key::Key;
use super::params;
use super::register::expose;
use super::register::Entries;
use super::socket::Socket;
use crate::kern::gate::Pass;
use crate::kern::ib::probe;
use crate::kern::ib::probe::Target;
use crate::kern::ib::probe::Verdict;
use crate::kern::ib::Access;
use crate::kern::ib::DmaPages;
use crate::kern::rights;
use crate::kern::uapi::ProbeArgs;
use crate::kern::uapi::RDS_MR_ACCESS_ERROR;
use crate::kern::uapi::RDS_MR_ALIVE;
use crate::policy::key::Cookie;
use crate::policy::mr_state::State;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::sync::Mutex;

/// A key of our own, always alive: the probe trusts "dead" only between two
/// reads of it that work. Made at the first probe, and again when it has ended.
#[pin_data]
pub(crate) struct Control {
    #[pin]
    key: Mutex<Option<Arc<Key>>>,
}

impl Control {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self { key <- new_mutex!(None, "Control::key") })
    }

    /// Its address; makes it if there is none. The lock is held across its
    /// registration, which has a deadline.
    fn target(&self, device: &Arc<Device>, pass: &Pass<'_>) -> Result<Target> {
        let mut control = self.key.lock();
        // Many may have waited here: do not keep `remove` waiting for each.
        if device.is_gone() {
            return Err(ENODEV);
        }
        let alive = control.take().filter(|key| key.state() == State::Live);
        let key = match alive {
            Some(key) => key,
            None => make(device, pass)?,
        };
        let target = target(key.cookie(), 0);
        *control = Some(key);
        Ok(target)
    }

    /// The device goes, and ends the key like any other.
    pub(crate) fn forget(&self) {
        let key = self.key.lock().take();
        drop(key);
    }
}

/// `EIO`: the HCA does not register it.
fn make(device: &Arc<Device>, pass: &Pass<'_>) -> Result<Arc<Key>> {
    let entries = Entries::ours()?;
    let queue = device.queue(pass)?;
    let idle = device.pool().take(&device.pd(pass)?, 1)?;
    let mapped = idle.mr.map(DmaPages::own(device.ib())?, idle.byte)?;
    let cookie = Cookie::new(mapped.rkey(), mapped.base());
    let key = Key::new(device, cookie, idle.rest, 1, None)?;
    let deadline = params::deadline();
    expose(entries, &key, mapped, &queue, Access::Read, deadline).map_err(|_| EIO)?;
    Ok(key)
}

/// The byte at `offset` from the start of what `cookie` names.
fn target(cookie: Cookie, offset: u64) -> Target {
    Target {
        rkey: cookie.rkey(),
        // A wrapped address is outside of every key, like any other.
        addr: u64::from(cookie.offset()).wrapping_add(offset),
    }
}

/// Answer `args`; the verdict goes into `result`.
///
/// `EPERM`: no CAP_NET_ADMIN. `EINVAL`: unknown flags. `ENOTCONN`: not bound.
/// `ENODEV`: the device has gone. `EIO`: no verdict.
pub(crate) fn probe(socket: &Socket, args: &mut ProbeArgs) -> Result {
    if !rights::net_admin() {
        return Err(EPERM);
    }
    if args.flags != 0 {
        return Err(EINVAL);
    }
    let device = socket.device()?;
    let pass = device.enter()?;
    let control = device.control().target(&device, &pass);
    let control = control.inspect_err(|_| device.look_after_mrs())?;
    let target = target(Cookie::from_raw(args.cookie), args.offset);
    let pd = device.pd(&pass)?;
    args.result = match probe::ask(&pd, target, control, params::deadline().end_ns())? {
        Verdict::Alive => RDS_MR_ALIVE,
        Verdict::AccessError => RDS_MR_ACCESS_ERROR,
    };
    Ok(())
}
