// SPDX-License-Identifier: GPL-2.0

//! Who may hold how much: quotas, ceilings and locked memory.
//!
//! A key is charged to several ledgers at once: that of its socket, of its user and of its
//! device. A quota per socket alone would bound nobody, since anybody can open another socket.

use super::{
    error::Error,
    range::PAGE_SHIFT, //
};

/// A number of keys and a number of pages; as a limit, `u64::MAX` is "no limit".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Keys.
    pub(crate) keys: u64,
    /// Pinned pages of all keys together.
    pub(crate) pages: u64,
}

/// What one holder may use and what it uses.
///
/// The limit may lie below the use: it was lowered, which takes nothing away and only refuses
/// what is new. All access must be under one lock, so that a charge is seen whole or not at all.
#[derive(Debug)]
pub(crate) struct Ledger {
    limits: Limits,
    used: Limits,
}

impl Ledger {
    /// Opens an empty ledger.
    pub(crate) const fn new(limits: Limits) -> Self {
        Self {
            limits,
            used: Limits { keys: 0, pages: 0 },
        }
    }

    /// Returns the limits.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Changes the limits, whatever is in use.
    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Returns what is in use.
    pub(crate) fn used(&self) -> Limits {
        self.used
    }

    /// Returns whether nothing is in use.
    pub(crate) fn is_empty(&self) -> bool {
        self.used == Limits { keys: 0, pages: 0 }
    }

    /// Takes `amount` off what is in use.
    ///
    /// Returns `false` if less than that was in use. It then stops at zero, and the caller
    /// should warn: something was refunded twice or never charged.
    #[must_use]
    pub(crate) fn refund(&mut self, amount: Limits) -> bool {
        let used = self.used;
        self.used = Limits {
            keys: used.keys.saturating_sub(amount.keys),
            pages: used.pages.saturating_sub(amount.pages),
        };
        used.keys >= amount.keys && used.pages >= amount.pages
    }

    /// Returns what would be in use with one more key of `pages` pages, if that is allowed.
    fn with_key(&self, pages: u64) -> Option<Limits> {
        let keys = self.used.keys.checked_add(1)?;
        let pages = self.used.pages.checked_add(pages)?;
        (keys <= self.limits.keys && pages <= self.limits.pages).then_some(Limits { keys, pages })
    }
}

/// Charges one key of `pages` pages to every ledger, or to none.
///
/// # Errors
///
/// [`Error::Again`] if it exceeds a limit of any of them.
pub(crate) fn charge_all(ledgers: &mut [&mut Ledger], pages: u64) -> Result<(), Error> {
    if ledgers
        .iter()
        .any(|ledger| ledger.with_key(pages).is_none())
    {
        return Err(Error::Again);
    }
    for ledger in ledgers {
        if let Some(used) = ledger.with_key(pages) {
            ledger.used = used;
        }
    }
    Ok(())
}

/// Takes one key of `pages` pages off every ledger.
///
/// Returns `false` if one of them held less than that, see [`Ledger::refund`].
#[must_use]
pub(crate) fn refund_all(ledgers: &mut [&mut Ledger], pages: u64) -> bool {
    let mut sound = true;
    for ledger in ledgers {
        sound &= ledger.refund(Limits { keys: 1, pages });
    }
    sound
}

/// Turns a `struct rds_mr_quota` of an application into the limits of its socket.
///
/// A number of 0 asks for the administrator's default, which is also the ceiling. What lies
/// above the ceiling because somebody privileged raised it may be kept or lowered by anybody.
///
/// # Errors
///
/// [`Error::Invalid`] if a flag is set, [`Error::Perm`] if a number exceeds both the ceiling
/// and what is in force (`current`), and the caller is not `privileged` (`CAP_NET_ADMIN` in the initial user namespace).
pub(crate) fn resolve_quota(
    max_keys: u32,
    flags: u32,
    max_pages: u64,
    current: Limits,
    ceiling: Limits,
    privileged: bool,
) -> Result<Limits, Error> {
    if flags != 0 {
        return Err(Error::Invalid);
    }
    let or_default = |number, default| if number == 0 { default } else { number };
    let wanted = Limits {
        keys: or_default(u64::from(max_keys), ceiling.keys),
        pages: or_default(max_pages, ceiling.pages),
    };
    let raised = |wanted: u64, current, ceiling| wanted > ceiling && wanted > current;
    if !privileged
        && (raised(wanted.keys, current.keys, ceiling.keys)
            || raised(wanted.pages, current.pages, ceiling.pages))
    {
        return Err(Error::Perm);
    }
    Ok(wanted)
}

/// Returns whether `pages` more pinned pages fit under `RLIMIT_MEMLOCK`.
///
/// `pinned` is `mm->pinned_vm`, in pages; `limit_bytes` the soft limit, of which the last part of
/// a page does not count and `u64::MAX` is `RLIM_INFINITY`. The caller publishes the sum by
/// compare-and-swap and asks again when it lost: adding first and taking back later, as
/// `ib_umem_get()` does, makes a request that fits fail because another one did not.
pub(crate) fn memlock_fits(pinned: u64, pages: u64, limit_bytes: u64) -> bool {
    match pinned.checked_add(pages) {
        Some(sum) => limit_bytes == u64::MAX || sum <= limit_bytes >> PAGE_SHIFT,
        None => false,
    }
}
