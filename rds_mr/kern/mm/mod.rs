// SPDX-License-Identifier: GPL-2.0

//! User memory: pinning it, accounting for it, and being told of its end.

mod account;
mod pinned;
mod process;
mod watch;

pub(crate) use account::Memlock;
pub(crate) use pinned::PinnedPages;
pub(crate) use process::Process;
pub(crate) use watch::current_mm_id;
pub(crate) use watch::MmEnd;
pub(crate) use watch::MmWatch;
