// SPDX-License-Identifier: GPL-2.0
//! What a program needs to own RDMA keys through `rds_mr.ko`, and what a test
//! needs to look behind it.
//!
//! The calls are as thin as the system calls below them: every failure is the
//! errno that the kernel gave. Addresses are plain numbers, because the kernel
//! is the one that judges them and because half of the callers are tests that
//! pass bad ones. Memory behind a key changes under a remote peer's hands, so it
//! lies outside of what Rust's references promise: register a [`Mapping`], which
//! hands its bytes out as atomics only, and never the inside of a Rust object.

pub mod abi;
pub mod addr;
pub mod area;
pub mod attribute;
pub mod death;
pub mod errno;
#[path = "../../../tests/kunit/fault.rs"]
pub mod fault;
pub mod fd;
pub mod fuse;
pub mod hammer;
pub mod inject;
pub mod kmod;
pub mod kmsg;
pub mod link;
pub mod mem;
pub mod process;
pub mod rng;
pub mod socket;
pub mod stat;
pub mod tap;
pub mod trace;
pub mod uffd;
pub mod volume;

pub use area::Area;
pub use fault::Fault;
pub use hammer::{Armed, Hammer};
pub use mem::{Mapping, PAGE};
pub use process::{spawn, Child, Link, Status};
pub use socket::{Access, Socket};
use std::io;
pub use uffd::Faults;
pub use volume::Volume;

/// The result of a libc call that says -1 for "look at errno".
pub(crate) fn check<T: PartialEq + From<i8>>(value: T) -> io::Result<T> {
    if value == T::from(-1) {
        Err(io::Error::last_os_error())
    } else {
        Ok(value)
    }
}
