// SPDX-License-Identifier: GPL-2.0

//! The keys of a socket (by rkey), of a device or of an owner (by id).

use super::key::Key;
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::rbtree::RBTree;
use kernel::rbtree::RBTreeNodeReservation;
use kernel::sync::Arc;
use kernel::sync::SpinLock;

/// An ordered table of keys.
#[pin_data]
pub(crate) struct KeyTable {
    #[pin]
    tree: SpinLock<RBTree<u64, Arc<Key>>>,
}

/// Memory for one entry.
pub(crate) struct Entry(RBTreeNodeReservation<u64, Arc<Key>>);

impl Entry {
    /// Allocate, so that inserting cannot fail for want of memory.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?))
    }
}

impl KeyTable {
    /// An empty table.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self { tree <- new_spinlock!(RBTree::new(), "KeyTable::tree") })
    }

    /// Insert. `EEXIST` if `at` is taken, be it by a key that is dead: its
    /// holder does not know that it is.
    pub(crate) fn insert(&self, entry: Entry, at: u64, key: Arc<Key>) -> Result {
        let mut tree = self.tree.lock();
        if tree.get(&at).is_some() {
            return Err(EEXIST);
        }
        tree.insert(entry.0.into_node(at, key));
        Ok(())
    }

    /// The key at `at`.
    pub(crate) fn get(&self, at: u64) -> Option<Arc<Key>> {
        self.tree.lock().get(&at).cloned()
    }

    /// Take out `key`, if it is what stands at `at`: a number can come again
    /// when its first owner is dead. True if it was there.
    pub(crate) fn remove(&self, at: u64, key: &Key) -> bool {
        let mut tree = self.tree.lock();
        let found = tree
            .get(&at)
            .is_some_and(|found| core::ptr::eq(&**found, key));
        let removed = if found { tree.remove(&at) } else { None };
        drop(tree);
        removed.is_some()
    }

    /// All keys in order. Those that come or go meanwhile may be missed.
    /// Allocates nothing and holds no lock between two keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Arc<Key>> + '_ {
        let mut from = Some(0);
        core::iter::from_fn(move || {
            let tree = self.tree.lock();
            let cursor = tree.cursor_lower_bound(&from?)?;
            let (at, key) = cursor.current();
            from = at.checked_add(1);
            Some(key.clone())
        })
    }
}
