// SPDX-License-Identifier: GPL-2.0

//! Which addresses and ports are bound, over all sockets.

use super::globals::PORTS;
use crate::kern::random::random_u32;
use crate::policy::addr::check_port;
use crate::policy::addr::Addr;
use crate::policy::ports;
use kernel::prelude::*;
use kernel::rbtree::RBTree;
use kernel::rbtree::RBTreeNodeReservation;

/// The bound addresses. Lives in [`PORTS`].
pub(crate) struct Ports {
    bound: Option<RBTree<Addr, ()>>,
    count: usize,
}

impl Ports {
    /// Nothing bound yet.
    pub(crate) const fn new() -> Self {
        Self {
            bound: None,
            count: 0,
        }
    }
}

/// An address and port that belong to one socket, until this is dropped.
pub(crate) struct Claim(Addr);

impl Claim {
    /// Claim `addr`, or with port 0 a free port of its address.
    ///
    /// `EINVAL`: the probe port. `EADDRINUSE`. `ENOMEM`: too many are bound.
    pub(crate) fn new(addr: Addr) -> Result<Self> {
        check_port(addr.port)?;
        let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let mut ports = PORTS.lock();
        if ports.count >= ports::MAX_BOUND {
            return Err(ENOMEM);
        }
        let bound = ports.bound.get_or_insert_with(RBTree::new);
        let addr = if addr.port == 0 {
            Self::free_port(bound, addr).ok_or(EADDRINUSE)?
        } else {
            addr
        };
        if bound.get(&addr).is_some() {
            return Err(EADDRINUSE);
        }
        bound.insert(node.into_node(addr, ()));
        ports.count = ports.count.saturating_add(1);
        Ok(Self(addr))
    }

    fn free_port(bound: &RBTree<Addr, ()>, addr: Addr) -> Option<Addr> {
        // CAST: Any 16 bits will do.
        let start = random_u32() as u16;
        (0..)
            .map_while(|i| ports::candidate(start, i))
            .map(|port| Addr { port, ..addr })
            .find(|addr| bound.get(addr).is_none())
    }

    /// What was claimed; the port is not 0.
    pub(crate) fn addr(&self) -> Addr {
        self.0
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut ports = PORTS.lock();
        if let Some(bound) = &mut ports.bound {
            bound.remove(&self.0);
        }
        ports.count = ports.count.saturating_sub(1);
    }
}
