// SPDX-License-Identifier: GPL-2.0

//! What the module does: the sockets, the keys, the devices.
//!
//! Here `policy` decides and `kern` acts. No `unsafe`, no bindings.
//!
//! Lock order, outermost first; each may be taken without the ones before it:
//!
//! 1. `Socket::state`, `Control::key`
//! 2. `globals::PORTS`, `globals::DEVICES`
//! 3. `Device::making`, then `Device::pd`; `Device::fatal` alone
//! 4. `Device::workers`, `globals::REAPER`, `globals::CHARGING`, `Lent::charge`
//! 5. `Device::todo`, `Table::tree` or `News::list`, then `Key::inner`;
//!    `Pool::idle`, `Pd::unwilling`, `Device::queue`, `Socket::owner`,
//!    `globals::OWNERS` alone
//! 6. `Account::ledger` of a socket, `globals::USERS`, `Account::ledger` of a
//!    device, in this order
//!
//! Those of 5 and 6 are spinlocks. No lock is held across pinning or a copy to
//! or from user space. Two are held across a wait that has an end:
//! `Socket::state` while rdma_cm looks an address up, `Control::key` and
//! `Device::making` while something is made at the HCA. The end of a process's
//! memory (`owner`) takes none of these.

#![deny(unsafe_code)]

pub(crate) mod account;
pub(crate) mod bind;
pub(crate) mod device;
pub(crate) mod devices;
pub(crate) mod errno;
pub(crate) mod free_mr;
pub(crate) mod get_mr;
pub(crate) mod globals;
pub(crate) mod key;
pub(crate) mod lease;
pub(crate) mod news;
pub(crate) mod opts;
pub(crate) mod owner;
pub(crate) mod params;
pub(crate) mod pool;
pub(crate) mod ports;
pub(crate) mod probe;
pub(crate) mod quota;
pub(crate) mod register;
pub(crate) mod revoke;
pub(crate) mod running;
pub(crate) mod slot;
pub(crate) mod socket;
pub(crate) mod stats;
pub(crate) mod table;
pub(crate) mod users;
