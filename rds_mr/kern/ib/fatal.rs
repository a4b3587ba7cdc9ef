// SPDX-License-Identifier: GPL-2.0

//! Being told that a device has failed for good.

use super::IbDevice;
use crate::sys::bindings as raw;
use core::pin::Pin;
use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;
use kernel::types::Opaque;

/// Sets a flag when the driver says IB_EVENT_DEVICE_FATAL: from then on what it
/// reports may be its own word instead of the hardware's.
///
/// Drop waits for a running callback, so it may sleep. To be dropped before
/// `ib_client.remove` returns.
///
/// # Invariants
///
/// `handler` is registered until `drop`.
#[pin_data(PinnedDrop)]
pub(crate) struct FatalWatch {
    #[pin]
    handler: Opaque<raw::ib_event_handler>,
    failed: Arc<Atomic<bool>>,
}

// SAFETY: `handler` is used by C under its own lock, and the flag is atomic.
unsafe impl Send for FatalWatch {}
// SAFETY: As above.
unsafe impl Sync for FatalWatch {}

impl FatalWatch {
    /// Set `failed` when `device` fails. Sleeps.
    pub(crate) fn new(device: &IbDevice, failed: Arc<Atomic<bool>>) -> impl PinInit<Self> {
        let device = device.as_raw();
        pin_init!(Self {
            failed,
            handler <- Opaque::ffi_init(move |slot: *mut raw::ib_event_handler| {
                // SAFETY: `slot` is valid for writing and pinned, `drop` takes it
                // out again; the device is registered (rule of `IbDevice`).
                // `failed` is there, should an event come at once.
                unsafe { raw::rds_mr_helper_watch_events(slot, device, Some(Self::event)) }
            }),
        })
    }

    /// # Safety
    ///
    /// For the RDMA core, with a handler that [`Self::new`] registered and `drop`
    /// has not taken out yet, and with an event.
    unsafe extern "C" fn event(handler: *mut raw::ib_event_handler, event: *mut raw::ib_event) {
        // SAFETY: As promised.
        if unsafe { raw::rds_mr_helper_is_fatal(event) } {
            // SAFETY: `handler` is the field of a pinned `Self`, whose drop waits
            // for us; `failed` was there before the handler was registered.
            let this =
                unsafe { &*kernel::container_of!(Opaque::cast_from(handler), Self, handler) };
            this.failed.store(true, Relaxed);
        }
    }
}

#[pinned_drop]
impl PinnedDrop for FatalWatch {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant it is registered. The core holds its lock
        // over the callbacks, so none runs after this.
        unsafe { raw::ib_unregister_event_handler(self.handler.get()) }
    }
}
