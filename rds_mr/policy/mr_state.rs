// SPDX-License-Identifier: GPL-2.0

//! The life of one key, as a table: what is, what happens, what follows.
//!
//! ```text
//! Registering ---> Live ---> Invalidating ---> Dead
//!   |     |          |            |             ^
//!   |     |          v            v             |
//!   |     +-------> Deregistering --------------+
//!   v                ^     ^ |   |
//! Stuck -------------+     | v   +------------> Leaked
//!                      Quarantined                ^
//!                                                 |
//! Stuck, Quarantined ------ device gone ----------+
//! ```
//!
//! [`Action::Release`] is the only action that permits an unpin, and it follows only from the
//! proof that the driver of the key can give. `tests/host` enumerates the whole table for it.

use super::driver::Proof;

/// Where a key is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its pages are pinned and its `REG_MR` is posted.
    Registering,
    /// The HCA serves it.
    Live,
    /// Its `LOCAL_INV` is posted.
    Invalidating,
    /// Somebody is in `ib_dereg_mr()` for it.
    Deregistering,
    /// Its `REG_MR` never reported and may still run. That work request points at the region, so
    /// the region must not even be deregistered before the QP is destroyed.
    Stuck,
    /// `ib_dereg_mr()` failed. To be tried again while the device lives.
    Quarantined,
    /// Proven dead, its pages are given back.
    Dead,
    /// Never to be proven: its pages stay pinned for good.
    Leaked,
}

impl State {
    /// Returns whether the pages are pinned and charged; for [`State::Leaked`] they stay so.
    pub(crate) fn holds_pages(self) -> bool {
        self != Self::Dead
    }

    /// Returns whether nobody is working on the key, so that waiting for it would be in vain.
    pub(crate) fn is_settled(self) -> bool {
        match self {
            Self::Registering | Self::Invalidating | Self::Deregistering => false,
            Self::Live | Self::Stuck | Self::Quarantined | Self::Dead | Self::Leaked => true,
        }
    }
}

/// What happened to a key or is wanted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// `REG_MR` completed with success.
    RegOk,
    /// `REG_MR` was refused or completed with an error: it can no longer run.
    RegFailed,
    /// `REG_MR` did not report before the deadline; what it reports later no longer counts.
    RegSilent,
    /// The key must die: freed, closed, revoked, device about to go.
    Revoke,
    /// `LOCAL_INV` completed with success (or before the first error of its chain).
    InvProven,
    /// `LOCAL_INV` was not posted, failed, was flushed or did not report.
    InvUnproven,
    /// `ib_dereg_mr()` returned 0, in time (see [`super::driver::dereg_is_proof`]).
    DeregProven,
    /// `ib_dereg_mr()` returned an error; the region still exists.
    DeregFailed,
    /// `ib_dereg_mr()` returned 0, but too late to prove anything; the region is gone.
    DeregLate,
    /// The QP with the silent `REG_MR` is destroyed.
    QpGone,
    /// The time to try again has come.
    Retry,
    /// The device goes away and nothing more can be tried.
    DeviceGone,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing.
    Nothing,
    /// Make the key known to its owner.
    Publish,
    /// Post `LOCAL_INV`.
    PostInvalidate,
    /// Call `ib_dereg_mr()`.
    Dereg,
    /// Unmap and unpin the pages, refund the charges: the only action that permits it.
    Release,
    /// Put the key where it is seen and tried again.
    Quarantine,
    /// Count the pages as lost and say so, once.
    Leak,
    /// Somebody else is at work: wait for the outcome.
    Wait,
}

/// An event that cannot happen in this state: a programming error.
///
/// The key stays as it is, pages pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The state of the key.
    pub(crate) state: State,
    /// What was reported.
    pub(crate) event: Event,
}

/// Returns what follows from `event` in `state` for a key whose driver gives `proof`.
///
/// # Errors
///
/// [`Violation`] if the event cannot happen in that state.
pub(crate) fn step(state: State, event: Event, proof: Proof) -> Result<(State, Action), Violation> {
    use {Action as A, Event as E, State as S};

    Ok(match (state, event) {
        (S::Registering, E::RegOk) => (S::Live, A::Publish),
        (S::Registering, E::RegFailed) => (S::Deregistering, A::Dereg),
        (S::Registering, E::RegSilent) => (S::Stuck, A::Quarantine),

        (S::Live, E::Revoke) => match proof {
            Proof::Invalidate => (S::Invalidating, A::PostInvalidate),
            Proof::Dereg => (S::Deregistering, A::Dereg),
        },

        (S::Invalidating, E::InvProven) => match proof {
            Proof::Invalidate => (S::Dead, A::Release),
            // The success of an invalidation is no proof from this driver.
            Proof::Dereg => (S::Deregistering, A::Dereg),
        },
        (S::Invalidating, E::InvUnproven) => (S::Deregistering, A::Dereg),
        (S::Invalidating, E::Revoke) => (S::Invalidating, A::Wait),

        (S::Deregistering, E::DeregProven) => (S::Dead, A::Release),
        (S::Deregistering, E::DeregFailed) => (S::Quarantined, A::Quarantine),
        (S::Deregistering, E::DeregLate) => (S::Leaked, A::Leak),
        (S::Deregistering, E::Revoke) => (S::Deregistering, A::Wait),

        (S::Stuck, E::QpGone) => (S::Deregistering, A::Dereg),
        (S::Stuck, E::Revoke | E::Retry) => (S::Stuck, A::Nothing),
        (S::Quarantined, E::Revoke | E::Retry) => (S::Deregistering, A::Dereg),
        (S::Stuck | S::Quarantined, E::DeviceGone) => (S::Leaked, A::Leak),

        (S::Dead | S::Leaked, E::Revoke | E::Retry | E::DeviceGone | E::QpGone) => {
            (state, A::Nothing)
        }

        _ => return Err(Violation { state, event }),
    })
}
