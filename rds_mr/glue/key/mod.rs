// SPDX-License-Identifier: GPL-2.0

//! One key, from birth to the proof of its death.
//!
//! The state machine in `policy::mr_state` decides, this file acts. Only one
//! task works on a key at a time: the one whose event moved it to a state that
//! is not settled. Everybody else waits on `settled`.

use super::account::Charge;
use super::device::Device;
use super::pool::PoolMr;
use super::pool::Rest;
use crate::kern::ib::DeregOutcome;
use crate::kern::ib::Invalidated;
use crate::kern::ib::Mr;
use crate::kern::ib::Quiesced;
use crate::kern::ib::Registration;
use crate::kern::ib::SendQueue;
use crate::kern::module::ModuleRef;
use crate::kern::time;
use crate::kern::time::Completion;
use crate::policy::deadline::Deadline;
use crate::policy::driver;
use crate::policy::driver::Proof;
use crate::policy::mr_state::step;
use crate::policy::mr_state::Action;
use crate::policy::mr_state::Event;
use crate::policy::mr_state::State;
use kernel::impl_has_work;
use kernel::new_spinlock;
use kernel::new_work;
use kernel::prelude::*;
use kernel::sync::lock::spinlock::SpinLockGuard;
use kernel::sync::Arc;
use kernel::sync::SpinLock;
use kernel::workqueue::Work;
use kernel::workqueue::WorkItem;

/// What a key owns. All of it goes when it is dead.
struct Inner {
    state: State,
    /// The MR and the pages. `None` before registration and after death, and
    /// while a task has taken it out to work on it.
    registration: Option<Registration>,
    /// What the MR needs to go back to the pool.
    rest: Option<Rest>,
    /// An idle MR that the pool does not want, for a worker to deregister.
    surplus: Option<Mr>,
    charge: Option<Charge>,
    /// The queue whose REG_MR never reported.
    silent: Option<Arc<SendQueue>>,
    /// Keeps the module loaded while there is no proof.
    quarantine: Option<ModuleRef>,
    /// Next in [`Device`]'s list of what is to be deregistered.
    next: Option<Arc<Key>>,
}

/// A key. Dropping one that is not dead leaks its pages with a warning.
#[pin_data]
pub(crate) struct Key {
    id: u64,
    rkey: u32,
    device: Arc<Device>,
    #[pin]
    inner: SpinLock<Inner>,
    /// Complete while nobody works on the key: not only its state is settled,
    /// but what follows from that state has been done.
    #[pin]
    settled: Completion,
    #[pin]
    work: Work<Key>,
}

impl_has_work! {
    impl HasWork<Self> for Key { self.work }
}

/// What a task that wants a key dead has to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Revoke {
    /// Post a LOCAL_INV and report to [`Key::invalidated`].
    Invalidate,
    /// Call [`Key::deregister`], here or in a worker.
    Deregister,
    /// Somebody is at it: wait.
    Wait,
    /// Nothing: dead, leaked, or stuck until its queue is destroyed.
    Nothing,
}

impl Key {
    /// A key of `device` that is about to be registered. The caller follows
    /// with one of [`Self::registered`] and its kin.
    pub(crate) fn new(
        device: &Arc<Device>,
        rkey: u32,
        rest: Rest,
        charge: Charge,
    ) -> Result<Arc<Self>> {
        let inner = Inner {
            state: State::Registering,
            registration: None,
            rest: Some(rest),
            surplus: None,
            charge: Some(charge),
            silent: None,
            quarantine: None,
            next: None,
        };
        Arc::pin_init(
            pin_init!(Self {
                id: device.next_key_id(),
                rkey,
                device: device.clone(),
                inner <- new_spinlock!(inner, "Key::inner"),
                settled <- Completion::new(),
                work <- new_work!("Key::work"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Number that tells keys of a device apart, also over time.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The key at the HCA.
    pub(crate) fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Where it lives.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Whether nothing is left of it at the HCA, proven.
    pub(crate) fn is_dead(&self) -> bool {
        self.inner.lock().state == State::Dead
    }

    /// Whether it has neither ended nor is alive: there is something to try.
    pub(crate) fn is_quarantined(&self) -> bool {
        self.inner.lock().quarantine.is_some()
    }

    /// Advance the state machine. `None` (and a warning) for an event that
    /// cannot be: the key stays as it is, its pages pinned.
    fn advance(&self, inner: &mut Inner, event: Event) -> Option<Action> {
        match step(inner.state, event, self.device.proof()) {
            Ok((state, action)) => {
                if inner.state.is_settled() && !state.is_settled() {
                    self.settled.reinit();
                }
                inner.state = state;
                Some(action)
            }
            Err(violation) => {
                kernel::warn_on!(true);
                pr_err!("key {}: {:?}\n", self.id, violation);
                None
            }
        }
    }

    /// The REG_MR has succeeded.
    pub(crate) fn registered(&self, registration: Registration) {
        let mut inner = self.inner.lock();
        inner.registration = Some(registration);
        self.advance(&mut inner, Event::RegOk);
        self.settled.complete_all();
    }

    /// The REG_MR has reported a failure: the caller deregisters.
    pub(crate) fn not_registered(&self, registration: Registration) {
        let mut inner = self.inner.lock();
        inner.registration = Some(registration);
        self.advance(&mut inner, Event::RegFailed);
    }

    /// The REG_MR has not reported, and may still run on `queue`.
    pub(crate) fn silent(&self, registration: Registration, queue: Arc<SendQueue>) {
        let mut inner = self.inner.lock();
        inner.registration = Some(registration);
        inner.silent = Some(queue);
        self.advance(&mut inner, Event::RegSilent);
        self.quarantine(&mut inner);
        self.settled.complete_all();
    }

    /// Somebody wants the key dead.
    pub(crate) fn revoke(&self) -> Revoke {
        let mut inner = self.inner.lock();
        match self.advance(&mut inner, Event::Revoke) {
            Some(Action::PostInvalidate) => Revoke::Invalidate,
            Some(Action::Dereg) => Revoke::Deregister,
            Some(Action::Wait) => Revoke::Wait,
            _ => Revoke::Nothing,
        }
    }

    /// Try again what had no proof so far. True: call [`Self::deregister`].
    pub(crate) fn retry(&self) -> bool {
        self.retry_stuck() || self.advance_if(State::Quarantined, Event::Retry)
    }

    fn advance_if(&self, state: State, event: Event) -> bool {
        let mut inner = self.inner.lock();
        inner.state == state && self.advance(&mut inner, event) == Some(Action::Dereg)
    }

    /// Go on with a key whose REG_MR was silent, if its queue is gone by now.
    /// True: call [`Self::deregister`].
    pub(crate) fn retry_stuck(&self) -> bool {
        // Dropped after the lock: it can be the last reference to the queue.
        let silent = {
            let mut inner = self.inner.lock();
            match &inner.silent {
                Some(queue) if queue.is_destroyed() => inner.silent.take(),
                _ => None,
            }
        };
        silent.is_some() && self.advance_if(State::Stuck, Event::QpGone)
    }

    /// The LOCAL_INV that [`Revoke::Invalidate`] asked for has come to an end.
    /// True: it proves nothing here, or the MR is not wanted any more; call
    /// [`Self::deregister`].
    ///
    /// May sleep (it releases the pages).
    pub(crate) fn invalidated(self: &Arc<Self>, proof: Option<Invalidated>) -> bool {
        let mut inner = self.inner.lock();
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
        drop(surplus);
        let Some(registration) = registration else {
            return;
        };
        let driver_id = self.device.driver_id();
        let outcome = registration.quiesce_by_dereg(|ms| driver::dereg_is_proof(driver_id, ms));
        let mut inner = self.inner.lock();
        match outcome {
            DeregOutcome::Proven(quiesced) => {
                if self.advance(&mut inner, Event::DeregProven) == Some(Action::Release) {
                    self.die(inner, quiesced);
                } else {
                    core::mem::forget(quiesced);
                }
            }
            DeregOutcome::Refused(registration, error) => {
                inner.registration = Some(registration);
                self.advance(&mut inner, Event::DeregFailed);
                self.quarantine(&mut inner);
                self.settled.complete_all();
                drop(inner);
                if time::may_log() {
                    pr_err!(
                        "{:?}: key {} not deregistered ({:?}); its pages stay pinned, will try again\n",
                        self.device.name(),
                        self.id,
                        error
                    );
                }
                self.device.start_retrying();
            }
            DeregOutcome::Unproven => {
                self.advance(&mut inner, Event::DeregLate);
                self.leaked(inner);
            }
        }
    }

    /// Dead: let go of the pages and of all charges, then tell everybody.
    fn die(self: &Arc<Self>, mut inner: SpinLockGuard<'_, Inner>, quiesced: Quiesced) {
        let charge = inner.charge.take();
        let quarantine = inner.quarantine.take();
        drop(inner);
        drop(quiesced);
        drop(charge);
        self.device.retire(self);
        self.settled.complete_all();
        // Last: with it the module may go.
        drop(quarantine);
    }

    /// No proof will ever come: the pages stay pinned and charged for good.
    fn leaked(self: &Arc<Self>, mut inner: SpinLockGuard<'_, Inner>) {
        if let Some(registration) = inner.registration.take() {
            registration.leak();
        }
        core::mem::forget(inner.charge.take());
        let quarantine = inner.quarantine.take();
        drop(inner);
        pr_err!(
            "{:?}: key {} leaked: nothing proves that the HCA has let go, its pages stay pinned until reboot\n",
            self.device.name(),
            self.id
        );
        self.device.retire(self);
        self.settled.complete_all();
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

    fn quarantine(&self, inner: &mut Inner) {
        if inner.quarantine.is_none() {
            inner.quarantine = Some(ModuleRef::get());
        }
    }

    /// Set what follows in the list of the device; returns what did.
    pub(crate) fn link(&self, next: Option<Arc<Key>>) -> Option<Arc<Key>> {
        core::mem::replace(&mut self.inner.lock().next, next)
    }

    /// Whether somebody works on it, or will.
    pub(crate) fn is_underway(&self) -> bool {
        !self.inner.lock().state.is_settled()
    }

    /// Wait until nobody works on the key, or the deadline. True if it is dead,
    /// and its pages are released.
    pub(crate) fn wait(&self, deadline: Deadline) -> bool {
        while self.settled.wait_ns(deadline.remaining_ns(time::now_ns())) {
            let state = self.inner.lock().state;
            if state.is_settled() {
                return state == State::Dead;
            }
        }
        false
    }
}

impl WorkItem for Key {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.device.work();
    }
}
