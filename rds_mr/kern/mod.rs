// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over the kernel facilities that the kernel crate lacks.
//!
//! With `sys`, the only place for `unsafe` and for bindings. Nothing in here
//! knows what RDS is or what the rules for keys are.

pub(crate) mod debugfs;
pub(crate) mod gate;
pub(crate) mod ib;
pub(crate) mod mm;
pub(crate) mod module;
pub(crate) mod random;
pub(crate) mod rights;
pub(crate) mod sock;
pub(crate) mod time;
pub(crate) mod uapi;
pub(crate) mod wq;
