// SPDX-License-Identifier: GPL-2.0

//! What each user has in use over all sockets. A user is a real uid in the
//! initial user namespace.

use super::params;
use crate::policy::quota::Ledger;
use kernel::prelude::*;
use kernel::rbtree::RBTree;
use kernel::rbtree::RBTreeNodeReservation;

/// Ledgers of the users that have something in use, and of nobody else.
///
/// Lives in [`super::globals::USERS`].
pub(crate) struct Users(Option<RBTree<u32, Ledger>>);

/// Memory for the ledger of a user who may have none yet.
pub(crate) struct Reservation(RBTreeNodeReservation<u32, Ledger>);

impl Reservation {
    /// Allocate, before any lock is taken.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(RBTreeNodeReservation::new(GFP_KERNEL)?))
    }
}

impl Users {
    /// No user yet.
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// The ledger of `uid`, made if it has none.
    pub(crate) fn ledger(&mut self, uid: u32, reservation: Reservation) -> Option<&mut Ledger> {
        let tree = self.0.get_or_insert_with(RBTree::new);
        if tree.get(&uid).is_none() {
            tree.insert(
                reservation
                    .0
                    .into_node(uid, Ledger::new(params::user_limits())),
            );
        }
        tree.get_mut(&uid)
    }

    /// The ledger of `uid`, if it has one.
    pub(crate) fn existing(&mut self, uid: u32) -> Option<&mut Ledger> {
        self.0.as_mut()?.get_mut(&uid)
    }

    /// Forget `uid` if it has nothing in use.
    pub(crate) fn tidy(&mut self, uid: u32) {
        if let Some(tree) = &mut self.0 {
            if tree.get(&uid).is_some_and(Ledger::is_empty) {
                tree.remove(&uid);
            }
        }
    }
}
