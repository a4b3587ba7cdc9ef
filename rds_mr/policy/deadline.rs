// SPDX-License-Identifier: GPL-2.0

//! One point in time by which a whole revocation must end, however many keys it has.

/// Nanoseconds in a millisecond.
const NS_PER_MS: u64 = 1_000_000;

/// A point on the caller's monotonic clock; one too far away to be expressed is the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    end_ns: u64,
}

impl Deadline {
    /// Sets the deadline `ms` milliseconds after `now_ns` nanoseconds.
    pub(crate) fn after(now_ns: u64, ms: u32) -> Self {
        Self {
            end_ns: now_ns.saturating_add(u64::from(ms).saturating_mul(NS_PER_MS)),
        }
    }

    /// Returns the earlier one of the two.
    pub(crate) fn min(self, other: Self) -> Self {
        if self.end_ns <= other.end_ns {
            self
        } else {
            other
        }
    }

    /// Returns the point half-way from `now_ns` to this one: for what has another way if it fails.
    pub(crate) fn halfway(&self, now_ns: u64) -> Self {
        Self {
            end_ns: now_ns.saturating_add(self.remaining_ns(now_ns) / 2),
        }
    }

    /// Returns the point itself, in nanoseconds of the caller's clock.
    pub(crate) fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Returns the nanoseconds left at `now_ns`, 0 if there are none.
    pub(crate) fn remaining_ns(&self, now_ns: u64) -> u64 {
        self.end_ns.saturating_sub(now_ns)
    }

    /// Returns whether no time is left at `now_ns`.
    pub(crate) fn passed(&self, now_ns: u64) -> bool {
        self.remaining_ns(now_ns) == 0
    }
}
