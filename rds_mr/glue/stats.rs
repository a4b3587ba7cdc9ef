// SPDX-License-Identifier: GPL-2.0

//! What an administrator can count: `rds_mr/stats` and `rds_mr/quarantine` in
//! debugfs.

use super::globals::DEVICES;
use kernel::fmt;
use kernel::sync::atomic::Atomic;
use kernel::sync::atomic::Relaxed;

/// A number of things since the module was loaded, or now.
pub(crate) struct Counter(Atomic<i64>);

impl Counter {
    const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Never sleeps.
    pub(crate) fn add(&self, n: u64) {
        // CAST: Keys and pages; they do not reach the sign bit in a lifetime.
        self.0.fetch_add(n as i64, Relaxed);
    }

    /// Never sleeps.
    pub(crate) fn sub(&self, n: u64) {
        // CAST: As above.
        self.0.fetch_sub(n as i64, Relaxed);
    }

    fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// Keys that are quarantined now.
pub(crate) static QUARANTINED: Counter = Counter::new();
/// Keys that were leaked, and their pages: pinned until reboot.
pub(crate) static LEAKED: Counter = Counter::new();
/// See [`LEAKED`].
pub(crate) static LEAKED_PAGES: Counter = Counter::new();
/// Keys that were revoked because the memory of their owner went.
pub(crate) static REVOKED_OWNER: Counter = Counter::new();
/// Keys of [`REVOKED_OWNER`] that lived on when others could tell already that
/// their owner was dead: somebody else held its memory.
pub(crate) static LATE_RELEASE: Counter = Counter::new();
/// Keys that were revoked because their HCA went.
pub(crate) static REVOKED_DEVICE: Counter = Counter::new();
/// Registration queues that were replaced after an error.
pub(crate) static QUEUES_REPLACED: Counter = Counter::new();

static ALL: [(&str, &Counter); 7] = [
    ("quarantined", &QUARANTINED),
    ("leaked", &LEAKED),
    ("leaked_pages", &LEAKED_PAGES),
    ("revoked_owner", &REVOKED_OWNER),
    ("late_release", &LATE_RELEASE),
    ("revoked_device", &REVOKED_DEVICE),
    ("queues_replaced", &QUEUES_REPLACED),
];

/// One `name value` a line.
pub(crate) fn show(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    ALL.iter()
        .try_for_each(|(name, counter)| writeln!(f, "{name} {}", counter.get()))
}

/// The quarantined keys, one a line.
pub(crate) fn show_quarantine(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut devices = (0..).map_while(|n| DEVICES.lock().0.get(n).cloned());
    devices.try_for_each(|device| {
        let mut keys = device.keys().iter().filter(|key| key.is_quarantined());
        keys.try_for_each(|key| {
            writeln!(
                f,
                "{:?} key {} pages {} {:?}",
                device.name(),
                key.id(),
                key.pages(),
                key.state()
            )
        })
    })
}
