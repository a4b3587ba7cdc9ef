// SPDX-License-Identifier: GPL-2.0

//! The removal of a device.

use super::super::params;
use super::super::revoke;
use super::super::revoke::By;
use super::super::stats;
use super::Device;
use crate::kern::time;
use crate::policy::cause::Cause;
use crate::policy::deadline::Deadline;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::time::delay::fsleep;
use kernel::time::Delta;

/// Milliseconds between two tries to deregister idle MRs.
const PAUSE_MS: i64 = 20;

impl Device {
    /// Let go of the PD, with the last tries for idle MRs before the deadline.
    fn end_pd(&self, deadline: Deadline) {
        // Keys that could not be ended keep it, and the driver will say so.
        let Some(pd) = self.pd.lock().take() else {
            return;
        };
        let late = || deadline.passed(time::now_ns());
        while pd.has_unwilling() && pd.retry_unwilling(late) != 0 && !late() {
            fsleep(Delta::from_millis(PAUSE_MS));
        }
        if pd.has_unwilling() {
            pr_err!(
                "{:?}: idle MRs cannot be deregistered; they and their PD are lost\n",
                self.name()
            );
        }
    }

    /// The device goes: end every key, then everything else at the HCA.
    ///
    /// After the deadline this waits on for calls that the driver still has in
    /// hand: returning would let the core free the device under them.
    pub(crate) fn remove(self: Arc<Self>) {
        self.gone.complete_all();
        self.kick.complete_all();
        self.gate.close_and_wait();
        let deadline = params::deadline();
        // CAST: usize is u64 on 64-bit, the only kind served.
        stats::REVOKED_DEVICE.add(self.keys.iter().filter(|key| key.has_owner()).count() as u64);
        revoke::start(&self.keys, Cause::Device, deadline, By::Remover);

        // No invalidation is under way any more, and what is stuck with the queue
        // can be ended when that is gone.
        let queue = self.queue.lock().take();
        if let Some(queue) = queue {
            queue.destroy();
        }
        revoke::finish(&self.keys, Cause::Device, deadline, By::Remover);
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
        // Of calls that may be blocked for ever.
        self.leases().iter().for_each(|lent| lent.end());
        self.removed.complete_all();
        self.control.forget();
        self.pool.drain();
        self.end_pd(deadline);
        let fatal = self.fatal.lock().take();
        drop(fatal);
    }
}
