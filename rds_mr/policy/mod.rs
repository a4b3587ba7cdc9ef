// SPDX-License-Identifier: GPL-2.0

//! Pure decisions: what is allowed, in which order things are checked, and what happens next.
//!
//! Nothing here knows the kernel. The layer uses `core` only, allocates nothing, takes no lock
//! and reads no clock; the caller brings the numbers and carries out the answer. So the very same
//! files are compiled into the module and into `tests/host`, where they are tested in user space.
//!
//! Rules of the layer: no `unsafe`, and no way to panic, because a panic in the kernel is a
//! `BUG()` and many of the numbers come from unprivileged callers. The lints below hold both.

#![forbid(unsafe_code)]
#![allow(dead_code, reason = "some accessors serve the tests only")]
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    clippy::todo,
    clippy::unreachable,
    clippy::unwrap_used
)]

pub(crate) mod addr;
pub(crate) mod cause;
pub(crate) mod deadline;
pub(crate) mod driver;
pub(crate) mod error;
pub(crate) mod key;
pub(crate) mod limits;
pub(crate) mod mr_state;
pub(crate) mod opts;
pub(crate) mod ports;
pub(crate) mod quota;
pub(crate) mod range;
pub(crate) mod sizes;
