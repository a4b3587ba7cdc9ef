// SPDX-License-Identifier: GPL-2.0

//! What the module does: the sockets, the keys, the devices.
//!
//! Here `policy` decides and `kern` acts. No `unsafe`, no bindings.
//!
//! Lock order, outermost first; each may be taken without the ones before it:
//!
//! 1. `Socket::bound`
//! 2. `globals::PORTS`
//! 3. `globals::DEVICES`
//! 4. `Device::resources`
//! 5. `KeyTable::tree`
//! 6. `Key::inner`
//! 7. `Account::ledger` (of a socket), `globals::USERS`, `Account::ledger` (of a device)
//! 8. `Pool::idle`
//!
//! None is held across pinning, a copy to or from user space, or a wait for the
//! HCA; `Socket::bound` is held across rdma_cm's look-up of an address.

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
