// SPDX-License-Identifier: GPL-2.0

//! The whole of rds_mr once more, with its KUnit suites and the write hammer.
//!
//! Loaded instead of rds_mr.ko: it is the owner of the socket family as well,
//! and serves sockets like the other. The suites run while it is loaded and say
//! what they found in the kernel log (KTAP). Those that start with `rxe` need a
//! device that has the address 10.77.0.1, and are skipped without.

#[path = "../../rds_mr/glue/mod.rs"]
mod glue;
#[path = "../../rds_mr/kern/mod.rs"]
mod kern;
#[path = "../../rds_mr/policy/mod.rs"]
mod policy;
#[path = "../../rds_mr/sys/mod.rs"]
mod sys;

#[macro_use]
mod support;
mod fault;
mod hammer;
mod hammer_dev;
mod keys;
mod peer;
mod raw;

mod kern_gate;
mod kern_layout;
mod policy_addr;
mod policy_driver;
mod policy_key;
mod policy_quota;
mod policy_range;
mod policy_sizes;
mod policy_state;
mod rxe_access;
mod rxe_bounds;
mod rxe_engine;
mod rxe_faults;
mod rxe_isolation;
mod rxe_proof;

use glue::running::Running;
use hammer_dev::HammerFile;
use hammer_dev::NoSlowCopy;
use kernel::miscdevice::MiscDeviceOptions;
use kernel::miscdevice::MiscDeviceRegistration;
use kernel::prelude::*;

module! {
    type: RdsMrKunit,
    name: "rds_mr_kunit",
    authors: ["The rds_mr developers"],
    description: "Tests of rds_mr, for a test kernel only; load it instead of rds_mr",
    license: "GPL",
}

/// The loaded module. Fields are dropped in this order: nobody may open the
/// hammer when the rest goes, and a file that is open holds the module.
#[pin_data]
struct RdsMrKunit {
    #[pin]
    _hammer: MiscDeviceRegistration<HammerFile>,
    _normal_speed: NoSlowCopy,
    #[pin]
    _running: Running,
}

impl kernel::InPlaceModule for RdsMrKunit {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            _running <- Running::start(),
            _normal_speed: NoSlowCopy,
            _hammer <- MiscDeviceRegistration::register(MiscDeviceOptions {
                name: c"rds_mr_test",
            }),
        }? Error)
    }
}
