// SPDX-License-Identifier: GPL-2.0
//! userfaultfd(2): pages that come when we say so, or never.

use crate::check;
use crate::mem::PAGE;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// `UFFD_API` of `<linux/userfaultfd.h>`.
const API: u64 = 0xaa;
const MODE_MISSING: u64 = 1;
const EVENT_PAGEFAULT: u8 = 0x12;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Copy {
    to: u64,
    from: u64,
    len: u64,
    mode: u64,
    copied: i64,
}

/// `struct uffd_msg` of a page fault.
#[repr(C)]
#[derive(Default)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread: u64,
}

const fn iowr(number: u32, size: usize) -> u32 {
    (3 << 30) | ((size as u32) << 16) | (0xaa << 8) | number
}

const UFFDIO_API: u32 = iowr(0x3f, size_of::<Api>());
const UFFDIO_REGISTER: u32 = iowr(0x00, size_of::<Register>());
const UFFDIO_COPY: u32 = iowr(0x03, size_of::<Copy>());

/// Who touches a page of a watched range for the first time waits for us.
#[derive(Debug)]
pub struct Faults(OwnedFd);

/// One that came from another process: it is about that one's memory.
impl From<OwnedFd> for Faults {
    fn from(fd: OwnedFd) -> Self {
        Faults(fd)
    }
}

impl AsRawFd for Faults {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Faults {
    pub fn new() -> io::Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: takes no pointer; the descriptor that comes back is ours.
        let fd = unsafe {
            let fd = check(libc::syscall(libc::SYS_userfaultfd, flags))?;
            OwnedFd::from_raw_fd(fd as i32)
        };
        let faults = Faults(fd);
        let mut api = Api {
            api: API,
            features: 0,
            ioctls: 0,
        };
        // SAFETY: UFFDIO_API reads and writes one struct of this layout.
        unsafe { faults.ioctl(UFFDIO_API, (&raw mut api) as u64) }?;
        Ok(faults)
    }

    /// From now on the missing pages of this range are ours to give.
    pub fn watch(&self, at: u64, bytes: u64) -> io::Result<()> {
        let mut range = Register {
            start: at,
            len: bytes,
            mode: MODE_MISSING,
            ioctls: 0,
        };
        // SAFETY: UFFDIO_REGISTER reads and writes one struct of this layout.
        unsafe { self.ioctl(UFFDIO_REGISTER, (&raw mut range) as u64) }
    }

    /// The page that somebody waits for; `None` if nobody does within `limit`.
    pub fn wait(&self, limit: Duration) -> io::Result<Option<u64>> {
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let millis = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one live pollfd.
        if check(unsafe { libc::poll(&mut poll, 1, millis) })? == 0 {
            return Ok(None);
        }
        let (mut message, size) = (Message::default(), size_of::<Message>());
        let at = (&raw mut message).cast();
        // SAFETY: a live struct of integers, as long as we say.
        let got = check(unsafe { libc::read(self.0.as_raw_fd(), at, size) })?;
        if got as usize != size || message.event != EVENT_PAGEFAULT {
            let text = format!("event {:#x} of {got} bytes", message.event);
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(Some(message.address / PAGE * PAGE))
    }

    /// Give a page that begins with `start`, and wake who waits for it.
    pub fn answer(&self, page: u64, start: &[u8]) -> io::Result<()> {
        let mut content = [0; PAGE as usize];
        content[..start.len()].copy_from_slice(start);
        let mut copy = Copy {
            to: page,
            from: content.as_ptr() as u64,
            len: PAGE,
            mode: 0,
            copied: 0,
        };
        // SAFETY: UFFDIO_COPY reads and writes one struct of this layout, reads
        // a page from us and fills one that did not exist.
        unsafe { self.ioctl(UFFDIO_COPY, (&raw mut copy) as u64) }
    }

    /// # Safety
    /// The argument must be what the command expects.
    unsafe fn ioctl(&self, command: u32, argument: u64) -> io::Result<()> {
        // SAFETY: by the caller.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), command.into(), argument) })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_messages_have_the_sizes_of_the_header() {
        assert_eq!(UFFDIO_API, 0xc018_aa3f);
        assert_eq!(UFFDIO_REGISTER, 0xc020_aa00);
        assert_eq!(UFFDIO_COPY, 0xc028_aa03);
        assert_eq!(size_of::<Message>(), 32);
        assert_eq!(std::mem::offset_of!(Message, address), 16);
    }
}
