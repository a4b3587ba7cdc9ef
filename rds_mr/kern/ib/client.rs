// SPDX-License-Identifier: GPL-2.0

//! Being told of RDMA devices that come and go (`struct ib_client`).

use super::IbDevice;
use crate::sys::bindings as raw;
use core::marker::PhantomData;
use core::marker::PhantomPinned;
use core::pin::Pin;
use kernel::error::from_result;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::types::ForeignOwnable;
use kernel::types::Opaque;

/// What a client does about devices.
pub(crate) trait Client: 'static {
    /// What it keeps for a device.
    type Data: ForeignOwnable + Send + Sync;

    /// A device has come. An error means: never serve this device.
    fn add(device: &IbDevice) -> Result<Self::Data>;

    /// A device goes. When this returns, every verbs object on it must be gone.
    fn remove(data: Self::Data);
}

/// A registered client. Drop removes it from all devices and sleeps for as
/// long as `remove` takes; after it no callback runs.
#[pin_data(PinnedDrop)]
pub(crate) struct ClientRegistration<T: Client> {
    #[pin]
    client: Opaque<raw::ib_client>,
    #[pin]
    _pin: PhantomPinned,
    _client: PhantomData<T>,
}

// SAFETY: The C side locks internally.
unsafe impl<T: Client> Send for ClientRegistration<T> {}
// SAFETY: Nothing is done through a shared reference.
unsafe impl<T: Client> Sync for ClientRegistration<T> {}

impl<T: Client> ClientRegistration<T> {
    /// Register: `T::add` runs for every device before this returns.
    pub(crate) fn new(name: &'static CStr) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            client <- Opaque::try_ffi_init(move |slot: *mut raw::ib_client| {
                let client = raw::ib_client {
                    name: name.as_char_ptr(),
                    add: Some(Self::add),
                    remove: Some(Self::remove),
                    ..Default::default()
                };
                CURRENT_CLIENT.store(slot as usize, kernel::sync::atomic::Relaxed);
                // SAFETY: `slot` is valid for writing; pinned and unregistered
                // by `drop`, so that C may keep it.
                unsafe {
                    slot.write(client);
                    to_result(raw::ib_register_client(slot))
                }
            }),
            _pin: PhantomPinned,
            _client: PhantomData,
        }? Error)
    }

    /// # Safety
    ///
    /// For the RDMA core, with a registered device.
    unsafe extern "C" fn add(device: *mut raw::ib_device) -> kernel::ffi::c_int {
        from_result(|| {
            // SAFETY: The core passes a registered device that lives for the call.
            let data = T::add(unsafe { IbDevice::from_raw(device) })?.into_foreign();
            let client = CURRENT_CLIENT.load(kernel::sync::atomic::Relaxed) as *mut raw::ib_client;
            // SAFETY: `client` is the one client of this module, being registered.
            unsafe { raw::ib_set_client_data(device, client, data) };
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// For the RDMA core, once after each `add`, with what `add` has set.
    unsafe extern "C" fn remove(_device: *mut raw::ib_device, data: *mut kernel::ffi::c_void) {
        if !data.is_null() {
            // SAFETY: Set by `add` from `into_foreign`; the core passes it back
            // exactly once.
            T::remove(unsafe { T::Data::from_foreign(data) });
        }
    }
}

/// The `ib_client` of this module, which `add` does not get from its caller.
static CURRENT_CLIENT: kernel::sync::atomic::Atomic<usize> = kernel::sync::atomic::Atomic::new(0);

#[pinned_drop]
impl<T: Client> PinnedDrop for ClientRegistration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Registered by `new`; an object that failed to register is
        // never dropped.
        unsafe { raw::ib_unregister_client(self.client.get()) };
    }
}
