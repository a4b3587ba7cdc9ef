// SPDX-License-Identifier: GPL-2.0

//! One key, from birth to the proof of its death.
//!
//! The state machine in `policy::mr_state` decides, this directory acts. Only
//! one task works on a key at a time: the one whose event moved it to a state
//! that is not settled. Everybody else waits on `settled`.

mod end;
mod socket;

use super::account::Charge;
use super::device::Device;
use super::owner::OwnerRef;
use super::pool::Rest;
use super::register::Entries;
use super::slot::Slot;
use crate::kern::ib::CgroupCharge;
use crate::kern::ib::Mr;
use crate::kern::ib::Registration;
use crate::kern::ib::SendQueue;
use crate::kern::module::ModuleRef;
use crate::kern::time;
use crate::kern::time::Completion;
use crate::policy::cause::Cause;
use crate::policy::deadline::Deadline;
use crate::policy::key::Cookie;
use crate::policy::mr_state::step;
use crate::policy::mr_state::Action;
use crate::policy::mr_state::Event;
use crate::policy::mr_state::State;
use kernel::impl_has_work;
use kernel::new_spinlock;
use kernel::new_work;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::sync::SpinLock;
use kernel::workqueue::Work;
use kernel::workqueue::WorkItem;

/// What the key of an application holds on to besides its MR and its pages.
pub(crate) struct Holdings {
    pub(crate) charge: Charge,
    pub(crate) cgroup: CgroupCharge,
    pub(crate) owner: Arc<OwnerRef>,
    pub(crate) slot: Slot,
}

/// What a key owns. All of it but the slot goes when it is dead; a key of our own
/// has neither charges nor owner nor slot.
struct Inner {
    state: State,
    /// The MR and the pages. `None` before registration and after death, and
    /// while a task has taken it out to work on it.
    registration: Option<Registration>,
    rest: Option<Rest>,
    /// An idle MR that the pool does not want, for a worker to deregister.
    surplus: Option<Mr>,
    charge: Option<Charge>,
    cgroup: Option<CgroupCharge>,
    owner: Option<Arc<OwnerRef>>,
    /// The place in the socket; goes with death unless the key is listed there.
    slot: Option<Slot>,
    /// The application knows it and can free it.
    listed: bool,
    /// Who wanted it dead first.
    cause: Option<Cause>,
    /// That it was revoked has been put into the news of the socket.
    told: bool,
    /// And nobody has read it there, or freed the key.
    news: bool,
    /// Somebody has waited for its end until a deadline.
    overdue: bool,
    /// A LOCAL_INV would be in vain: there was one, or the key was never alive.
    cut: bool,
    /// The queue whose REG_MR never reported.
    silent: Option<Arc<SendQueue>>,
    /// Keeps the module loaded while there is no proof.
    quarantine: Option<ModuleRef>,
    /// Next in [`Device`]'s list of what is to be deregistered.
    next: Option<Arc<Key>>,
    /// Its neighbours in [`News`](super::news::News).
    in_news: Neighbours,
}

/// Who stands before and after a key in a list.
#[derive(Default)]
pub(crate) struct Neighbours {
    pub(crate) before: Option<Arc<Key>>,
    pub(crate) after: Option<Arc<Key>>,
}

/// A key. Dropping one that is not dead leaks its pages with a warning.
#[pin_data]
pub(crate) struct Key {
    id: u64,
    cookie: Cookie,
    pages: u64,
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
    /// A key of `device` for `pages` pages that is about to be registered.
    /// `holdings` is `None` for a key of our own. The caller follows with one of
    /// [`Self::registered`] and its kin.
    pub(crate) fn new(
        device: &Arc<Device>,
        cookie: Cookie,
        rest: Rest,
        pages: u32,
        holdings: Option<Holdings>,
    ) -> Result<Arc<Self>> {
        let (charge, cgroup, owner, slot) = match holdings {
            Some(it) => (
                Some(it.charge),
                Some(it.cgroup),
                Some(it.owner),
                Some(it.slot),
            ),
            None => (None, None, None, None),
        };
        let inner = Inner {
            state: State::Registering,
            registration: None,
            rest: Some(rest),
            surplus: None,
            charge,
            cgroup,
            owner,
            slot,
            listed: false,
            cause: None,
            told: false,
            news: false,
            overdue: false,
            cut: false,
            silent: None,
            quarantine: None,
            next: None,
            in_news: Neighbours::default(),
        };
        Arc::pin_init(
            pin_init!(Self {
                id: super::device::next_key_id(),
                cookie,
                pages: pages.into(),
                device: device.clone(),
                inner <- new_spinlock!(inner, "Key::inner"),
                settled <- Completion::new(),
                work <- new_work!("Key::work"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Make it known to its device and to its owner.
    pub(crate) fn make_known(self: &Arc<Self>, entries: Entries) {
        let keys = {
            let inner = self.inner.lock();
            inner.owner.as_ref().map(|owner| owner.keys().clone())
        };
        // Ids are never used twice, so there is always room.
        let (of_device, of_owner) = (entries.of_device, entries.of_owner);
        let mut result = self.device.keys().insert(of_device, self.id, self.clone());
        if let (Some(keys), Some(entry)) = (keys, of_owner) {
            result = result.and(keys.insert(entry, self.id, self.clone()));
        }
        kernel::warn_on!(result.is_err());
    }

    /// Whether an application owns it, still. Not so of the probe's control key.
    pub(crate) fn has_owner(&self) -> bool {
        self.inner.lock().owner.is_some()
    }

    /// Number that tells keys apart, also over time.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// What the application knows it by.
    pub(crate) fn cookie(&self) -> Cookie {
        self.cookie
    }

    /// The key at the HCA.
    pub(crate) fn rkey(&self) -> u32 {
        self.cookie.rkey()
    }

    /// How many pages it pins, or has pinned.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// Where it lives.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn state(&self) -> State {
        self.inner.lock().state
    }

    /// Whether nothing is left of it at the HCA, proven.
    pub(crate) fn is_dead(&self) -> bool {
        self.state() == State::Dead
    }

    /// Whether there will never be a proof of its end.
    pub(crate) fn is_leaked(&self) -> bool {
        self.state() == State::Leaked
    }

    /// Whether it has neither ended nor is alive: there is something to try.
    pub(crate) fn is_quarantined(&self) -> bool {
        self.inner.lock().quarantine.is_some()
    }

    /// Whether somebody has waited for its end in vain.
    pub(crate) fn is_overdue(&self) -> bool {
        self.inner.lock().overdue
    }

    pub(crate) fn set_overdue(&self) {
        self.inner.lock().overdue = true;
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
        inner.cut = true;
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
    pub(crate) fn revoke(&self, cause: Cause) -> Revoke {
        let mut inner = self.inner.lock();
        inner.cause.get_or_insert(cause);
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

    /// Set what follows in the list of the device; returns what did.
    pub(crate) fn link(&self, next: Option<Arc<Key>>) -> Option<Arc<Key>> {
        core::mem::replace(&mut self.inner.lock().next, next)
    }

    /// Whether somebody works on it, or will.
    pub(crate) fn is_underway(&self) -> bool {
        !self.state().is_settled()
    }

    /// Wait until nobody works on the key, or the deadline. True if it is dead,
    /// and its pages are released.
    pub(crate) fn wait(&self, deadline: Deadline) -> bool {
        while self.settled.wait_ns(deadline.remaining_ns(time::now_ns())) {
            let state = self.state();
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
