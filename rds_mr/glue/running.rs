// SPDX-License-Identifier: GPL-2.0

//! Start and end of the module.

use super::devices::RdmaClient;
use super::globals;
use super::owner::OwnersGuard;
use super::params;
use super::socket::Socket;
use super::stats::Quarantine;
use super::stats::Stats;
use crate::kern::debugfs::Dir;
use crate::kern::ib::ClientRegistration;
use crate::kern::module;
use crate::kern::sock::FamilyRegistration;
use kernel::prelude::*;

/// All that is registered with the kernel.
///
/// Fields are dropped in this order, which is load-bearing: first nobody can
/// open a socket (none is left, since each holds the module), then all devices
/// are given back, and with them the last keys; then nobody is watched any more.
#[pin_data]
pub(crate) struct Running {
    #[pin]
    _family: FamilyRegistration<Socket>,
    #[pin]
    _client: ClientRegistration<RdmaClient>,
    _owners: OwnersGuard,
    _debugfs: Dir,
}

impl Running {
    /// Check everything that can be checked, then register.
    pub(crate) fn start() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            _: {
                module::check_layout()?;
                params::check()?;
                globals::init();
            },
            _owners: OwnersGuard::new()?,
            _client <- ClientRegistration::new(c"rds_mr"),
            // The last that can fail: once it is there, or the files in debugfs,
            // somebody can hold the module.
            _family <- FamilyRegistration::new(),
            _debugfs: Dir::new(c"rds_mr").file::<Stats>().file::<Quarantine>(),
        }? Error)
    }
}
