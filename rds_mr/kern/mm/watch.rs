// SPDX-License-Identifier: GPL-2.0

//! Being told of the end of a process's memory, before any of it goes.
//!
//! An mmu_interval_notifier on one page above all user memory. What happens in
//! the address space names a range, which hardly ever reaches that page; what
//! names everything (the end, and a few others) is told apart by its event. The
//! end is MMU_NOTIFY_RELEASE: exit, exec, the last of those who shared it. It
//! comes in `exit_mm`, before files are closed and before the parent is told,
//! unless somebody else holds the mm. (`mmu_notifier_ops.release`, the other
//! way, runs inside of a global SRCU section: not for a callback that waits.)

use crate::sys::bindings as raw;
use core::pin::Pin;
use kernel::bindings;
use kernel::error::to_result;
use kernel::ffi;
use kernel::prelude::*;
use kernel::types::Opaque;

/// Who wants to know.
pub(crate) trait MmEnd: Send + Sync + 'static {
    /// The mm has no user left; nothing of it has been let go yet, and is not
    /// until this returns. May sleep, in whatever task gave up the last use. Must
    /// not drop the watch.
    fn mm_ended(&self);
}

/// A watch over the mm of the process that made it.
///
/// Drop waits for a running [`MmEnd::mm_ended`], so it may sleep.
///
/// # Invariants
///
/// `sub` is inserted until `drop`.
#[pin_data(PinnedDrop)]
pub(crate) struct MmWatch<T: MmEnd> {
    #[pin]
    sub: Opaque<bindings::mmu_interval_notifier>,
    #[pin]
    data: T,
}

// SAFETY: `sub` is used by C under its own locks, and `data` is `Send`.
unsafe impl<T: MmEnd> Send for MmWatch<T> {}
// SAFETY: As above, and `data` is `Sync`.
unsafe impl<T: MmEnd> Sync for MmWatch<T> {}

impl<T: MmEnd> MmWatch<T> {
    const OPS: bindings::mmu_interval_notifier_ops = bindings::mmu_interval_notifier_ops {
        invalidate: Some(Self::invalidate),
        invalidate_start: None,
        invalidate_finish: None,
    };

    /// Watch the mm of the current process. Sleeps; hold nothing.
    ///
    /// `ERESTARTNOINTR`: a signal is pending, the system call is to be restarted
    /// (the first watch of a process takes all locks of its mm, which gives way
    /// to signals). `EFAULT`: a task without user memory.
    pub(crate) fn of_current(data: impl PinInit<T>) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            data <- data,
            sub <- Opaque::try_ffi_init(|slot: *mut bindings::mmu_interval_notifier| {
                let mm = kernel::current!().mm().ok_or(EFAULT)?.as_raw();
                // SAFETY: `slot` is valid and pinned, and `drop` removes it. The
                // current task uses `mm`. `data` is there, should the end come.
                to_result(unsafe { raw::rds_mr_helper_mm_watch(slot, mm, &Self::OPS) })
                    .map_err(|error| if error == EINTR { ERESTARTNOINTR } else { error })
            }),
        }? Error)
    }

    /// What is told of the end.
    pub(crate) fn data(&self) -> &T {
        &self.data
    }

    /// # Safety
    ///
    /// Called by the mm code with a notifier that [`Self::of_current`] inserted
    /// and `drop` has not removed yet, and with the event's range.
    unsafe extern "C" fn invalidate(
        sub: *mut bindings::mmu_interval_notifier,
        range: *const bindings::mmu_notifier_range,
        _seq: ffi::c_ulong,
    ) -> bool {
        // SAFETY: As promised.
        if unsafe { raw::rds_mr_helper_mm_ends(range) } {
            // SAFETY: `sub` is the field of a pinned `Self`, whose drop waits for
            // us; `data` was initialised before the notifier was inserted.
            let this = unsafe { &*kernel::container_of!(Opaque::cast_from(sub), Self, sub) };
            this.data.mm_ended();
        }
        // Nothing was refused, and nobody reads the sequence.
        true
    }
}

#[pinned_drop]
impl<T: MmEnd> PinnedDrop for MmWatch<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant it is inserted; `mm_ended` does not drop
        // the watch, so this does not run in the callback.
        unsafe { bindings::mmu_interval_notifier_remove(self.sub.get()) }
    }
}

/// Tells the mm of the current process from all others that exist. `EFAULT` in
/// a task without user memory.
pub(crate) fn current_mm_id() -> Result<usize> {
    Ok(kernel::current!().mm().ok_or(EFAULT)?.as_raw() as usize)
}
