// SPDX-License-Identifier: GPL-2.0

//! Ending keys: one, or all of a table, under one deadline.
//!
//! Nothing in here allocates: it runs when processes die of lack of memory.

use super::device::Device;
use super::key::Bundle;
use super::key::Key;
use super::key::Revoke;
use super::table::KeyTable;
use crate::kern::ib::CHAIN;
use crate::policy::deadline::Deadline;
use kernel::sync::Arc;

/// End every key in `table`, all of which belong to `device`.
///
/// Invalidations go out in chains, deregistrations to the workers, many at a
/// time. Returns how many keys had no proof of their death at the deadline;
/// the workers go on with those. Their pages stay pinned.
pub(crate) fn all(device: &Device, table: &KeyTable, deadline: Deadline) -> usize {
    let mut chunk = Chunk::new();
    let mut bundle = Bundle::new();
    for key in table.iter() {
        match key.revoke() {
            Revoke::Invalidate => {
                if let Some(key) = chunk.push(key) {
                    chunk.run(device, &mut bundle, deadline);
                    drop(chunk.push(key));
                }
            }
            Revoke::Deregister => deregister(device, &mut bundle, key),
            Revoke::Wait | Revoke::Nothing => {}
        }
    }
    chunk.run(device, &mut bundle, deadline);
    if let Some(head) = bundle.take() {
        device.deregister(head);
    }
    table.iter().filter(|key| !key.wait(deadline)).count()
}

/// Put `key` into the bundle; hand that over when it is full.
fn deregister(device: &Device, bundle: &mut Bundle, key: Arc<Key>) {
    bundle.push(key);
    if bundle.is_full() {
        if let Some(head) = bundle.take() {
            device.deregister(head);
        }
    }
}

/// End one key, on behalf of a task that waits for this very key. True if its
/// death is proven.
///
/// A deregistration runs here and not in a worker: handing it over costs more
/// than the operation itself (see docs/performance.md). A driver that hangs in
/// it holds up the caller of RDS_FREE_MR, and nobody else.
pub(crate) fn one(device: &Device, key: &Arc<Key>, deadline: Deadline) -> bool {
    match key.revoke() {
        Revoke::Invalidate => {
            let unproven = match device.queue_now() {
                Some(queue) => {
                    let mut unproven = false;
                    queue.invalidate(&[key.rkey()], deadline.end_ns(), |_, proof| {
                        unproven = key.invalidated(proof);
                    });
                    unproven
                }
                None => key.invalidated(None),
            };
            if unproven {
                key.deregister();
            }
        }
        Revoke::Deregister => key.deregister(),
        Revoke::Wait | Revoke::Nothing => {}
    }
    key.wait(deadline)
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

    /// Invalidate them all, and empty the chunk. What has no proof then goes into
    /// `bundle`.
    fn run(&mut self, device: &Device, bundle: &mut Bundle, deadline: Deadline) {
        let queue = device.queue_now();
        let mut finish = |n: usize, proof| {
            if let Some(key) = self.keys.get_mut(n).and_then(Option::take) {
                if key.invalidated(proof) {
                    deregister(device, bundle, key);
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
