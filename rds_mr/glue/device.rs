// SPDX-License-Identifier: GPL-2.0

//! One HCA: its protection domain, the queue that registers and invalidates,
//! the idle MRs and the keys.

use super::account::Account;
use super::key::Key;
use super::params;
use super::pool::Pool;
use super::pool::PoolMr;
use super::probe::Control;
use super::revoke;
use super::table::KeyTable;
use crate::kern::gate::Gate;
use crate::kern::gate::Pass;
use crate::kern::ib::IbDevice;
use crate::kern::ib::Pd;
use crate::kern::ib::SendQueue;
use crate::kern::time::Completion;
use crate::kern::wq::OwnedQueue;
use crate::policy::driver;
use crate::policy::driver::Proof;
use crate::policy::sizes::Classes;
use kernel::impl_has_work;
use kernel::new_mutex;
use kernel::new_work;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::atomic::Atomic;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;
use kernel::sync::Mutex;
use kernel::workqueue::Work;
use kernel::workqueue::WorkItem;

/// Deregistrations that may run at a time: some drivers take a minute for one.
const WORKERS: i32 = 128;
/// Nanoseconds between two tries to end quarantined keys.
const RETRY_NS: u64 = 1_000_000_000;

/// What exists at the HCA. Made at the first use, gone before `remove` returns.
struct Resources {
    pd: Arc<Pd>,
    queue: Option<Arc<SendQueue>>,
}

/// A device that we serve.
#[pin_data]
pub(crate) struct Device {
    ib: ARef<IbDevice>,
    proof: Proof,
    account: Arc<Account>,
    next_id: Atomic<i64>,
    #[pin]
    keys: KeyTable,
    #[pin]
    gate: Gate,
    #[pin]
    pool: Pool,
    #[pin]
    control: Control,
    #[pin]
    resources: Mutex<Option<Resources>>,
    /// `None` after removal. Not dropped with the device: the last reference
    /// may be that of an item of this queue.
    #[pin]
    workers: Mutex<Option<OwnedQueue>>,
    #[pin]
    gone: Completion,
    #[pin]
    refill: Work<Device, 1>,
    #[pin]
    retry: Work<Device, 2>,
}

impl_has_work! {
    impl HasWork<Self, 1> for Device { self.refill }
    impl HasWork<Self, 2> for Device { self.retry }
}

impl Device {
    /// Take a device into service. Nothing is made at the HCA yet.
    ///
    /// `EOPNOTSUPP`: it can never serve keys.
    pub(crate) fn new(ib: &IbDevice) -> Result<Arc<Self>> {
        if !ib.is_usable() {
            return Err(EOPNOTSUPP);
        }
        let classes = Classes::new(params::classes(), ib.max_mr_pages())?;
        let account = Account::of_device(ib.max_mr())?;
        let workers = OwnedQueue::new(c"rds_mr", WORKERS)?;
        Arc::try_pin_init(
            try_pin_init!(Self {
                ib: ib.to_ref(),
                proof: driver::proof_for(params::proof_mode(), ib.driver_id()),
                account,
                next_id: Atomic::new(1),
                keys <- KeyTable::new(),
                gate <- Gate::new(),
                pool <- Pool::new(classes),
                control <- Control::new(),
                resources <- new_mutex!(None, "Device::resources"),
                workers <- new_mutex!(Some(workers), "Device::workers"),
                gone <- Completion::new(),
                refill <- new_work!("Device::refill"),
                retry <- new_work!("Device::retry"),
            }? Error),
            GFP_KERNEL,
        )
    }

    pub(crate) fn ib(&self) -> &IbDevice {
        &self.ib
    }

    pub(crate) fn name(&self) -> &CStr {
        self.ib.name()
    }

    pub(crate) fn driver_id(&self) -> u32 {
        self.ib.driver_id()
    }

    /// What proves here that memory may be let go.
    pub(crate) fn proof(&self) -> Proof {
        self.proof
    }

    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    pub(crate) fn keys(&self) -> &KeyTable {
        &self.keys
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    pub(crate) fn next_key_id(&self) -> u64 {
        // CAST: Starts at 1 and does not reach the sign bit in a lifetime.
        self.next_id.fetch_add(1, Relaxed) as u64
    }

    /// The right to use the device for a moment. `ENODEV` once it goes.
    pub(crate) fn enter(&self) -> Result<Pass<'_>> {
        self.gate.enter().ok_or(ENODEV)
    }

    /// The PD, made if there is none.
    pub(crate) fn pd(&self, _pass: &Pass<'_>) -> Result<Arc<Pd>> {
        Ok(self.resources(&mut self.resources.lock())?.pd.clone())
    }

    fn resources<'a>(&self, slot: &'a mut Option<Resources>) -> Result<&'a mut Resources> {
        if slot.is_none() {
            *slot = Some(Resources {
                pd: Pd::alloc(&self.ib)?,
                queue: None,
            });
        }
        slot.as_mut().ok_or(ENODEV)
    }

    /// A queue that works, made anew if there is none or it has failed.
    ///
    /// `ENODEV`: no port is ACTIVE.
    pub(crate) fn queue(&self, _pass: &Pass<'_>) -> Result<Arc<SendQueue>> {
        let mut slot = self.resources.lock();
        let resources = self.resources(&mut slot)?;
        if let Some(queue) = resources.queue.as_ref().filter(|queue| !queue.is_broken()) {
            return Ok(queue.clone());
        }
        let new = SendQueue::to_self(&resources.pd)?;
        let old = resources.queue.replace(new.clone());
        drop(slot);
        if let Some(old) = old {
            pr_info!(
                "{:?}: registration queue replaced after an error\n",
                self.name()
            );
            self.in_worker(old, |old| old.destroy());
        }
        Ok(new)
    }

    /// The queue, if there is one that works now. Does not wait for somebody
    /// who is making one: that allocates, and the caller may be what memory
    /// waits for.
    pub(crate) fn queue_now(&self) -> Option<Arc<SendQueue>> {
        let slot = self.resources.try_lock()?;
        let queue = slot.as_ref()?.queue.as_ref()?;
        (!queue.is_broken()).then(|| queue.clone())
    }

    /// Run `job(what)` in a worker; here, if there is no memory for that.
    fn in_worker<T: Clone + Send + 'static>(&self, what: T, job: fn(T)) {
        let spare = what.clone();
        let spawned = match &*self.workers.lock() {
            // Not GFP_KERNEL: teardown may wait for this lock.
            Some(workers) => workers
                .queue()
                .try_spawn(GFP_NOWAIT, move || job(what))
                .is_ok(),
            None => false,
        };
        if !spawned {
            job(spare);
        }
    }

    /// Deregister `key`, and what its bundle links to it, in a worker. Never sleeps for long, allocates nothing.
    pub(crate) fn deregister(&self, key: Arc<Key>) {
        match &*self.workers.lock() {
            // An item that is queued already will do.
            Some(workers) => drop(workers.queue().enqueue::<_, 0>(key)),
            // After removal no key is left that could need it.
            None => drop(kernel::warn_on!(true)),
        }
    }

    /// Fill the pool in the background, if it runs low.
    pub(crate) fn start_refill(self: &Arc<Self>) {
        if self.pool.is_low() {
            if let Some(workers) = &*self.workers.lock() {
                let _ = workers.queue().enqueue::<_, 1>(self.clone());
            }
        }
    }

    /// Try in the background to end what is quarantined.
    pub(crate) fn start_retrying(self: &Arc<Self>) {
        if let Some(workers) = &*self.workers.lock() {
            let _ = workers.queue().enqueue::<_, 2>(self.clone());
        }
    }

    /// An MR comes back.
    pub(crate) fn take_back(&self, mr: PoolMr) {
        // What does not fit is deregistered. An idle MR: nothing waits for it,
        // and it happens only when keys die faster than they are made.
        drop(self.pool.put(mr));
    }

    /// `key` has ended.
    pub(crate) fn retire(&self, key: &Key) {
        drop(self.keys.remove(key.id()));
    }

    /// The device goes: end every key, then everything else at the HCA.
    ///
    /// After the deadline this waits on for calls that the driver still has in
    /// hand: returning would let the core free the device under them.
    pub(crate) fn remove(self: Arc<Self>) {
        self.gate.close_and_wait();
        self.gone.complete_all();
        let deadline = params::deadline();
        revoke::all(&self, &self.keys, deadline);

        let resources = self.resources.lock().take();
        if let Some(queue) = resources.as_ref().and_then(|r| r.queue.as_ref()) {
            queue.destroy();
        }
        // What was stuck with the queue can be deregistered now.
        for key in self.keys.iter().filter(|key| key.retry()) {
            self.deregister(key);
        }
        // Waits for the workers, and so for the driver.
        // Not under the lock, which the last items may want.
        let workers = self.workers.lock().take();
        drop(workers);
        for key in self.keys.iter() {
            key.device_gone();
        }
        self.control.end();
        self.pool.drain();
        drop(resources);
    }
}

impl WorkItem<1> for Device {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        while let Ok(pass) = this.enter() {
            match this.pd(&pass) {
                Ok(pd) if this.pool.refill_one(&pd) => {}
                _ => break,
            }
        }
    }
}

impl WorkItem<2> for Device {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        while !this.gone.wait_ns(RETRY_NS) {
            let mut waiting = false;
            for key in this.keys.iter() {
                if key.retry() {
                    this.deregister(key.clone());
                }
                waiting |= key.is_quarantined();
            }
            if !waiting {
                break;
            }
        }
    }
}
