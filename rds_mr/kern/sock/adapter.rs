// SPDX-License-Identifier: GPL-2.0

//! From the C callbacks of `struct proto_ops` to [`Socket`].

use super::OptIn;
use super::OptOut;
use super::Socket;
use super::Waker;
use super::MAX_ADDR;
use crate::kern::module::this_module_ptr;
use crate::sys::bindings as raw;
use core::marker::PhantomData;
use kernel::bindings;
use kernel::error::from_result;
use kernel::error::to_result;
use kernel::ffi;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::uaccess::UserPtr;

/// `-ENOIOCTLCMD`: the socket layer may know the command, else ENOTTY.
const ENOIOCTLCMD: c_int = -(bindings::ENOIOCTLCMD as c_int);

/// The callbacks of a [`Socket`].
///
/// # Safety of all of them
///
/// The socket layer calls them with a socket of this family on which
/// [`Adapter::create`] has succeeded, and never during or after `release`;
/// `create` and `release` once each.
pub(super) struct Adapter<T: Socket>(PhantomData<T>);

/// A table for C to read.
struct Ops(bindings::proto_ops);

// SAFETY: It is never changed.
unsafe impl Sync for Ops {}

impl<T: Socket> Adapter<T> {
    const OPS: &'static Ops = &Ops(bindings::proto_ops {
        family: T::FAMILY,
        owner: this_module_ptr(),
        release: Some(Self::release),
        bind: Some(Self::bind),
        connect: Some(Self::connect),
        socketpair: Some(raw::sock_no_socketpair),
        accept: Some(raw::sock_no_accept),
        getname: Some(Self::getname),
        poll: Some(Self::poll),
        ioctl: Some(Self::ioctl),
        #[cfg(CONFIG_COMPAT)]
        compat_ioctl: Some(Self::compat_ioctl),
        listen: Some(raw::sock_no_listen),
        shutdown: Some(raw::sock_no_shutdown),
        setsockopt: Some(Self::setsockopt),
        getsockopt_iter: Some(Self::getsockopt),
        sendmsg: Some(Self::sendmsg),
        recvmsg: Some(raw::sock_no_recvmsg),
        mmap: Some(raw::sock_no_mmap),
        // SAFETY: A table without this callback: all zero is valid.
        ..unsafe { core::mem::zeroed() }
    });

    /// # Safety
    ///
    /// An open socket, as above; the reference ends with the callback.
    unsafe fn state<'a>(sock: *mut bindings::socket) -> &'a T {
        // SAFETY: `create` put an `Arc<T>` there, which stays until `release`.
        unsafe { &*raw::rds_mr_sk_state(sock).cast::<T>() }
    }

    /// # Safety
    ///
    /// See [`Adapter`].
    pub(super) unsafe extern "C" fn create(
        net: *mut bindings::net,
        sock: *mut bindings::socket,
        protocol: c_int,
        kern: c_int,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The core passes a new socket and its namespace.
            let (kind, init_net) = unsafe { ((*sock).type_, raw::rds_mr_sk_in_init_net(net)) };
            T::check_type(i32::from(kind), protocol)?;
            let state = Arc::into_raw(T::create(init_net)?);
            // SAFETY: `sock` is new and unused, `state` a pointer that it may keep.
            let ret = to_result(unsafe {
                raw::rds_mr_sk_create(net, sock, kern, state.cast_mut().cast())
            });
            if ret.is_err() {
                // SAFETY: The socket did not keep it: take the reference back.
                drop(unsafe { Arc::from_raw(state) });
            }
            ret?;
            // SAFETY: `sock` is ours until we return, and has its sock and state.
            unsafe {
                (*sock).ops = &Self::OPS.0;
                Self::state(sock).attached(Waker::new(sock));
            }
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// See [`Adapter`].
    unsafe extern "C" fn release(sock: *mut bindings::socket) -> c_int {
        // SAFETY: Called once for a socket, also for one without a sock.
        let state = unsafe { raw::rds_mr_sk_release(sock) };
        if !state.is_null() {
            // SAFETY: From `Arc::into_raw` in `create`, and taken out once.
            T::release(unsafe { Arc::from_raw(state.cast::<T>().cast_const()) });
        }
        0
    }

    /// # Safety
    ///
    /// `addr` holds `len` bytes if `len` is positive; the core has copied them.
    unsafe fn addr<'a>(addr: *const bindings::sockaddr_unsized, len: c_int) -> Result<&'a [u8]> {
        let len = usize::try_from(len)?;
        // SAFETY: As promised.
        Ok(unsafe { core::slice::from_raw_parts(addr.cast(), len) })
    }

    /// # Safety
    ///
    /// See [`Adapter`].
    unsafe extern "C" fn bind(
        sock: *mut bindings::socket,
        addr: *mut bindings::sockaddr_unsized,
        len: c_int,
    ) -> c_int {
        from_result(|| {
            // SAFETY: An open socket, and an address that the core has copied.
            let (state, addr) = unsafe { (Self::state(sock), Self::addr(addr, len)?) };
            state.bind(addr).map(|()| 0)
        })
    }

    /// # Safety
    ///
    /// See [`Adapter`].
    unsafe extern "C" fn connect(
        sock: *mut bindings::socket,
        addr: *mut bindings::sockaddr_unsized,
        len: c_int,
        _flags: c_int,
    ) -> c_int {
        from_result(|| {
            // SAFETY: An open socket, and an address that the core has copied.
            let (state, addr) = unsafe { (Self::state(sock), Self::addr(addr, len)?) };
            state.connect(addr).map(|()| 0)
        })
    }

    /// # Safety
    ///
    /// See [`Adapter`].
    unsafe extern "C" fn getname(
        sock: *mut bindings::socket,
        addr: *mut bindings::sockaddr,
        peer: c_int,
    ) -> c_int {
        from_result(|| {
            let mut out = [0; MAX_ADDR];
            // SAFETY: An open socket.
            let len = unsafe { Self::state(sock) }.getname(peer != 0, &mut out)?;
            // SAFETY: The core's buffer is a `sockaddr_storage` of 128 bytes.
            unsafe { addr.cast::<[u8; MAX_ADDR]>().write_unaligned(out) };
            Ok(i32::try_from(len)?)
        })
    }

    /// No messages, so no other events.
    ///
    /// # Safety
    ///
    /// See [`Adapter`].
    unsafe extern "C" fn poll(
        file: *mut bindings::file,
        sock: *mut bindings::socket,
        wait: *mut bindings::poll_table_struct,
    ) -> bindings::__poll_t {
        // SAFETY: An open socket, and what the core passed with it. Waiting is
        // set up first, so that no news falls between.
        let news = unsafe {
            raw::rds_mr_sk_poll_wait(file, sock, wait);
            Self::state(sock).has_news()
        };
        if news {
            bindings::POLLPRI
        } else {
            0
        }
    }

    /// # Safety
    ///
    /// See [`Adapter`].
    unsafe extern "C" fn ioctl(
        sock: *mut bindings::socket,
        cmd: ffi::c_uint,
        arg: ffi::c_ulong,
    ) -> c_int {
        // SAFETY: An open socket.
        match unsafe { Self::state(sock) }.ioctl(cmd, UserPtr::from_addr(arg)) {
            None => ENOIOCTLCMD,
            Some(result) => from_result(|| result.map(|()| 0)),
        }
    }

    /// # Safety
    ///
    /// See [`Adapter`].
    #[cfg(CONFIG_COMPAT)]
    unsafe extern "C" fn compat_ioctl(
        sock: *mut bindings::socket,
        cmd: ffi::c_uint,
        arg: ffi::c_ulong,
    ) -> c_int {
        // A 32-bit pointer has no bits above.
        // SAFETY: As for `ioctl`.
        unsafe { Self::ioctl(sock, cmd, arg & 0xffff_ffff) }
    }

    /// # Safety
    ///
    /// See [`Adapter`].
    unsafe extern "C" fn setsockopt(
        sock: *mut bindings::socket,
        level: c_int,
        name: c_int,
        value: bindings::sockptr_t,
        len: ffi::c_uint,
    ) -> c_int {
        from_result(|| {
            // SAFETY: An open socket, and the value as the core passed it.
            let (state, value) = unsafe { (Self::state(sock), OptIn::new(value, len as usize)) };
            state.setsockopt(level, name, value).map(|()| 0)
        })
    }

    /// # Safety
    ///
    /// See [`Adapter`].
    unsafe extern "C" fn getsockopt(
        sock: *mut bindings::socket,
        level: c_int,
        name: c_int,
        value: *mut bindings::sockopt,
    ) -> c_int {
        from_result(|| {
            // SAFETY: An open socket, and the value as the core passed it.
            let (state, mut value) = unsafe { (Self::state(sock), OptOut::new(value)) };
            state.getsockopt(level, name, &mut value).map(|()| 0)
        })
    }

    /// # Safety
    ///
    /// See [`Adapter`].
    unsafe extern "C" fn sendmsg(
        sock: *mut bindings::socket,
        _msg: *mut bindings::msghdr,
        _len: usize,
    ) -> c_int {
        // SAFETY: An open socket.
        from_result(|| unsafe { Self::state(sock) }.sendmsg().map(|()| 0))
    }
}
