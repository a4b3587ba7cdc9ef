// SPDX-License-Identifier: GPL-2.0

//! The end of a key: by proof, in quarantine, or leaked.

use super::super::owner::OwnerRef;
use super::super::pool::PoolMr;
use super::super::stats;
use super::Inner;
use super::Key;
use crate::kern::ib::DeregOutcome;
use crate::kern::ib::Invalidated;
use crate::kern::ib::Quiesced;
use crate::kern::module::ModuleRef;
use crate::kern::time;
use crate::policy::deadline::Deadline;
use crate::policy::driver;
use crate::policy::driver::Proof;
use crate::policy::mr_state::Action;
use crate::policy::mr_state::Event;
use crate::policy::mr_state::State;
use kernel::prelude::*;
use kernel::sync::lock::spinlock::SpinLockGuard;
use kernel::sync::Arc;

/// Milliseconds for an invalidation that is not waited for by anybody.
const CUT_MS: u32 = 200;

impl Key {
    /// The LOCAL_INV that [`Revoke::Invalidate`](super::Revoke::Invalidate) asked
    /// for has come to an end. True: it proves nothing here, or the MR is not
    /// wanted any more; call [`Self::deregister`].
    ///
    /// May sleep (it releases the pages).
    pub(crate) fn invalidated(self: &Arc<Self>, proof: Option<Invalidated>) -> bool {
        let mut inner = self.inner.lock();
        inner.cut = true;
        // Where an invalidation proves nothing, its success is not even looked at.
        let proof = proof.filter(|_| self.device.proof() == Proof::Invalidate);
        let taken = inner.registration.take();
        let (event, quiesced) = match (proof, taken) {
            (Some(proof), Some(registration)) => {
                match registration.quiesce_by_invalidation(proof) {
                    Ok(parts) => (Event::InvProven, Some(parts)),
                    Err(registration) => {
                        inner.registration = Some(registration);
                        (Event::InvUnproven, None)
                    }
                }
            }
            (_, taken) => {
                inner.registration = taken;
                (Event::InvUnproven, None)
            }
        };
        let action = self.advance(&mut inner, event);
        match (action, quiesced) {
            (Some(Action::Release), Some((mr, quiesced))) => {
                let rest = inner.rest.take();
                self.die(inner, quiesced);
                let surplus = match rest {
                    Some(rest) => PoolMr::new(mr, rest)
                        .and_then(|mr| self.device.pool().put(mr))
                        .err(),
                    None => Some(mr),
                };
                let unwanted = surplus.is_some();
                self.inner.lock().surplus = surplus;
                unwanted
            }
            (action, None) => action == Some(Action::Dereg),
            // Not permitted: a violation, which `advance` has told.
            (_, Some(parts)) => {
                core::mem::forget(parts);
                false
            }
        }
    }

    /// Deregister the MR: the last resort, and for most drivers the only proof.
    ///
    /// Sleeps without a bound that we know. Only for a worker of the device, or
    /// with a [`Pass`](crate::kern::gate::Pass): the device must not go under it.
    pub(crate) fn deregister(self: &Arc<Self>) {
        let (registration, surplus) = {
            let mut inner = self.inner.lock();
            (inner.registration.take(), inner.surplus.take())
        };
        if surplus.is_some() {
            drop(surplus);
            self.device.look_after_mrs();
        }
        let Some(registration) = registration else {
            return;
        };
        let driver_id = self.device.driver_id();
        let outcome = registration.quiesce_by_dereg(|ms| driver::dereg_is_proof(driver_id, ms));
        let mut inner = self.inner.lock();
        match outcome {
            DeregOutcome::Proven(quiesced) => {
                if self.advance(&mut inner, Event::DeregProven) == Some(Action::Release) {
                    if self.device.has_failed() {
                        stats::TRUSTED_DEAD.add(1);
                    }
                    self.die(inner, quiesced);
                } else {
                    core::mem::forget(quiesced);
                }
            }
            DeregOutcome::Refused(registration, error) => {
                inner.registration = Some(registration);
                let cut = core::mem::replace(&mut inner.cut, true);
                drop(inner);
                if !cut {
                    self.cut();
                }
                self.refused(error);
            }
            DeregOutcome::Unproven => {
                self.advance(&mut inner, Event::DeregLate);
                self.leaked(inner);
            }
        }
    }

    /// The MR cannot be deregistered: let no new access pass, at least. What
    /// comes of it is no proof, or the key would not be here.
    fn cut(&self) {
        if let Some(queue) = self.device.queue_now() {
            let deadline = Deadline::after(time::now_ns(), CUT_MS);
            queue.invalidate(&[self.rkey()], deadline.end_ns(), |_, _| ());
        }
    }

    /// The driver has refused to deregister the MR.
    fn refused(self: &Arc<Self>, error: Error) {
        let mut inner = self.inner.lock();
        self.advance(&mut inner, Event::DeregFailed);
        self.quarantine(&mut inner);
        self.settled.complete_all();
        drop(inner);
        if time::may_log() {
            pr_err!(
                "{:?}: key {} not deregistered ({:?}); its pages stay pinned, will try again; the module cannot be unloaded until then\n",
                self.device.name(),
                self.id,
                error
            );
        }
        self.tell();
        self.device.start_retrying();
    }

    /// Dead: let go of the pages and of all charges, then tell everybody.
    fn die(self: &Arc<Self>, mut inner: SpinLockGuard<'_, Inner>, quiesced: Quiesced) {
        let charges = (inner.charge.take(), inner.cgroup.take());
        let owner = inner.owner.take();
        let quarantine = inner.quarantine.take();
        let slot = if inner.listed {
            None
        } else {
            inner.slot.take()
        };
        drop(inner);
        drop(quiesced);
        drop((charges, slot));
        self.ended(owner, quarantine);
    }

    /// No proof will ever come: the pages stay pinned and charged for good.
    fn leaked(self: &Arc<Self>, mut inner: SpinLockGuard<'_, Inner>) {
        if let Some(registration) = inner.registration.take() {
            registration.leak();
        }
        core::mem::forget(inner.charge.take());
        // The core forgets the counters of a device that goes.
        let cgroup = inner.cgroup.take();
        let owner = inner.owner.take();
        let quarantine = inner.quarantine.take();
        drop(inner);
        drop(cgroup);
        stats::LEAKED.add(1);
        stats::LEAKED_PAGES.add(self.pages);
        pr_err!(
            "{:?}: key {} leaked: nothing proves that the HCA has let go, its {} pages stay pinned until reboot\n",
            self.device.name(),
            self.id,
            self.pages
        );
        self.ended(owner, quarantine);
    }

    /// It has come to its end, and nobody works on it any more: take it out of the
    /// tables of those who end keys, and tell everybody.
    fn ended(self: &Arc<Self>, owner: Option<Arc<OwnerRef>>, quarantine: Option<ModuleRef>) {
        self.device.keys().remove(self.id, self);
        if let Some(owner) = &owner {
            owner.keys().remove(self.id, self);
        }
        self.settled.complete_all();
        self.tell();
        drop(owner);
        if quarantine.is_some() {
            stats::QUARANTINED.sub(1);
        }
        // Last: with it the module may go.
        drop(quarantine);
    }

    /// The device goes away: give up what could not be proven.
    pub(crate) fn device_gone(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        if inner.state.is_settled() && inner.state != State::Live {
            if let Some(Action::Leak) = self.advance(&mut inner, Event::DeviceGone) {
                self.leaked(inner);
            }
        }
    }

    pub(super) fn quarantine(&self, inner: &mut Inner) {
        if inner.quarantine.is_none() {
            inner.quarantine = Some(ModuleRef::get());
            stats::QUARANTINED.add(1);
        }
    }
}
