// SPDX-License-Identifier: GPL-2.0

//! Registration of the family.

use super::adapter::Adapter;
use super::Socket;
use crate::kern::module::this_module_ptr;
use crate::sys::bindings as raw;
use core::marker::PhantomData;
use core::pin::Pin;
use kernel::bindings;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::types::Opaque;

/// A registered socket family. Drop unregisters it; every socket holds a
/// reference to the module, so that none is left by then.
#[pin_data(PinnedDrop)]
pub(crate) struct FamilyRegistration<T: Socket> {
    #[pin]
    family: Opaque<bindings::net_proto_family>,
    _socket: PhantomData<T>,
}

// SAFETY: Nothing is done through a reference; C reads the table.
unsafe impl<T: Socket> Send for FamilyRegistration<T> {}
// SAFETY: As above.
unsafe impl<T: Socket> Sync for FamilyRegistration<T> {}

impl<T: Socket> FamilyRegistration<T> {
    /// Register. `EEXIST` if the family has an owner already.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            family <- Opaque::try_ffi_init(|slot: *mut bindings::net_proto_family| {
                // SAFETY: Called once, before any socket exists.
                to_result(unsafe { raw::rds_mr_proto_register() })?;
                // SAFETY: `slot` is valid for writing; pinned and unregistered
                // by `drop`, so that C may keep it.
                let ret = unsafe {
                    slot.write(bindings::net_proto_family {
                        family: T::FAMILY,
                        create: Some(Adapter::<T>::create),
                        owner: this_module_ptr(),
                    });
                    bindings::sock_register(slot)
                };
                if ret == EEXIST.to_errno() {
                    // insmod can only say EBUSY, so say it here.
                    pr_err!(
                        "socket family {} belongs to another module: unload that first (in-tree RDS: rmmod rds_tcp rds_rdma rds)\n",
                        T::FAMILY
                    );
                }
                if ret != 0 {
                    // SAFETY: Registered above, and never used.
                    unsafe { raw::rds_mr_proto_unregister() };
                }
                to_result(ret)
            }),
            _socket: PhantomData,
        }? Error)
    }
}

#[pinned_drop]
impl<T: Socket> PinnedDrop for FamilyRegistration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Registered by `new`; no socket is left (see the type).
        unsafe {
            bindings::sock_unregister(T::FAMILY);
            raw::rds_mr_proto_unregister();
        }
    }
}
