// SPDX-License-Identifier: GPL-2.0

//! Whose memory a key opens: one owner per mm, which ends all keys of that mm,
//! over all sockets and devices, before any of its memory goes.
//!
//! An owner exists while a key or a socket refers to it. The last one to let go
//! may be the owner's own end, which cannot wait for itself: a worker takes the
//! watch away.

use super::globals::OWNERS;
use super::globals::REAPER;
use super::params;
use super::revoke;
use super::stats;
use super::table::KeyTable;
use crate::kern::mm;
use crate::kern::mm::MmEnd;
use crate::kern::mm::MmWatch;
use crate::kern::mm::Process;
use crate::kern::time;
use crate::kern::wq::OwnedQueue;
use crate::policy::cause::Cause;
use kernel::impl_has_work;
use kernel::new_work;
use kernel::prelude::*;
use kernel::rbtree::RBTree;
use kernel::rbtree::RBTreeNodeReservation;
use kernel::sync::Arc;
use kernel::sync::UniqueArc;
use kernel::workqueue::Work;
use kernel::workqueue::WorkItem;

/// The keys of one mm, and the process that registered the first of them.
#[pin_data]
pub(crate) struct Owner {
    process: Process,
    keys: Arc<KeyTable>,
}

impl MmEnd for Owner {
    fn mm_ended(&self) {
        let keys = self.keys.iter().count();
        if keys == 0 {
            return;
        }
        // CAST: usize is u64 on 64-bit, the only kind served.
        stats::REVOKED_OWNER.add(keys as u64);
        if self.process.is_seen_dead() {
            stats::LATE_RELEASE.add(keys as u64);
        }
        let unproven = revoke::all(&self.keys, Cause::Owner, params::deadline());
        if unproven != 0 && time::may_log() {
            pr_err!(
                "a process ended with {} keys whose end is not proven; their pages stay pinned\n",
                unproven
            );
        }
    }
}

/// An owner, and how many refer to it.
struct Entry {
    watch: Arc<MmWatch<Owner>>,
    users: usize,
    /// It is in the list of those to look at, and who follows there.
    listed: bool,
    next: Option<usize>,
}

/// All owners, by mm. Lives in [`OWNERS`].
pub(crate) struct Owners {
    tree: Option<RBTree<usize, Entry>>,
    /// The first of those that nobody referred to once.
    unused: Option<usize>,
}

impl Owners {
    /// No owner yet.
    pub(crate) const fn new() -> Self {
        Self {
            tree: None,
            unused: None,
        }
    }

    fn entry(&mut self, id: usize) -> Option<&mut Entry> {
        self.tree.as_mut()?.get_mut(&id)
    }

    /// The caller owes a [`Self::put`].
    fn get(&mut self, id: usize) -> Option<Arc<KeyTable>> {
        let entry = self.entry(id)?;
        // OVERFLOW: Each user is an object in memory.
        entry.users = entry.users.saturating_add(1);
        Some(entry.watch.data().keys.clone())
    }

    /// Returns whether there is work for the reaper.
    fn put(&mut self, id: usize) -> bool {
        let first = self.unused;
        let Some(entry) = self.entry(id) else {
            return false;
        };
        entry.users = entry.users.saturating_sub(1);
        if entry.users > 0 || entry.listed {
            return false;
        }
        (entry.listed, entry.next) = (true, first);
        self.unused = Some(id);
        true
    }

    /// Take out one that nobody refers to.
    fn take_unused(&mut self) -> Option<Arc<MmWatch<Owner>>> {
        while let Some(id) = self.unused {
            let entry = self.entry(id)?;
            entry.listed = false;
            let (users, next) = (entry.users, entry.next.take());
            self.unused = next;
            if users == 0 {
                let removed = self.tree.as_mut()?.remove(&id);
                return removed.map(|entry| entry.watch);
            }
        }
        None
    }

    fn is_empty(&self) -> bool {
        self.tree
            .as_ref()
            .is_none_or(|tree| tree.iter().next().is_none())
    }
}

/// A reference to an owner, shared by the keys of a socket: the count of the
/// owner's users is behind a lock of all. Drop may sleep, but not for long.
pub(crate) struct OwnerRef {
    id: usize,
    keys: Arc<KeyTable>,
}

impl OwnerRef {
    /// The owner of the current process's memory, made if it has none.
    ///
    /// `ERESTARTNOINTR`: a signal is pending. `ENOMEM`. Sleeps; hold nothing.
    pub(crate) fn of_current() -> Result<Arc<Self>> {
        let id = mm::current_mm_id()?;
        // Before there is something to give back.
        let place = UniqueArc::new_uninit(GFP_KERNEL_ACCOUNT)?;
        let known = OWNERS.lock().get(id);
        let keys = match known {
            Some(keys) => keys,
            None => Self::enter_current(id)?,
        };
        Ok(place.write(Self { id, keys }).into())
    }

    /// Watch the current process's memory, and count one user.
    fn enter_current(id: usize) -> Result<Arc<KeyTable>> {
        let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let keys = Arc::pin_init(KeyTable::new(), GFP_KERNEL_ACCOUNT)?;
        let process = Process::current();
        let watch = Arc::pin_init(
            MmWatch::of_current(pin_init!(Owner { process, keys })),
            GFP_KERNEL_ACCOUNT,
        )?;
        let mut owners = OWNERS.lock();
        // Another thread may have been faster; our watch goes after the lock.
        if let Some(keys) = owners.get(id) {
            drop(owners);
            return Ok(keys);
        }
        let keys = watch.data().keys.clone();
        let entry = Entry {
            watch,
            users: 1,
            listed: false,
            next: None,
        };
        owners
            .tree
            .get_or_insert_with(RBTree::new)
            .insert(node.into_node(id, entry));
        Ok(keys)
    }

    /// Whether this is the owner of the current process's memory.
    pub(crate) fn is_current(&self) -> bool {
        mm::current_mm_id().is_ok_and(|id| id == self.id)
    }

    /// Its keys, by id.
    pub(crate) fn keys(&self) -> &Arc<KeyTable> {
        &self.keys
    }
}

impl Drop for OwnerRef {
    fn drop(&mut self) {
        if OWNERS.lock().put(self.id) {
            if let Some((queue, reaper)) = &*REAPER.lock() {
                let _ = queue.queue().enqueue::<_, 0>(reaper.clone());
            }
        }
    }
}

/// Takes away the watches of owners that nobody refers to.
#[pin_data]
pub(crate) struct Reaper {
    #[pin]
    work: Work<Reaper>,
}

impl_has_work! {
    impl HasWork<Self> for Reaper { self.work }
}

impl WorkItem for Reaper {
    type Pointer = Arc<Self>;

    fn run(_this: Arc<Self>) {
        loop {
            let unused = OWNERS.lock().take_unused();
            if unused.is_none() {
                return;
            }
        }
    }
}

/// The reaper at work. Drop waits until it has no work left: to be dropped when
/// no key and no socket exists any more.
pub(crate) struct OwnersGuard(());

impl OwnersGuard {
    pub(crate) fn new() -> Result<Self> {
        let reaper = Arc::pin_init(
            pin_init!(Reaper { work <- new_work!("Reaper::work") }),
            GFP_KERNEL,
        )?;
        let queue = OwnedQueue::new(c"rds_mr_owners", 1)?;
        *REAPER.lock() = Some((queue, reaper));
        Ok(Self(()))
    }
}

impl Drop for OwnersGuard {
    fn drop(&mut self) {
        // Not under the lock, which the reaper's work may want.
        let reaper = REAPER.lock().take();
        drop(reaper);
        // A watch that stays would call code that is about to go.
        kernel::warn_on!(!OWNERS.lock().is_empty());
    }
}
