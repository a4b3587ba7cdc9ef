// SPDX-License-Identifier: GPL-2.0

//! What the workers of a device do: deregister keys, fill the pool, try again
//! what is quarantined.

use super::super::key::Key;
use super::Device;
use crate::kern::ib::Pd;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::workqueue::HasWork;
use kernel::workqueue::WorkItem;

/// Workers that share the work as long as it goes well. Waking one costs more
/// than several deregistrations.
const FEW: u32 = 4;
/// Nanoseconds between two tries to end quarantined keys.
const RETRY_NS: u64 = 1_000_000_000;

/// Keys to deregister, linked through themselves, and who is at it.
pub(super) struct Todo {
    head: Option<Arc<Key>>,
    workers: u32,
}

impl Todo {
    pub(super) const fn new() -> Self {
        Self {
            head: None,
            workers: 0,
        }
    }
}

impl Device {
    /// Run `job(what)` in a worker; here, if there is no memory for that.
    pub(super) fn in_worker<T: Clone + Send + 'static>(&self, what: T, job: fn(T)) {
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
            self.start::<1>();
        }
    }

    /// Try again in the background if idle MRs could not be deregistered. For
    /// whoever may have dropped one. Sleeps.
    pub(crate) fn look_after_mrs(self: &Arc<Self>) {
        if self.idle_pd().is_some() {
            self.start::<3>();
        }
    }

    /// The PD, if idle MRs of it wait for another try.
    fn idle_pd(&self) -> Option<Arc<Pd>> {
        self.pd.lock().clone().filter(|pd| pd.has_unwilling())
    }

    /// Try in the background to end what is quarantined.
    pub(crate) fn start_retrying(self: &Arc<Self>) {
        self.start::<2>();
    }

    /// A queue has failed: destroy it in the background, at once, since keys can
    /// be stuck with it.
    pub(crate) fn retire_queue(self: &Arc<Self>) {
        self.kick.complete_all();
        self.start::<2>();
    }

    fn start<const ID: u64>(self: &Arc<Self>)
    where
        Self: WorkItem<ID, Pointer = Arc<Self>> + HasWork<Self, ID>,
    {
        if let Some(workers) = &*self.workers.lock() {
            let _ = workers.queue().enqueue::<_, ID>(self.clone());
        }
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
        this.look_after_mrs();
    }
}

impl WorkItem<2> for Device {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        loop {
            // First, so that the kick of a removal that begins now is not lost.
            this.kick.reinit();
            if this.is_gone() {
                break;
            }
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
            this.kick.wait_ns(RETRY_NS);
        }
    }
}

impl WorkItem<3> for Device {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        while let Some(pd) = this.idle_pd() {
            pd.retry_unwilling(|| this.is_gone());
            if this.gone.wait_ns(RETRY_NS) {
                break;
            }
        }
    }
}
