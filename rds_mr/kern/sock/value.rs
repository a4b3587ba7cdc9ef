// SPDX-License-Identifier: GPL-2.0

//! Values of socket options, from and to user or kernel memory (a BPF program
//! or io_uring may put a kernel buffer there).

use crate::sys::bindings as raw;
use core::mem::MaybeUninit;
use kernel::bindings;
use kernel::error::to_result;
use kernel::iov::IovIterDest;
use kernel::prelude::*;
use kernel::transmute::AsBytes;
use kernel::transmute::FromBytes;

/// The value given to `setsockopt`. Each byte is read once.
pub(crate) struct OptIn {
    value: bindings::sockptr_t,
    len: usize,
}

impl OptIn {
    /// # Safety
    ///
    /// `value` is what the socket layer passed for `len` bytes, in the context
    /// of that call.
    pub(super) unsafe fn new(value: bindings::sockptr_t, len: usize) -> Self {
        Self { value, len }
    }

    /// Length as the caller gave it.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Read a `T` from the start. `EINVAL` if the value is shorter, `EFAULT`.
    pub(crate) fn read<T: FromBytes>(self) -> Result<T> {
        if self.len < size_of::<T>() {
            return Err(EINVAL);
        }
        let mut to = MaybeUninit::<T>::zeroed();
        // SAFETY: `value` is good for `len` bytes (see `new`), or faults.
        to_result(unsafe {
            raw::rds_mr_helper_copy_from_sockptr(
                to.as_mut_ptr().cast(),
                self.value,
                0,
                size_of::<T>(),
            )
        })?;
        // SAFETY: All bytes were written, and any bytes are a `T`.
        Ok(unsafe { to.assume_init() })
    }

    /// Read a `T`; the value must be exactly as long. `EINVAL`, `EFAULT`.
    pub(crate) fn read_exact<T: FromBytes>(self) -> Result<T> {
        if self.len != size_of::<T>() {
            return Err(EINVAL);
        }
        self.read()
    }

    /// Read up to `N` bytes; the rest of the array is zero. Returns the number.
    pub(crate) fn read_prefix<const N: usize>(self) -> Result<([u8; N], usize)> {
        let mut out = [0; N];
        let count = self.len.min(N);
        // SAFETY: As in `read`; `out` holds `count` bytes.
        to_result(unsafe {
            raw::rds_mr_helper_copy_from_sockptr(out.as_mut_ptr().cast(), self.value, 0, count)
        })?;
        Ok((out, count))
    }
}

/// Where `getsockopt` wants its value.
pub(crate) struct OptOut<'a>(&'a mut bindings::sockopt);

impl<'a> OptOut<'a> {
    /// # Safety
    ///
    /// `value` is what the socket layer passed, in the context of that call.
    pub(super) unsafe fn new(value: *mut bindings::sockopt) -> Self {
        // SAFETY: As promised, valid and ours for the call.
        Self(unsafe { &mut *value })
    }

    /// Write `value` and set the length to its size. `EINVAL` if the caller's
    /// buffer is shorter, `EFAULT`.
    pub(crate) fn write<T: AsBytes>(&mut self, value: &T) -> Result {
        let bytes = value.as_bytes();
        if usize::try_from(self.0.optlen)? < bytes.len() {
            return Err(EINVAL);
        }
        // SAFETY: The socket layer set up `iter_out` as a destination.
        let out = unsafe { IovIterDest::from_raw(&mut self.0.iter_out) };
        if out.copy_to_iter(bytes) != bytes.len() {
            return Err(EFAULT);
        }
        self.0.optlen = i32::try_from(bytes.len())?;
        Ok(())
    }
}
