// SPDX-License-Identifier: GPL-2.0

//! SIOCRDSMRPROBE: the HCA's own word on whether a key is alive.

use super::device::Device;
use super::params;
use super::socket::Socket;
use crate::kern::gate::Pass;
use crate::kern::ib::probe;
use crate::kern::ib::probe::Target;
use crate::kern::ib::probe::Verdict;
use crate::kern::ib::Access;
use crate::kern::ib::DeregOutcome;
use crate::kern::ib::DmaPages;
use crate::kern::ib::Mr;
use crate::kern::ib::RegOutcome;
use crate::kern::ib::Registration;
use crate::kern::rights;
use crate::kern::uapi::ProbeArgs;
use crate::kern::uapi::RDS_MR_ACCESS_ERROR;
use crate::kern::uapi::RDS_MR_ALIVE;
use crate::policy::driver;
use crate::policy::key::Cookie;
use crate::policy::key::KeyBytes;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::Mutex;

/// A key of our own, always alive: the probe trusts "dead" only between two
/// reads of it that work. Made at the first probe.
#[pin_data]
pub(crate) struct Control {
    #[pin]
    key: Mutex<Option<(Registration, u32)>>,
}

impl Control {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self { key <- new_mutex!(None, "Control::key") })
    }

    /// Its address; makes it if there is none. The lock is held across its
    /// registration, which has a deadline.
    fn target(&self, device: &Device, pass: &Pass<'_>) -> Result<Target> {
        let mut key = self.key.lock();
        if key.is_none() {
            *key = Some((Self::make(device, pass)?, device.driver_id()));
        }
        let (registration, _) = key.as_ref().ok_or(EIO)?;
        Ok(Target {
            rkey: registration.rkey(),
            addr: u64::from(registration.base()),
        })
    }

    fn make(device: &Device, pass: &Pass<'_>) -> Result<Registration> {
        let byte = KeyBytes::new(crate::kern::random::random_u32())
            .next()
            .ok_or(EIO)?;
        let mr = Mr::alloc(&device.pd(pass)?, 1)?;
        let mapped = mr.map(DmaPages::own(device.ib())?, byte)?;
        let queue = device.queue(pass)?;
        match mapped.register(&queue, Access::Read, params::deadline().end_ns()) {
            RegOutcome::Live(registration) => Ok(registration),
            RegOutcome::NotPosted => Err(EIO),
            RegOutcome::Failed(registration, _) => {
                end(registration, device.driver_id());
                Err(EIO)
            }
            RegOutcome::Silent(registration) => {
                // One page of ours, rather than a write to whoever gets it next.
                registration.leak();
                Err(EIO)
            }
        }
    }

    /// The device goes. Sleeps for as long as the driver takes.
    pub(crate) fn end(&self) {
        let key = self.key.lock().take();
        if let Some((registration, driver_id)) = key {
            end(registration, driver_id);
        }
    }
}

fn end(registration: Registration, driver_id: u32) {
    match registration.quiesce_by_dereg(|ms| driver::dereg_is_proof(driver_id, ms)) {
        DeregOutcome::Proven(quiesced) => drop(quiesced),
        DeregOutcome::Refused(registration, _) => registration.leak(),
        DeregOutcome::Unproven => {}
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
    let control = device.control().target(&device, &pass)?;
    let cookie = Cookie::from_raw(args.cookie);
    let target = Target {
        rkey: cookie.rkey(),
        // A wrapped address is outside of every key, like any other.
        addr: u64::from(cookie.offset()).wrapping_add(args.offset),
    };
    let pd = device.pd(&pass)?;
    args.result = match probe::ask(&pd, target, control, params::deadline().end_ns())? {
        Verdict::Alive => RDS_MR_ALIVE,
        Verdict::AccessError => RDS_MR_ACCESS_ERROR,
    };
    Ok(())
}
