// SPDX-License-Identifier: GPL-2.0

//! One HCA: its protection domain, the queue that registers and invalidates,
//! the idle MRs and the keys.

mod remove;
mod work;

use self::work::Todo;
use super::account::Account;
use super::lease::Lent;
use super::params;
use super::pool::Pool;
use super::probe::Control;
use super::stats;
use super::table::KeyTable;
use super::table::Table;
use crate::kern::gate::Gate;
use crate::kern::gate::Pass;
use crate::kern::ib::FatalWatch;
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
use core::pin::Pin;
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

/// Deregistrations that may run at a time: some drivers take a minute for one.
const WORKERS: i32 = 128;

/// Number of the next key, of whatever device.
static NEXT_KEY_ID: Atomic<i64> = Atomic::new(1);

/// A number that tells keys apart, also over time.
pub(crate) fn next_key_id() -> u64 {
    // CAST: Starts at 1 and does not reach the sign bit in a lifetime.
    NEXT_KEY_ID.fetch_add(1, Relaxed) as u64
}

/// A device that we serve.
#[pin_data]
pub(crate) struct Device {
    ib: ARef<IbDevice>,
    proof: Proof,
    account: Arc<Account>,
    #[pin]
    keys: KeyTable,
    #[pin]
    leases: Table<Lent>,
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
    /// The driver has said that the HCA is broken.
    failed: Arc<Atomic<bool>>,
    /// Listens for that until removal.
    #[pin]
    fatal: Mutex<Option<Pin<KBox<FatalWatch>>>>,
    /// Who retries keys should not wait any longer.
    #[pin]
    kick: Completion,
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
    #[pin]
    tidy: Work<Device, 3>,
}

impl_has_work! {
    impl HasWork<Self, 1> for Device { self.refill }
    impl HasWork<Self, 2> for Device { self.retry }
    impl HasWork<Self, 3> for Device { self.tidy }
}

impl Device {
    /// Take a device into service. Nothing is made at the HCA yet.
    ///
    /// `EOPNOTSUPP`: it can never serve keys.
    pub(crate) fn new(ib: &IbDevice) -> Result<Arc<Self>> {
        if !ib.is_usable() || !driver::gives_proof(ib.driver_id()) {
            return Err(EOPNOTSUPP);
        }
        let classes = Classes::new(params::classes(), ib.max_mr_pages())?;
        let account = Account::of_device(ib.max_mr())?;
        let workers = OwnedQueue::new(c"rds_mr", WORKERS)?;
        let failed = Arc::new(Atomic::new(false), GFP_KERNEL)?;
        let fatal = KBox::pin_init(FatalWatch::new(ib, failed.clone()), GFP_KERNEL)?;
        Arc::try_pin_init(
            try_pin_init!(Self {
                ib: ib.to_ref(),
                proof: driver::proof_for(params::proof_mode(), ib.driver_id()),
                account,
                keys <- KeyTable::new(),
                leases <- Table::new(),
                gate <- Gate::new(),
                pool <- Pool::new(classes),
                control <- Control::new(),
                pd <- new_mutex!(None, "Device::pd"),
                making <- new_mutex!((), "Device::making"),
                queue <- new_spinlock!(None, "Device::queue"),
                workers <- new_mutex!(Some(workers), "Device::workers"),
                todo <- new_spinlock!(Todo::new(), "Device::todo"),
                failed,
                fatal <- new_mutex!(Some(fatal), "Device::fatal"),
                kick <- Completion::new(),
                gone <- Completion::new(),
                removed <- Completion::new(),
                refill <- new_work!("Device::refill"),
                retry <- new_work!("Device::retry"),
                tidy <- new_work!("Device::tidy"),
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

    pub(crate) fn leases(&self) -> &Table<Lent> {
        &self.leases
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// The right to use the device for a moment. `ENODEV` once it goes.
    pub(crate) fn enter(&self) -> Result<Pass<'_>> {
        self.gate.enter().ok_or(ENODEV)
    }

    /// Whether its driver has said that the HCA is broken: after that a success
    /// can be the driver's own word.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    /// Whether removal has begun.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.is_done()
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
            stats::QUEUES_REPLACED.add(1);
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
}
