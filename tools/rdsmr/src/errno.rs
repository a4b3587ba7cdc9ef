// SPDX-License-Identifier: GPL-2.0
//! Error numbers by name, so that messages say EINVAL and not 22.

use std::io;

macro_rules! names {
    ($($name:ident)*) => {
        $(pub const $name: i32 = libc::$name;)*

        fn known(number: i32) -> Option<&'static str> {
            match number {
                $(libc::$name => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

names! {
    EPERM ENOENT EINTR EIO ENOEXEC EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST ENODEV EINVAL
    ENFILE EMFILE ENOTTY ENOSPC ESPIPE ENOSYS EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT
    ESOCKTNOSUPPORT EOPNOTSUPP EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETUNREACH ENOBUFS EISCONN
    ENOTCONN ETIMEDOUT ENOTSOCK
}

pub fn name(number: i32) -> String {
    known(number).map_or_else(|| format!("errno {number}"), str::to_string)
}

/// What came out of a call, in one word where one exists.
pub fn describe(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), name)
}
