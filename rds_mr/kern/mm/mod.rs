// SPDX-License-Identifier: GPL-2.0

//! User memory: pinning it, and accounting for it.

mod account;
mod pinned;

pub(crate) use account::Memlock;
pub(crate) use pinned::PinnedPages;
