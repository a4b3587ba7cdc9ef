// SPDX-License-Identifier: GPL-2.0

//! What the suites share: checks that say what they saw, memory of a process,
//! and a socket on the device under test.
//!
//! KUnit's own `assert!` ends the thread without running destructors: pinned
//! pages and keys would stay, and later tests would suffer. Tests that own
//! something use the macros below, which return.

use crate::glue::device::Device;
use crate::glue::free_mr;
use crate::glue::get_mr;
use crate::glue::socket::Socket;
use crate::kern::sock;
use crate::kern::time;
use crate::kern::uapi::FreeMrArgs;
use crate::kern::uapi::GetMrArgs;
use crate::kern::uapi::RDS_RDMA_READWRITE;
use crate::policy::key::Cookie;
use crate::raw;
use kernel::alloc::KVec;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::uaccess::UserPtr;
use kernel::uaccess::UserSlice;

/// End the test as failed if the condition does not hold. What follows the
/// condition is printed with it.
macro_rules! check {
    ($condition:expr $(, $value:expr)* $(,)?) => {
        if !$condition {
            $crate::support::say(
                ::core::file!(),
                ::core::line!(),
                ::kernel::prelude::fmt!("not true: {}", stringify!($condition)),
            );
            $(
                $crate::support::say(
                    ::core::file!(),
                    ::core::line!(),
                    ::kernel::prelude::fmt!("{} = {:?}", stringify!($value), $value),
                );
            )*
            return Err(EINVAL);
        }
    };
}

/// End the test as failed if the two are not equal.
macro_rules! check_eq {
    ($left:expr, $right:expr $(,)?) => {{
        let (left, right) = (&$left, &$right);
        if *left != *right {
            $crate::support::say(
                ::core::file!(),
                ::core::line!(),
                ::kernel::prelude::fmt!(
                    "{} is {:?}, not {:?} ({})",
                    stringify!($left),
                    left,
                    right,
                    stringify!($right)
                ),
            );
            return Err(EINVAL);
        }
    }};
}

/// The value, or the end of the test as failed.
macro_rules! must {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => {
                let error = Error::from(error);
                $crate::support::say(
                    ::core::file!(),
                    ::core::line!(),
                    ::kernel::prelude::fmt!("{}: {:?}", stringify!($result), error),
                );
                return Err(error);
            }
        }
    };
}

/// The value, or the end of the test as skipped.
macro_rules! or_skip {
    ($option:expr, $reason:expr) => {
        match $option {
            Some(value) => value,
            None => {
                $crate::raw::skip($reason);
                return Ok(());
            }
        }
    };
}

/// A socket on the device under test, or the end of the test as skipped.
macro_rules! site {
    () => {
        or_skip!(
            must!($crate::support::Site::find()),
            c"no device with the address 10.77.0.1 is served"
        )
    };
}

/// Print a line of KTAP diagnostics.
pub(crate) fn say(file: &str, line: u32, what: kernel::fmt::Arguments<'_>) {
    let name = file.rsplit('/').next().unwrap_or(file);
    kernel::kunit::err(fmt!("    # {}:{}: {}\n", name, line, what));
}

/// The end of a wait that starts now: a limit for what takes milliseconds.
pub(crate) fn soon_ns() -> u64 {
    time::now_ns().saturating_add(20_000_000_000)
}

/// Wait for something that must come; false if it has not come at [`soon_ns`].
pub(crate) fn eventually(mut done: impl FnMut() -> bool) -> bool {
    let end = soon_ns();
    while !done() {
        if time::now_ns() > end {
            return false;
        }
        kernel::time::delay::fsleep(kernel::time::Delta::from_millis(1));
    }
    true
}

/// Bytes that tell by their value where they belong, and in which round.
pub(crate) fn pattern(len: usize, seed: u8) -> Result<KVec<u8>> {
    let mut bytes = KVec::with_capacity(len, GFP_KERNEL)?;
    for at in 0..len {
        // CAST: Any byte will do; 251 is no divisor of a page.
        bytes.push((at % 251) as u8 ^ seed, GFP_KERNEL)?;
    }
    Ok(bytes)
}

/// Memory of a process, page-aligned. Lives as long as the test.
pub(crate) struct Memory {
    addr: usize,
    len: usize,
}

impl Memory {
    /// Zeroed memory.
    pub(crate) fn new(pages: usize) -> Result<Self> {
        let len = pages.checked_mul(PAGE_SIZE).ok_or(EINVAL)?;
        let this = Self {
            addr: raw::user_memory(len)?,
            len,
        };
        this.fill(0)?;
        Ok(this)
    }

    /// The address of byte `at`.
    pub(crate) fn at(&self, at: usize) -> u64 {
        self.addr.wrapping_add(at) as u64
    }

    fn slice(&self, at: usize, len: usize) -> UserSlice {
        UserSlice::new(UserPtr::from_addr(self.addr.wrapping_add(at)), len)
    }

    /// Write as the process would.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> Result {
        self.slice(at, bytes.len()).writer().write_slice(bytes)
    }

    /// Read as the process would.
    pub(crate) fn read(&self, at: usize, len: usize) -> Result<KVec<u8>> {
        let mut bytes = KVec::from_elem(0, len, GFP_KERNEL)?;
        self.slice(at, len).reader().read_slice(&mut bytes)?;
        Ok(bytes)
    }

    /// Let every byte be `byte`.
    pub(crate) fn fill(&self, byte: u8) -> Result {
        let page = KVec::from_elem(byte, PAGE_SIZE, GFP_KERNEL)?;
        for at in (0..self.len).step_by(PAGE_SIZE) {
            self.write(at, &page)?;
        }
        Ok(())
    }

    /// Whether every byte from `at` on is `byte`.
    pub(crate) fn is_all(&self, at: usize, len: usize, byte: u8) -> Result<bool> {
        Ok(self.read(at, len)?.iter().all(|&b| b == byte))
    }

    /// How many of the pages are pinned.
    pub(crate) fn pinned(&self) -> usize {
        (0..self.len)
            .step_by(PAGE_SIZE)
            .filter(|at| raw::is_pinned(self.addr.wrapping_add(*at)))
            .count()
    }
}

/// A socket that is bound to the device under test. Drop closes it.
pub(crate) struct Site {
    socket: Arc<Socket>,
    device: Arc<Device>,
    /// Where GET_MR puts cookies.
    cookie: Memory,
}

impl Site {
    /// `None` if no device that we serve has the guest's address.
    pub(crate) fn find() -> Result<Option<Self>> {
        let socket = <Socket as sock::Socket>::create(true)?;
        // `struct sockaddr_in` of 10.77.0.1, any port.
        let mut addr = [0; 16];
        addr[0] = 2;
        addr[4..8].copy_from_slice(&[10, 77, 0, 1]);
        match sock::Socket::bind(&*socket, &addr) {
            Ok(()) => Ok(Some(Self {
                device: socket.device()?,
                socket,
                cookie: Memory::new(1)?,
            })),
            Err(error) if error == EADDRNOTAVAIL => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// RDS_GET_MR.
    pub(crate) fn get_mr(&self, addr: u64, bytes: usize, write: bool) -> Result<Cookie> {
        let mut args = GetMrArgs {
            cookie_addr: self.cookie.at(0),
            flags: if write { RDS_RDMA_READWRITE } else { 0 },
            ..Default::default()
        };
        args.vec.addr = addr;
        args.vec.bytes = bytes as u64;
        get_mr::get_mr(&self.socket, &args)?;
        let mut cookie = [0; 8];
        cookie.copy_from_slice(&self.cookie.read(0, 8)?);
        Ok(Cookie::from_raw(u64::from_ne_bytes(cookie)))
    }

    /// A key for each of the first `count` pages.
    pub(crate) fn get_mrs(&self, memory: &Memory, count: usize) -> Result<KVec<Cookie>> {
        let mut cookies = KVec::with_capacity(count, GFP_KERNEL)?;
        for page in 0..count {
            let addr = memory.at(page * PAGE_SIZE);
            cookies.push(must!(self.get_mr(addr, PAGE_SIZE, true)), GFP_KERNEL)?;
        }
        check_eq!(memory.pinned(), count);
        Ok(cookies)
    }

    /// RDS_FREE_MR.
    pub(crate) fn free_mr(&self, cookie: Cookie) -> Result {
        let args = FreeMrArgs {
            cookie: cookie.raw(),
            ..Default::default()
        };
        free_mr::free_mr(&self.socket, &args)
    }

    /// Keys of the device that have neither ended nor are alive.
    pub(crate) fn quarantined(&self) -> usize {
        let keys = self.device.keys().iter();
        keys.filter(|key| key.is_quarantined()).count()
    }

    /// Whether the module was loaded with a proof that keeps MRs.
    pub(crate) fn reuses_mrs(&self) -> bool {
        self.device.proof() == crate::policy::driver::Proof::Invalidate
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        <Socket as sock::Socket>::release(self.socket.clone());
    }
}
