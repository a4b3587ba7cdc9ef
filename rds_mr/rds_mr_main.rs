// SPDX-License-Identifier: GPL-2.0

//! rds_mr: RDMA keys over AF_RDS that are dead before their memory is let go.
//!
//! Four layers, each using only the ones below it:
//!
//! - `glue`: what the module does. No `unsafe`.
//! - `policy`: pure decisions, also tested in user space. No `unsafe`, no kernel.
//! - `kern`: safe abstractions over sockets, verbs, pinned memory.
//! - `sys`: raw bindings and C helpers.
//!
//! See docs/architecture.md, and docs/guarantee.md for what is promised.

mod glue;
mod kern;
mod policy;
mod sys;

use glue::running::Running;
use kernel::prelude::*;

module! {
    type: RdsMr,
    name: "rds_mr",
    authors: ["The rds_mr developers"],
    description: "RDMA keys over AF_RDS that are dead before their memory is let go",
    license: "GPL",
}

/// The loaded module.
#[pin_data]
struct RdsMr {
    #[pin]
    _running: Running,
}

impl kernel::InPlaceModule for RdsMr {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self { _running <- Running::start() }? Error)
    }
}
