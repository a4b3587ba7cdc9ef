// SPDX-License-Identifier: GPL-2.0

//! Ordered tables: the keys of a socket (by rkey), of a device or of an owner
//! (by id), and the leases of a device.

use super::key::Key;
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::rbtree::RBTree;
use kernel::rbtree::RBTreeNodeReservation;
use kernel::sync::Arc;
use kernel::sync::SpinLock;

/// How many are taken out of a table at a time to look at them all.
const CHUNK: usize = 16;

/// An ordered table of counted objects.
#[pin_data]
pub(crate) struct Table<T> {
    #[pin]
    tree: SpinLock<RBTree<u64, Arc<T>>>,
}

/// A table of keys.
pub(crate) type KeyTable = Table<Key>;

/// Memory for one entry.
pub(crate) struct Entry<T = Key>(RBTreeNodeReservation<u64, Arc<T>>);

impl<T> Entry<T> {
    /// Allocate, so that inserting cannot fail for want of memory.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?))
    }
}

impl<T> Table<T> {
    /// An empty table.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self { tree <- new_spinlock!(RBTree::new(), "Table::tree") })
    }

    /// Insert. `EEXIST` if `at` is taken, be it by a key that is dead: its
    /// holder does not know that it is.
    pub(crate) fn insert(&self, entry: Entry<T>, at: u64, value: Arc<T>) -> Result {
        let mut tree = self.tree.lock();
        if tree.get(&at).is_some() {
            return Err(EEXIST);
        }
        tree.insert(entry.0.into_node(at, value));
        Ok(())
    }

    /// What stands at `at`.
    pub(crate) fn get(&self, at: u64) -> Option<Arc<T>> {
        self.tree.lock().get(&at).cloned()
    }

    /// Take out `value`, if it is what stands at `at`: a number can come again
    /// when its first owner is gone. True if it was there.
    pub(crate) fn remove(&self, at: u64, value: &T) -> bool {
        let mut tree = self.tree.lock();
        let found = tree
            .get(&at)
            .is_some_and(|found| core::ptr::eq(&raw const **found, value));
        let removed = if found { tree.remove(&at) } else { None };
        drop(tree);
        removed.is_some()
    }

    /// All in order. Those that come or go meanwhile may be missed. Allocates
    /// nothing and holds no lock between two of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Arc<T>> + '_ {
        let mut from = Some(0);
        let mut chunk = [const { None }; CHUNK];
        let mut next = CHUNK;
        core::iter::from_fn(move || {
            if next == CHUNK {
                from = self.fill(from?, &mut chunk);
                next = 0;
            }
            let value = chunk.get_mut(next).and_then(Option::take);
            next = next.saturating_add(1);
            value
        })
    }

    /// Fill `chunk` from `from` on. Returns where to go on.
    fn fill(&self, from: u64, chunk: &mut [Option<Arc<T>>; CHUNK]) -> Option<u64> {
        let mut tree = self.tree.lock();
        let mut cursor = tree.cursor_lower_bound_mut(&from);
        let mut from = Some(from);
        for slot in chunk {
            let Some(this) = cursor else { break };
            let (at, value) = this.current();
            (*slot, from) = (Some(value.clone()), at.checked_add(1));
            cursor = this.move_next();
        }
        from
    }
}
