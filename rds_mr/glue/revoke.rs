// SPDX-License-Identifier: GPL-2.0

//! Ending keys: one, or all of a table, under one deadline.
//!
//! Nothing in here allocates: it runs when processes die of lack of memory.

use super::device::Device;
use super::key::Key;
use super::key::Revoke;
use super::table::KeyTable;
use crate::kern::ib::CHAIN;
use crate::kern::time;
use crate::policy::cause::Cause;
use crate::policy::deadline::Deadline;
use kernel::sync::Arc;

/// Milliseconds after which a few workers are not enough.
const MOMENT_MS: u32 = 50;
/// Milliseconds between two tries to end what could not be ended, at most.
const ROUND_MS: u32 = 500;

/// Who ends keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// Somebody who needs a pass of each device, and leaves the keys to `remove`
    /// where he gets none.
    Visitor,
    /// [`Device::remove`], after which nobody gets a pass.
    Remover,
}

/// End every key in `table`, of whatever devices; what fails is tried again.
/// Returns how many had no proof of their death at the deadline; the workers go
/// on with those. Their pages stay pinned.
pub(crate) fn all(table: &KeyTable, cause: Cause, deadline: Deadline) -> usize {
    start(table, cause, deadline, By::Visitor);
    finish(table, cause, deadline, By::Visitor)
}

/// Wait for the end of every key in `table`, and try again what cannot be ended,
/// until the deadline. Returns how many had no proof then.
///
/// A few workers share what is to be deregistered. If they have not done it in
/// a moment, a driver takes its time: every key gets a worker of its own. In
/// rounds, since one key that hangs must not keep the others from being tried.
pub(super) fn finish(table: &KeyTable, cause: Cause, deadline: Deadline, by: By) -> usize {
    let mut round_ms = MOMENT_MS;
    loop {
        let round = Deadline::after(time::now_ns(), round_ms).min(deadline);
        let left = wait(table, cause, round);
        if left.due == 0 {
            return left.unproven;
        }
        if deadline.passed(time::now_ns()) {
            give_up(table, cause);
            return left.unproven;
        }
        time::sleep_until(round.end_ns());
        retry(table, by);
        round_ms = round_ms.saturating_mul(2).min(ROUND_MS);
    }
}

/// Whoever comes next need not wait for these keys again.
fn give_up(table: &KeyTable, cause: Cause) {
    for key in table.iter().filter(|key| is_due(key, cause)) {
        if !key.is_dead() {
            key.set_overdue();
        }
    }
}

/// Try again, in the workers, what could not be ended.
fn retry(table: &KeyTable, by: By) {
    for key in table.iter() {
        let device = key.device();
        // Without one the workers may be gone by the time the key is handed over.
        let pass = device.enter();
        if (pass.is_ok() || by == By::Remover) && key.retry() {
            device.deregister(key.clone());
        }
    }
}

/// Begin to end every key in `table`: invalidations go out in chains and are
/// waited for, deregistrations go to the workers, many at a time.
pub(super) fn start(table: &KeyTable, cause: Cause, deadline: Deadline, by: By) {
    let mut chunk = Chunk::new();
    for key in table.iter().filter(|key| is_due(key, cause)) {
        if let Some(key) = chunk.push(key) {
            chunk.end(cause, deadline, by);
            drop(chunk.push(key));
        }
    }
    chunk.end(cause, deadline, by);
}

fn is_due(key: &Key, cause: Cause) -> bool {
    !key.is_leaked() && (cause.waits_for_overdue() || !key.is_overdue())
}

/// What [`wait`] has waited for in vain.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Left {
    /// Keys without a proof of their death.
    unproven: usize,
    /// Those of them whose end can come, and that nobody has waited for up to a
    /// deadline before.
    due: usize,
}

/// Wait until nobody works on any key in `table`, or the end of the round: then
/// whoever is still worked on gets a worker of its own.
fn wait(table: &KeyTable, cause: Cause, round: Deadline) -> Left {
    let mut left = Left {
        unproven: 0,
        due: 0,
    };
    for key in table.iter() {
        let due = is_due(&key, cause);
        if due && cause != Cause::Device && key.device().is_gone() {
            // `remove` does the work.
            key.device().wait_removed(round);
        }
        let dead = if due { key.wait(round) } else { key.is_dead() };
        if dead {
            continue;
        }
        left.unproven = left.unproven.saturating_add(1);
        // It can have come to its end just now.
        if is_due(&key, cause) {
            left.due = left.due.saturating_add(1);
            if key.is_underway() {
                key.device().hurry(key.clone());
            }
        }
    }
    left
}

/// Wait for a key that the workers have. True if its death is proven.
pub(super) fn wait_one(key: &Arc<Key>, deadline: Deadline) -> bool {
    let moment = Deadline::after(time::now_ns(), MOMENT_MS).min(deadline);
    if !key.wait(moment) && key.is_underway() {
        key.device().hurry(key.clone());
    }
    key.wait(deadline)
}

/// End one key, on behalf of a task that waits for this very key. True if its
/// death is proven.
///
/// A deregistration runs here and not in a worker: handing it over costs more
/// than the operation itself (see docs/performance.md). A driver that hangs in
/// it holds up the caller of RDS_FREE_MR, and nobody else.
pub(crate) fn one(key: &Arc<Key>, cause: Cause, deadline: Deadline) -> bool {
    let device = key.device();
    let Ok(pass) = device.enter() else {
        device.wait_removed(deadline);
        return key.wait(deadline);
    };
    let deregister = match key.revoke(cause) {
        Revoke::Invalidate => invalidate(device, key, deadline.halfway(time::now_ns())),
        Revoke::Deregister => true,
        Revoke::Wait | Revoke::Nothing => false,
    };
    if deregister {
        key.deregister();
    }
    drop(pass);
    key.wait(deadline)
}

/// Invalidate one key. True if that is no proof: it has to be deregistered.
fn invalidate(device: &Arc<Device>, key: &Arc<Key>, deadline: Deadline) -> bool {
    let Some(queue) = device.queue_now() else {
        return key.invalidated(None);
    };
    let mut unproven = false;
    queue.invalidate(&[key.rkey()], deadline.end_ns(), |_, proof| {
        unproven = key.invalidated(proof);
    });
    if queue.is_broken() {
        device.retire_queue();
    }
    unproven
}

/// Keys of one device that are ended together.
struct Chunk {
    keys: [Option<Arc<Key>>; CHAIN],
    len: usize,
}

impl Chunk {
    fn new() -> Self {
        Self {
            keys: [const { None }; CHAIN],
            len: 0,
        }
    }

    fn device(&self) -> Option<Arc<Device>> {
        Some(self.keys.first()?.as_ref()?.device().clone())
    }

    /// Add a key. Gives it back if there is no room, or no other key of its
    /// device.
    fn push(&mut self, key: Arc<Key>) -> Option<Arc<Key>> {
        let fits = self
            .device()
            .is_none_or(|device| Arc::ptr_eq(&device, key.device()));
        match self.keys.get_mut(self.len) {
            Some(slot) if fits => {
                *slot = Some(key);
                self.len = self.len.saturating_add(1);
                None
            }
            _ => Some(key),
        }
    }

    /// End them all, and empty the chunk.
    fn end(&mut self, cause: Cause, deadline: Deadline, by: By) {
        if let Some(device) = self.device() {
            let pass = device.enter();
            if pass.is_ok() || by == By::Remover {
                self.revoke(&device, cause);
                // An HCA that is silent must leave time for the other way, and
                // for other HCAs.
                self.invalidate(&device, deadline.halfway(time::now_ns()));
            }
        }
        // Those that `remove` has to end.
        self.keys.iter_mut().for_each(|key| *key = None);
        self.len = 0;
    }

    /// Decide on each key; those to be invalidated stay, moved to the front.
    fn revoke(&mut self, device: &Arc<Device>, cause: Cause) {
        let mut stay = 0;
        for n in 0..self.len {
            let Some(key) = self.keys.get_mut(n).and_then(Option::take) else {
                continue;
            };
            match key.revoke(cause) {
                Revoke::Invalidate => {
                    if let Some(slot) = self.keys.get_mut(stay) {
                        *slot = Some(key);
                        stay = stay.saturating_add(1);
                    }
                }
                Revoke::Deregister => device.deregister(key),
                Revoke::Wait | Revoke::Nothing => {}
            }
        }
        self.len = stay;
    }

    /// Invalidate them all. What has no proof then goes to the workers.
    fn invalidate(&mut self, device: &Arc<Device>, deadline: Deadline) {
        let mut rkeys = [0; CHAIN];
        for (rkey, key) in rkeys.iter_mut().zip(self.keys.iter().flatten()) {
            *rkey = key.rkey();
        }
        let mut finish = |n: usize, proof| {
            if let Some(key) = self.keys.get_mut(n).and_then(Option::take) {
                if key.invalidated(proof) {
                    device.deregister(key);
                }
            }
        };
        match (device.queue_now(), rkeys.get(..self.len)) {
            (_, Some([])) => {}
            (Some(queue), Some(rkeys)) => {
                queue.invalidate(rkeys, deadline.end_ns(), finish);
                if queue.is_broken() {
                    device.retire_queue();
                }
            }
            _ => (0..self.len).for_each(|n| finish(n, None)),
        }
    }
}
