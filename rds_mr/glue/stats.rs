// SPDX-License-Identifier: GPL-2.0

//! What an administrator can count: `rds_mr/stats` and `rds_mr/quarantine` in
//! debugfs.

use super::globals::DEVICES;
use crate::kern::debugfs::Show;
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::seq_print;
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
/// Keys that there were when the memory of their owner went.
pub(crate) static REVOKED_OWNER: Counter = Counter::new();
/// Those of [`REVOKED_OWNER`] that lived on when others could tell already that
/// the process which registered the first of them was dead: somebody else held
/// its memory.
pub(crate) static LATE_RELEASE: Counter = Counter::new();
/// Keys that there were when their HCA went.
pub(crate) static REVOKED_DEVICE: Counter = Counter::new();
/// Keys that a driver said to have deregistered after it had said that its HCA
/// has failed (IB_EVENT_DEVICE_FATAL): its word is all there is.
pub(crate) static TRUSTED_DEAD: Counter = Counter::new();
/// Registration queues that were replaced after an error.
pub(crate) static QUEUES_REPLACED: Counter = Counter::new();

static ALL: [(&str, &Counter); 8] = [
    ("quarantined", &QUARANTINED),
    ("leaked", &LEAKED),
    ("leaked_pages", &LEAKED_PAGES),
    ("revoked_owner", &REVOKED_OWNER),
    ("late_release", &LATE_RELEASE),
    ("revoked_device", &REVOKED_DEVICE),
    ("trusted_dead", &TRUSTED_DEAD),
    ("queues_replaced", &QUEUES_REPLACED),
];

/// `stats`: one `name value` a line.
pub(crate) struct Stats;

impl Show for Stats {
    const NAME: &'static CStr = c"stats";

    fn show(out: &SeqFile) {
        for (name, counter) in &ALL {
            seq_print!(out, "{} {}\n", name, counter.get());
        }
    }
}

/// `quarantine`: the quarantined keys, one a line.
pub(crate) struct Quarantine;

impl Show for Quarantine {
    const NAME: &'static CStr = c"quarantine";

    fn show(out: &SeqFile) {
        // One at a time: no lock is held while it is written.
        for device in (0..).map_while(|n| DEVICES.lock().0.get(n).cloned()) {
            for key in device.keys().iter().filter(|key| key.is_quarantined()) {
                seq_print!(
                    out,
                    "{:?} key {} pages {} {:?}\n",
                    device.name(),
                    key.id(),
                    key.pages(),
                    key.state()
                );
            }
        }
    }
}
