// SPDX-License-Identifier: GPL-2.0

//! The faults of faults.h, by name: for the suites in the kernel, and for the
//! programs that arm them from user space (tools/rdsmr takes this file, too).

/// What the HCA can be made to do wrong; faults.h says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "each side has its own use for them"
)]
pub enum Fault {
    /// Post only the first so many WRs of a chain, and refuse the rest.
    PostCut = 0,
    /// Say that a chain was posted, and do not post it.
    PostLost = 1,
    /// Refuse to deregister.
    Dereg = 2,
    /// Take so many milliseconds for it.
    DeregSlow = 3,
    /// Map one page less than was asked for.
    MapShort = 4,
    /// Refuse to map for DMA.
    DmaMap = 5,
    /// Take so many milliseconds before a chain is posted.
    PostSlow = 6,
    /// Allocate no MR.
    AllocMr = 7,
    /// Let the so-many-th LOCAL_INV of a chain fail, and flush what follows.
    InvWrong = 8,
    /// Poll, and see no completion.
    PollBlind = 9,
    /// Give every MR this key byte.
    KeyByte = 10,
    /// Say that the device is broken, and deregister; for RDS_FREE_MR only.
    DeregFatal = 11,
    /// Let REG_MR complete with an error.
    RegWrong = 12,
}

#[allow(dead_code, unreachable_pub, reason = "as above")]
impl Fault {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::PostCut,
        Self::PostLost,
        Self::Dereg,
        Self::DeregSlow,
        Self::MapShort,
        Self::DmaMap,
        Self::PostSlow,
        Self::AllocMr,
        Self::InvWrong,
        Self::PollBlind,
        Self::KeyByte,
        Self::DeregFatal,
        Self::RegWrong,
    ];
}
