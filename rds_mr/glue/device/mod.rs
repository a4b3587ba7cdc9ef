// SPDX-License-Identifier: GPL-2.0

//! One HCA: its protection domain, the queue that registers and invalidates,
//! the idle MRs and the keys.

use super::account::Account;
use super::key::Key;
use super::params;
use super::pool::Pool;
use super::probe::Control;
use super::revoke;
use super::table::KeyTable;
use crate::kern::gate::Gate;
use crate::kern::gate::Pass;
use crate::kern::ib::IbDevice;
use crate::kern::ib::Pd;
use crate::kern::ib::SendQueue;
use crate::kern::time;
use crate::kern::time::Completion;
use crate::kern::wq::OwnedQueue;
use crate::policy::deadline::Deadline;
use crate::policy::driver;
use crate::policy::driver::Proof;
use crate::policy::sizes::Classes;
use kernel::impl_has_work;
use kernel::new_mutex;
use kernel::new_spinlock;
use kernel::new_work;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::atomic::Atomic;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;
use kernel::sync::Mutex;
use kernel::sync::SpinLock;
use kernel::workqueue::Work;
use kernel::workqueue::WorkItem;

/// Deregistrations that may run at a time: some drivers take a minute for one.
const WORKERS: i32 = 128;
/// Workers that share the work as long as it goes well. Waking one costs more
/// than several deregistrations.
const FEW: u32 = 4;
/// Nanoseconds between two tries to end quarantined keys.
const RETRY_NS: u64 = 1_000_000_000;

/// Keys to deregister, linked through themselves, and who is at it.
struct Todo {
    head: Option<Arc<Key>>,
    workers: u32,
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
    /// Made at the first use, gone before `remove` returns; so is the queue.
    #[pin]
    pd: Mutex<Option<Arc<Pd>>>,
    /// Held by who makes a queue.
    #[pin]
    making: Mutex<()>,
    #[pin]
    queue: SpinLock<Option<Arc<SendQueue>>>,
    /// `None` after removal. Not dropped with the device: the last reference
    /// may be that of an item of this queue.
    #[pin]
    workers: Mutex<Option<OwnedQueue>>,
    #[pin]
    todo: SpinLock<Todo>,
    /// Removal has begun.
    #[pin]
    gone: Completion,
    /// Removal has ended every key.
    #[pin]
    removed: Completion,
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
                pd <- new_mutex!(None, "Device::pd"),
                making <- new_mutex!((), "Device::making"),
                queue <- new_spinlock!(None, "Device::queue"),
                workers <- new_mutex!(Some(workers), "Device::workers"),
                todo <- new_spinlock!(Todo { head: None, workers: 0 }, "Device::todo"),
                gone <- Completion::new(),
                removed <- Completion::new(),
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

    /// Whether removal has begun.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.wait_ns(0)
    }

    /// Wait until removal has ended every key, or the deadline. For those who
    /// got no pass: `remove` does their work.
    pub(crate) fn wait_removed(&self, deadline: Deadline) {
        self.removed.wait_ns(deadline.remaining_ns(time::now_ns()));
    }

    /// The PD, made if there is none.
    pub(crate) fn pd(&self, _pass: &Pass<'_>) -> Result<Arc<Pd>> {
        let mut pd = self.pd.lock();
        if let Some(pd) = &*pd {
            return Ok(pd.clone());
        }
        let new = Pd::alloc(&self.ib)?;
        *pd = Some(new.clone());
        Ok(new)
    }

    /// A queue that works, made anew if there is none or it has failed.
    ///
    /// `ENODEV`: no port is ACTIVE.
    pub(crate) fn queue(&self, pass: &Pass<'_>) -> Result<Arc<SendQueue>> {
        if let Some(queue) = self.queue_now() {
            return Ok(queue);
        }
        let pd = self.pd(pass)?;
        let _making = self.making.lock();
        // Many may have waited here: do not keep `remove` waiting for each.
        if self.is_gone() {
            return Err(ENODEV);
        }
        // Somebody else may have made one meanwhile.
        if let Some(queue) = self.queue_now() {
            return Ok(queue);
        }
        let new = SendQueue::to_self(&pd)?;
        let old = self.queue.lock().replace(new.clone());
        if let Some(old) = old {
            if time::may_log() {
                pr_info!(
                    "{:?}: registration queue replaced after an error\n",
                    self.name()
                );
            }
            self.in_worker(old, |old| old.destroy());
        }
        Ok(new)
    }

    /// The queue, if there is one that works now. Waits for nobody.
    pub(crate) fn queue_now(&self) -> Option<Arc<SendQueue>> {
        let queue = self.queue.lock().clone();
        queue.filter(|queue| !queue.is_broken())
    }

    /// Destroy the queue if it has failed, so that what is stuck with it can be
    /// ended. Sleeps for as long as the driver takes.
    fn retire_broken_queue(&self) {
        let broken = {
            let mut queue = self.queue.lock();
            match &*queue {
                Some(failed) if failed.is_broken() => queue.take(),
                _ => None,
            }
        };
        if let Some(broken) = broken {
            broken.destroy();
        }
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

    /// Deregister `key` in a worker. Never sleeps for long, allocates nothing:
    /// the list is linked through the keys, and so are the work items.
    pub(crate) fn deregister(&self, key: Arc<Key>) {
        let more = {
            let mut todo = self.todo.lock();
            key.link(todo.head.take());
            todo.head = Some(key.clone());
            let more = todo.workers < FEW;
            todo.workers = todo.workers.saturating_add(u32::from(more));
            more
        };
        if more {
            self.add_worker(key);
        }
    }

    /// Give `key`, which waits for a worker, one of its own.
    pub(crate) fn hurry(&self, key: Arc<Key>) {
        let mut todo = self.todo.lock();
        todo.workers = todo.workers.saturating_add(1);
        drop(todo);
        self.add_worker(key);
    }

    /// Start a worker, already counted, on the work item of `key`.
    fn add_worker(&self, key: Arc<Key>) {
        let started = match &*self.workers.lock() {
            Some(workers) => workers.queue().enqueue::<_, 0>(key).is_ok(),
            // `remove` does the rest of the work.
            None => false,
        };
        if !started {
            // The item is queued already, and counted, or nothing runs any more.
            let mut todo = self.todo.lock();
            todo.workers = todo.workers.saturating_sub(1);
        }
    }

    /// A worker: deregister what is to be deregistered until nothing is left.
    pub(crate) fn work(&self) {
        loop {
            let mut todo = self.todo.lock();
            let Some(key) = todo.head.take() else {
                todo.workers = todo.workers.saturating_sub(1);
                return;
            };
            todo.head = key.link(None);
            drop(todo);
            key.deregister();
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

    /// `key` has ended.
    pub(crate) fn retire(&self, key: &Key) {
        self.keys.remove(key.id(), key);
    }

    /// The device goes: end every key, then everything else at the HCA.
    ///
    /// After the deadline this waits on for calls that the driver still has in
    /// hand: returning would let the core free the device under them.
    pub(crate) fn remove(self: Arc<Self>) {
        self.gone.complete_all();
        self.gate.close_and_wait();
        let deadline = params::deadline();
        revoke::start(&self, &self.keys, deadline);
        revoke::wait(&self, &self.keys, deadline);

        let queue = self.queue.lock().take();
        if let Some(queue) = queue {
            queue.destroy();
        }
        // What was stuck with the queue can be deregistered now.
        for key in self.keys.iter().filter(|key| key.retry()) {
            self.deregister(key);
        }
        revoke::wait(&self, &self.keys, deadline);
        // Waits for the workers, and so for the driver.
        // Not under the lock, which the last items may want.
        let workers = self.workers.lock().take();
        drop(workers);
        // What came too late for them.
        self.work();
        for key in self.keys.iter() {
            // A worker may just have destroyed the queue that it was stuck with.
            if key.retry_stuck() {
                key.deregister();
            }
            key.device_gone();
        }
        self.removed.complete_all();
        self.control.end();
        self.pool.drain();
        // Keys that could not be ended keep it, and the driver will say so.
        let pd = self.pd.lock().take();
        drop(pd);
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
            this.retire_broken_queue();
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
