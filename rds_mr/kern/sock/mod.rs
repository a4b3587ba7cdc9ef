// SPDX-License-Identifier: GPL-2.0

//! A socket family implemented in Rust.
//!
//! The Rust state of a socket is an `Arc` behind a pointer that follows the
//! `struct sock` (sys/sock_shim.c): it is made in `create` and given up once, in
//! `release`. Every call on an open socket holds a file reference, so `release`
//! never runs beside another call.

mod adapter;
mod family;
mod value;
mod waker;

pub(crate) use family::FamilyRegistration;
pub(crate) use value::OptIn;
pub(crate) use value::OptOut;
pub(crate) use waker::Waker;

use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::uaccess::UserPtr;

/// Longest address of this family: a `sockaddr_in6`.
pub(crate) const MAX_ADDR: usize = 28;

/// What a socket can do. All calls may sleep; all run in the caller's context.
pub(crate) trait Socket: Send + Sync + Sized + 'static {
    /// Address and protocol family.
    const FAMILY: i32;

    /// Check `socket(2)`'s other two arguments.
    fn check_type(kind: i32, protocol: i32) -> Result;

    /// A new socket; `init_net`: in the initial network namespace.
    fn create(init_net: bool) -> Result<Arc<Self>>;

    /// The socket is there now; `waker` wakes those who poll it. To be dropped
    /// in [`Self::release`] at the latest: it keeps the socket's memory.
    fn attached(&self, waker: Waker);

    /// Whether an exceptional condition (POLLPRI) holds. Must not sleep for long.
    fn has_news(&self) -> bool;

    /// The last reference to the open socket has gone.
    fn release(this: Arc<Self>);

    /// `bind(2)` to the sockaddr in `addr`.
    fn bind(&self, addr: &[u8]) -> Result;

    /// `connect(2)` to the sockaddr in `addr`.
    fn connect(&self, addr: &[u8]) -> Result;

    /// `getsockname(2)`, or `getpeername(2)` if `peer`. Returns the length.
    fn getname(&self, peer: bool, out: &mut [u8; MAX_ADDR]) -> Result<usize>;

    /// `setsockopt(2)`, at any level but SOL_SOCKET.
    fn setsockopt(&self, level: i32, name: i32, value: OptIn) -> Result;

    /// `getsockopt(2)`, at any level but SOL_SOCKET.
    fn getsockopt(&self, level: i32, name: i32, value: &mut OptOut<'_>) -> Result;

    /// `ioctl(2)`; also of 32-bit callers, whose structs are laid out alike.
    /// `None` is a command that the socket layer may know.
    fn ioctl(&self, cmd: u32, arg: UserPtr) -> Option<Result>;

    /// `sendmsg(2)` and its kin.
    fn sendmsg(&self) -> Result;
}
