// SPDX-License-Identifier: GPL-2.0

//! The state that all sockets share. Socket and device callbacks come without
//! any context of ours, so these are the only statics of the module.

#![expect(unsafe_code, reason = "global locks must be initialised before use")]

use super::devices::Devices;
use super::owner::Owners;
use super::owner::Reaper;
use super::ports::Ports;
use super::users::Users;
use crate::kern::wq::OwnedQueue;
use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::atomic::Full;
use kernel::sync::Arc;

kernel::sync::global_lock! {
    // SAFETY: `init` runs before the first socket or device.
    pub(crate) unsafe(uninit) static DEVICES: Mutex<Devices> = Devices::new();
}

kernel::sync::global_lock! {
    // SAFETY: `init` runs before the first socket or device.
    pub(crate) unsafe(uninit) static PORTS: Mutex<Ports> = Ports::new();
}

kernel::sync::global_lock! {
    // SAFETY: `init` runs before the first socket or device.
    pub(crate) unsafe(uninit) static USERS: SpinLock<Users> = Users::new();
}

kernel::sync::global_lock! {
    // SAFETY: `init` runs before the first socket or device.
    pub(crate) unsafe(uninit) static CHARGING: Mutex<()> = ();
}

kernel::sync::global_lock! {
    // SAFETY: `init` runs before the first socket or device.
    pub(crate) unsafe(uninit) static OWNERS: SpinLock<Owners> = Owners::new();
}

kernel::sync::global_lock! {
    // SAFETY: `init` runs before the first socket or device.
    pub(crate) unsafe(uninit) static REAPER: Mutex<Option<(OwnedQueue, Arc<Reaper>)>> = None;
}

/// Whether [`init`] has run.
static INITIALISED: Atomic<bool> = Atomic::new(false);

/// Initialise the locks: before the family or the client is registered.
pub(crate) fn init() {
    if !INITIALISED.xchg(true, Full) {
        // SAFETY: Reached once, before anything can use them.
        unsafe {
            DEVICES.init();
            PORTS.init();
            USERS.init();
            CHARGING.init();
            OWNERS.init();
            REAPER.init();
        }
    }
}
