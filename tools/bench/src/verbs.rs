// SPDX-License-Identifier: GPL-2.0
//! The same work through user verbs, as programs do it today.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::io;
use std::ptr::{self, NonNull};

const LOCAL_WRITE: c_int = 1;
const REMOTE_WRITE: c_int = 2;
const REMOTE_READ: c_int = 4;

/// Things of libibverbs that only it looks into.
#[repr(C)]
struct Device([u8; 0]);
#[repr(C)]
struct Context([u8; 0]);
#[repr(C)]
struct Pd([u8; 0]);
#[repr(C)]
struct Mr([u8; 0]);
#[repr(C)]
struct Provider([u8; 0]);

extern "C" {
    static verbs_provider_rxe: Provider;
    fn ibv_static_providers(unused: *mut c_void, ...);
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut Device;
    fn ibv_free_device_list(list: *mut *mut Device);
    fn ibv_get_device_name(device: *mut Device) -> *const c_char;
    fn ibv_open_device(device: *mut Device) -> *mut Context;
    fn ibv_close_device(context: *mut Context) -> c_int;
    fn ibv_alloc_pd(context: *mut Context) -> *mut Pd;
    fn ibv_dealloc_pd(pd: *mut Pd) -> c_int;
    fn ibv_reg_mr(pd: *mut Pd, addr: *mut c_void, length: usize, access: c_int) -> *mut Mr;
    fn ibv_dereg_mr(mr: *mut Mr) -> c_int;
}

/// An open device with a protection domain.
pub struct Session {
    context: NonNull<Context>,
    pd: NonNull<Pd>,
}

/// A region; if it is not given back, the kernel ends it with its session.
pub struct Region(NonNull<Mr>);

fn some<T>(pointer: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(io::Error::last_os_error)
}

/// Verbs return an errno, not -1.
fn done(errno: c_int) -> io::Result<()> {
    match errno {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

impl Session {
    pub fn open(name: &str) -> io::Result<Self> {
        // SAFETY: providers are named before the first list is made, and the
        // list of them ends with a null pointer.
        unsafe {
            let end = ptr::null::<Provider>();
            ibv_static_providers(ptr::null_mut(), &raw const verbs_provider_rxe, end);
        }
        let mut count = 0;
        // SAFETY: the count is a live int.
        let list = some(unsafe { ibv_get_device_list(&mut count) })?;
        let result = Self::open_in(list, count as usize, name);
        // SAFETY: the list is whole, and an open device outlives it.
        unsafe { ibv_free_device_list(list.as_ptr()) };
        result
    }

    fn open_in(list: NonNull<*mut Device>, count: usize, name: &str) -> io::Result<Self> {
        // SAFETY: libibverbs gave a list of so many devices, whose names are
        // terminated and live as long as it.
        let device = unsafe {
            let devices = std::slice::from_raw_parts(list.as_ptr(), count);
            let has_name = |device: &&*mut Device| {
                CStr::from_ptr(ibv_get_device_name(**device)).to_bytes() == name.as_bytes()
            };
            devices.iter().find(has_name)
        };
        let missing = || io::Error::other(format!("libibverbs sees no device {name}"));
        // SAFETY: a device of the list, which still is there.
        let context = some(unsafe { ibv_open_device(*device.ok_or_else(missing)?) })?;
        // SAFETY: just opened.
        let pd = some(unsafe { ibv_alloc_pd(context.as_ptr()) }).inspect_err(|_| {
            // SAFETY: opened above, and nothing was made of it.
            unsafe { ibv_close_device(context.as_ptr()) };
        })?;
        Ok(Session { context, pd })
    }

    pub fn register(&self, addr: u64, bytes: u64) -> io::Result<Region> {
        let access = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ;
        // SAFETY: a live domain; the kernel judges the address.
        let mr = unsafe { ibv_reg_mr(self.pd.as_ptr(), addr as *mut _, bytes as usize, access) };
        some(mr).map(Region)
    }

    pub fn deregister(&self, region: Region) -> io::Result<()> {
        // SAFETY: a region that exists, and no more after this.
        done(unsafe { ibv_dereg_mr(region.0.as_ptr()) })
    }

    /// With everything that was registered: the kernel has to end it.
    pub fn close(self) -> io::Result<()> {
        // SAFETY: open until now. The domain goes with it, and with the regions.
        let result = done(unsafe { ibv_close_device(self.context.as_ptr()) });
        std::mem::forget(self);
        result
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: both are open, and the domain is given back first.
        unsafe {
            ibv_dealloc_pd(self.pd.as_ptr());
            ibv_close_device(self.context.as_ptr());
        }
    }
}
