// SPDX-License-Identifier: GPL-2.0

//! RDMA verbs: devices, protection domains, send queues, memory regions.
//!
//! How they depend on each other, and so the order in which they must go:
//! [`Registration`]/[`Mr`] and [`SendQueue`] before their [`Pd`], and all of
//! them before `ib_client.remove` returns.

mod cgroup;
mod client;
mod cm;
mod device;
mod dma;
mod fatal;
mod invalidate;
mod mr;
mod pd;
pub(crate) mod probe;
pub(crate) mod qp;
mod route;
mod sq;
mod wr;

use kernel::prelude::*;

/// What the error of a driver means to those who call us. Its numbers are its own
/// (rxe says ENFILE, others EAGAIN), and some mean something else in a socket API.
fn of_driver(error: Error) -> Error {
    if error == ENOMEM {
        ENOMEM
    } else {
        EIO
    }
}

pub(crate) use cgroup::CgroupCharge;
pub(crate) use client::Client;
pub(crate) use client::ClientRegistration;
pub(crate) use cm::device_of_address;
pub(crate) use device::IbDevice;
pub(crate) use dma::DmaPages;
pub(crate) use fatal::FatalWatch;
pub(crate) use invalidate::Invalidated;
pub(crate) use mr::Access;
pub(crate) use mr::DeregOutcome;
pub(crate) use mr::MappedMr;
pub(crate) use mr::Mr;
pub(crate) use mr::Quiesced;
pub(crate) use mr::RegOutcome;
pub(crate) use mr::Registration;
pub(crate) use pd::Pd;
pub(crate) use route::Route;
pub(crate) use sq::SendQueue;
pub(crate) use sq::CHAIN;
pub(crate) use wr::Outcome;
pub(crate) use wr::Wr;
pub(crate) use wr::FLUSHED;
