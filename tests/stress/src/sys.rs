// SPDX-License-Identifier: GPL-2.0
//! System calls that only a stress program wants.

use rdsmr::{fd, process, Mapping, Socket};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Duration;

fn check(value: libc::c_int) -> io::Result<libc::c_int> {
    if value < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(value)
    }
}

/// Run `body` in a child of a process with several threads, and end with what it
/// returns. It must take no lock that another thread may hold.
pub fn fork(body: impl FnOnce() -> i32) -> io::Result<i32> {
    // SAFETY: the child does what the caller vouches for; the C library keeps
    // its allocator usable.
    match check(unsafe { libc::fork() })? {
        0 => process::exit(catch_unwind(AssertUnwindSafe(body)).unwrap_or(101)),
        pid => Ok(pid),
    }
}

/// The exit status of a child, or 128 + signal.
pub fn wait(pid: i32) -> io::Result<i32> {
    let mut raw = 0;
    loop {
        // SAFETY: a live int.
        match check(unsafe { libc::waitpid(pid, &mut raw, 0) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(_) if libc::WIFSIGNALED(raw) => return Ok(128 + libc::WTERMSIG(raw)),
            Ok(_) => return Ok(libc::WEXITSTATUS(raw)),
        }
    }
}

/// As [`wait`], but not for ever: `None` after the limit.
pub fn wait_for(pid: i32, limit: Duration) -> io::Result<Option<i32>> {
    let pidfd = process::pidfd(pid)?;
    if fd::ready(&[pidfd.as_raw_fd()], limit)?.is_empty() {
        return Ok(None);
    }
    wait(pid).map(Some)
}

/// A child's status if it has ended.
pub fn has_ended(pid: i32) -> io::Result<Option<i32>> {
    let mut raw = 0;
    // SAFETY: a live int.
    match check(unsafe { libc::waitpid(pid, &mut raw, libc::WNOHANG) })? {
        0 => Ok(None),
        _ if libc::WIFSIGNALED(raw) => Ok(Some(128 + libc::WTERMSIG(raw))),
        _ => Ok(Some(libc::WEXITSTATUS(raw))),
    }
}

/// Let others go first.
pub fn be_nice() {
    // SAFETY: takes no pointer; that it is refused is no error.
    unsafe { libc::nice(10) };
}

/// `kill -9` of whatever is left of a process group.
pub fn kill_group(leader: i32) {
    // That nobody is there is no error.
    let _ = process::kill(-leader);
}

/// Replace this program; returns only if that fails.
pub fn exec(args: &[String]) -> io::Error {
    let args: Vec<CString> = args
        .iter()
        .filter_map(|arg| CString::new(arg.as_str()).ok())
        .collect();
    let mut list: Vec<_> = args.iter().map(|arg| arg.as_ptr()).collect();
    list.push(std::ptr::null());
    // SAFETY: terminated strings in a terminated list, which live until then.
    unsafe { libc::execv(c"/proc/self/exe".as_ptr(), list.as_ptr()) };
    io::Error::last_os_error()
}

/// Let a program that this one execs have the descriptor.
pub fn keep_on_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: takes no pointer.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) })?;
    Ok(())
}

/// Make `at` another descriptor of what `what` is, whatever it was before.
pub fn replace(at: &impl AsRawFd, what: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: takes no pointer; both descriptors stay owned by who owns them.
    check(unsafe { libc::dup3(what.as_raw_fd(), at.as_raw_fd(), libc::O_CLOEXEC) })?;
    Ok(())
}

/// The socket behind a descriptor that was inherited or received.
pub fn socket_of(fd: &impl AsRawFd) -> io::Result<Socket> {
    let socket = Socket::new()?;
    replace(&socket, fd)?;
    Ok(socket)
}

/// A descriptor whose number an exec has handed over.
///
/// # Safety
/// Nobody else in this process may own it.
pub unsafe fn inherited(fd: RawFd) -> OwnedFd {
    // SAFETY: by the caller.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Throw the contents of some pages away.
pub fn discard(map: &Mapping, offset: u64, bytes: u64) -> io::Result<()> {
    assert!(offset + bytes <= map.len());
    // SAFETY: pages of the mapping only, which holds no Rust object.
    check(unsafe {
        libc::madvise(
            map.at(offset) as *mut _,
            bytes as usize,
            libc::MADV_DONTNEED,
        )
    })?;
    Ok(())
}

/// A datagram line for sockets that are passed on.
pub struct Mailbox {
    to: OwnedFd,
    from: OwnedFd,
}

impl Mailbox {
    pub fn new() -> io::Result<Self> {
        let mut fds = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the kernel writes two descriptors, which are ours alone.
        unsafe {
            check(libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()))?;
            Ok(Mailbox {
                to: OwnedFd::from_raw_fd(fds[0]),
                from: OwnedFd::from_raw_fd(fds[1]),
            })
        }
    }

    /// False if it is full.
    pub fn post(&self, word: u64, what: &impl AsRawFd) -> io::Result<bool> {
        match fd::send(&self.to, word, what.as_raw_fd()) {
            Ok(()) => Ok(true),
            // Full, or too many descriptors are under way.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EAGAIN | libc::ETOOMANYREFS)
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Nothing if it is empty.
    pub fn fetch(&self) -> io::Result<Option<(u64, OwnedFd)>> {
        match fd::receive(&self.from) {
            Ok((word, fd)) => Ok(fd.map(|fd| (word, fd))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// This thread's switch for allocations that fail.
pub struct MakeItFail(Option<File>);

impl MakeItFail {
    /// Without it, in other kernels, nothing fails.
    pub fn open() -> Self {
        MakeItFail(
            File::options()
                .write(true)
                .open("/proc/thread-self/make-it-fail")
                .ok(),
        )
    }

    pub fn with<T>(&self, on: bool, body: impl FnOnce() -> T) -> T {
        let switch = |value: &[u8]| self.0.as_ref().map(|mut file| file.write(value));
        if on {
            switch(b"1");
        }
        let result = body();
        if on {
            switch(b"0");
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_is_posted_is_fetched() {
        let mailbox = Mailbox::new().unwrap();
        assert!(mailbox.fetch().unwrap().is_none());
        assert!(mailbox.post(7, &File::open("/dev/zero").unwrap()).unwrap());
        let (word, fd) = mailbox.fetch().unwrap().unwrap();
        let mut byte = [1];
        File::from(fd).read_exact(&mut byte).unwrap();
        assert_eq!((word, byte), (7, [0]));
    }

    #[test]
    fn the_status_of_a_child_arrives() {
        assert_eq!(wait(fork(|| 7).unwrap()).unwrap(), 7);
        assert_eq!(wait(fork(|| panic!("on purpose")).unwrap()).unwrap(), 101);
    }
}
