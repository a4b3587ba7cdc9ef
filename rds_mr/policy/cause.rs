// SPDX-License-Identifier: GPL-2.0

//! Who wants a key dead.

/// The first of those who wanted a key dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The application has freed it, or has never learnt of it.
    Freed,
    /// Its socket was closed.
    Closed,
    /// The memory that it opens is about to go: the process that registered it ended, or has
    /// called exec.
    Owner,
    /// Its HCA is about to go.
    Device,
}

impl Cause {
    /// Returns whether the application did not ask for it, and so should be told.
    pub(crate) fn is_revocation(self) -> bool {
        match self {
            Self::Owner | Self::Device => true,
            Self::Freed | Self::Closed => false,
        }
    }

    /// Returns whether to wait also for a key that somebody else has waited for in vain.
    ///
    /// A process that dies closes its sockets one after the other, after its memory: each would
    /// wait for the same HCA once more.
    pub(crate) fn waits_for_overdue(self) -> bool {
        self != Self::Closed
    }
}
