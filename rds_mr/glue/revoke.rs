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
use crate::policy::deadline::Deadline;
use kernel::sync::Arc;

/// Milliseconds after which a few workers are not enough.
const MOMENT_MS: u32 = 50;

/// End every key in `table`, all of which belong to `device`, for a socket that
/// closes. Returns how many keys had no proof of their death at the deadline;
/// the workers go on with those. Their pages stay pinned.
pub(crate) fn all(device: &Device, table: &KeyTable, deadline: Deadline) -> usize {
    match device.enter() {
        Ok(pass) => {
            start(device, table, deadline);
            drop(pass);
        }
        Err(_) => device.wait_removed(deadline),
    }
    wait(device, table, deadline)
}

/// Begin to end every key in `table`: invalidations go out in chains and are
/// waited for, deregistrations go to the workers, many at a time.
///
/// For those who hold a pass, or remove the device.
pub(super) fn start(device: &Device, table: &KeyTable, deadline: Deadline) {
    let mut chunk = Chunk::new();
    for key in table.iter() {
        match key.revoke() {
            Revoke::Invalidate => {
                if let Some(key) = chunk.push(key) {
                    chunk.run(device, deadline);
                    drop(chunk.push(key));
                }
            }
            Revoke::Deregister => device.deregister(key),
            Revoke::Wait | Revoke::Nothing => {}
        }
    }
    chunk.run(device, deadline);
}

/// Wait for the end of every key in `table`. Returns how many had no proof of
/// it at the deadline.
///
/// A few workers share what is to be deregistered. If they have not done it in
/// a moment, a driver takes its time: every key gets a worker of its own.
pub(super) fn wait(device: &Device, table: &KeyTable, deadline: Deadline) -> usize {
    let moment = Deadline::after(time::now_ns(), MOMENT_MS);
    for key in table.iter() {
        if !key.wait(moment) && key.is_underway() {
            device.hurry(key);
        }
    }
    table.iter().filter(|key| !key.wait(deadline)).count()
}

/// End one key, on behalf of a task that waits for this very key. True if its
/// death is proven.
///
/// A deregistration runs here and not in a worker: handing it over costs more
/// than the operation itself (see docs/performance.md). A driver that hangs in
/// it holds up the caller of RDS_FREE_MR, and nobody else.
pub(crate) fn one(key: &Arc<Key>, deadline: Deadline) -> bool {
    let device = key.device();
    let Ok(pass) = device.enter() else {
        device.wait_removed(deadline);
        return key.wait(deadline);
    };
    let deregister = match key.revoke() {
        Revoke::Invalidate => invalidate(device, key, deadline),
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
fn invalidate(device: &Device, key: &Arc<Key>, deadline: Deadline) -> bool {
    let Some(queue) = device.queue_now() else {
        return key.invalidated(None);
    };
    let mut unproven = false;
    queue.invalidate(&[key.rkey()], deadline.end_ns(), |_, proof| {
        unproven = key.invalidated(proof);
    });
    unproven
}

/// Keys whose invalidations go out together.
struct Chunk {
    keys: [Option<Arc<Key>>; CHAIN],
    rkeys: [u32; CHAIN],
    len: usize,
}

impl Chunk {
    fn new() -> Self {
        Self {
            keys: [const { None }; CHAIN],
            rkeys: [0; CHAIN],
            len: 0,
        }
    }

    /// Add a key. Gives it back if there is no room.
    fn push(&mut self, key: Arc<Key>) -> Option<Arc<Key>> {
        let (Some(slot), Some(rkey)) = (self.keys.get_mut(self.len), self.rkeys.get_mut(self.len))
        else {
            return Some(key);
        };
        *rkey = key.rkey();
        *slot = Some(key);
        self.len = self.len.saturating_add(1);
        None
    }

    /// Invalidate them all, and empty the chunk. What has no proof then goes to
    /// the workers.
    fn run(&mut self, device: &Device, deadline: Deadline) {
        let queue = device.queue_now();
        let mut finish = |n: usize, proof| {
            if let Some(key) = self.keys.get_mut(n).and_then(Option::take) {
                if key.invalidated(proof) {
                    device.deregister(key);
                }
            }
        };
        match (queue, self.rkeys.get(..self.len)) {
            (Some(queue), Some(rkeys)) if !rkeys.is_empty() => {
                queue.invalidate(rkeys, deadline.end_ns(), finish);
            }
            _ => (0..self.len).for_each(|n| finish(n, None)),
        }
        self.len = 0;
    }
}
