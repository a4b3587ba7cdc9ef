// SPDX-License-Identifier: GPL-2.0

//! What the module does: the sockets, the keys, the devices.
//!
//! Here `policy` decides and `kern` acts. No `unsafe`, no bindings.
//!
//! Lock order, outermost first; each may be taken without the ones before it:
//!
//! 1. `Socket::state`, `Control::key`
//! 2. `globals::PORTS`, `globals::DEVICES`
//! 3. `Device::resources`
//! 4. `Device::workers`
//! 5. `Device::todo` or `KeyTable::tree`, then `Key::inner`; `Pool::idle` and
//!    `Device::queue` alone
//! 6. `Account::ledger` of a socket, `globals::USERS`, `Account::ledger` of a
//!    device, in this order
//!
//! Those of 5 and 6 are spinlocks. No lock is held across pinning or a copy to
//! or from user space. Two are held across a wait that has an end:
//! `Socket::state` while rdma_cm looks an address up, `Control::key` and
//! `Device::resources` while something is made at the HCA; who must not wait for
//! that, tries the lock.

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
pub(crate) mod opts;
pub(crate) mod params;
pub(crate) mod pool;
pub(crate) mod ports;
pub(crate) mod probe;
pub(crate) mod quota;
pub(crate) mod revoke;
pub(crate) mod running;
pub(crate) mod socket;
pub(crate) mod table;
pub(crate) mod users;
