// SPDX-License-Identifier: GPL-2.0

//! Making a key alive at the HCA, for an application or for ourselves.

use super::key::Key;
use super::revoke;
use super::table::Entry;
use crate::kern::ib::Access;
use crate::kern::ib::MappedMr;
use crate::kern::ib::RegOutcome;
use crate::kern::ib::SendQueue;
use crate::kern::ib::FLUSHED;
use crate::kern::time;
use crate::policy::deadline::Deadline;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Marks a registration that failed through no fault of its own: try again.
pub(crate) const EAGAIN_ENGINE: Error = ECANCELED;

/// Places of a key in the tables of those who end keys.
pub(crate) struct Entries {
    pub(crate) of_device: Entry,
    /// `None` for a key that nobody owns.
    pub(crate) of_owner: Option<Entry>,
}

impl Entries {
    /// For a key of the current process. Allocates.
    pub(crate) fn owned() -> Result<Self> {
        Ok(Self {
            of_owner: Some(Entry::new()?),
            ..Self::ours()?
        })
    }

    /// For a key of our own. Allocates.
    pub(crate) fn ours() -> Result<Self> {
        Ok(Self {
            of_device: Entry::new()?,
            of_owner: None,
        })
    }
}

/// Let the HCA see the memory, and those who end keys the key.
///
/// [`EAGAIN_ENGINE`]: nothing is left. `EIO`: the key is ended, or quarantined.
/// Sleeps, up to the deadline; call with a pass.
pub(crate) fn expose(
    entries: Entries,
    key: &Arc<Key>,
    mapped: MappedMr,
    queue: &Arc<SendQueue>,
    access: Access,
    deadline: Deadline,
) -> Result {
    let device = key.device();
    let outcome = mapped.register(queue, access, deadline.end_ns());
    if matches!(outcome, RegOutcome::NotPosted) {
        return Err(EAGAIN_ENGINE);
    }
    key.make_known(entries);
    match outcome {
        RegOutcome::NotPosted => Err(EIO),
        RegOutcome::Live(registration) => {
            key.registered(registration);
            Ok(())
        }
        RegOutcome::Failed(registration, status) => {
            key.not_registered(registration);
            device.deregister(key.clone());
            if revoke::wait_one(key, deadline) && status == FLUSHED {
                Err(EAGAIN_ENGINE)
            } else {
                Err(EIO)
            }
        }
        RegOutcome::Silent(registration) => {
            key.silent(registration, queue.clone());
            if time::may_log() {
                pr_err!(
                    "{:?}: no answer to the registration of key {} in time; its pages stay pinned until its queue is gone\n",
                    device.name(),
                    key.id()
                );
            }
            device.retire_queue();
            Err(EIO)
        }
    }
}
