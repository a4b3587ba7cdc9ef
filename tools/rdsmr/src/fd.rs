// SPDX-License-Identifier: GPL-2.0
//! Descriptors on their way from process to process.

use crate::check;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Room for one descriptor in a control message.
#[repr(align(8))]
struct Control([u8; 64]);

/// A message of one word with room for one descriptor, over `word` and `control`.
fn message(word: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: all zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = word;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: arithmetic only.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(4) } as usize;
    message
}

fn one_word(word: &mut u64) -> libc::iovec {
    libc::iovec {
        iov_base: (&raw mut *word).cast(),
        iov_len: 8,
    }
}

/// Send a word and a descriptor (SCM_RIGHTS) over a unix socket.
pub fn send(to: &impl AsRawFd, mut word: u64, fd: RawFd) -> io::Result<()> {
    let (mut iov, mut control) = (one_word(&mut word), Control([0; 64]));
    let message = message(&mut iov, &mut control);
    // SAFETY: the control buffer has room for one header and one int, and is
    // aligned for both; all that the message points to are live locals.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
        libc::CMSG_DATA(header).cast::<i32>().write_unaligned(fd);
        check(libc::sendmsg(to.as_raw_fd(), &message, 0))?;
    }
    Ok(())
}

/// Receive a word, and the descriptor that came with it.
pub fn receive(from: &impl AsRawFd) -> io::Result<(u64, Option<OwnedFd>)> {
    let mut word = 0;
    let (mut iov, mut control) = (one_word(&mut word), Control([0; 64]));
    let mut message = message(&mut iov, &mut control);
    // SAFETY: the kernel writes within the buffers of the message; a descriptor
    // that comes is ours alone.
    let fd = unsafe {
        check(libc::recvmsg(
            from.as_raw_fd(),
            &mut message,
            libc::MSG_CMSG_CLOEXEC,
        ))?;
        let header = libc::CMSG_FIRSTHDR(&message);
        (!header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS)
            .then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<i32>().read_unaligned()))
    };
    Ok((word, fd))
}

/// Take a copy of another process's descriptor (`pidfd_getfd`).
pub fn steal(pidfd: BorrowedFd<'_>, fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer; the descriptor that comes back is ours alone.
    unsafe {
        let copy = check(libc::syscall(
            libc::SYS_pidfd_getfd,
            pidfd.as_raw_fd(),
            fd,
            0,
        ))?;
        Ok(OwnedFd::from_raw_fd(copy as i32))
    }
}

/// A pipe, to read from and to write to.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: the kernel writes two ints; the descriptors are ours alone.
    unsafe {
        check(libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}

/// The same file under a number above `above`, closed on exec.
pub fn dup_above(fd: BorrowedFd<'_>, above: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer; the descriptor that comes back is ours alone.
    unsafe {
        let copy = check(libc::fcntl(
            fd.as_raw_fd(),
            libc::F_DUPFD_CLOEXEC,
            above + 1,
        ))?;
        Ok(OwnedFd::from_raw_fd(copy))
    }
}

/// Close a descriptor that a child has inherited, in the child. It ends without
/// dropping its copy of the owner.
pub fn close_inherited(fd: RawFd) {
    // SAFETY: takes no pointer; by the contract nobody closes it again.
    unsafe { libc::close(fd) };
}

/// Which of `fds` can be read from, or have been hung up. Empty after `limit`.
pub fn ready(fds: &[RawFd], limit: Duration) -> io::Result<Vec<usize>> {
    let poll = |fd: &RawFd| libc::pollfd {
        fd: *fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut polls: Vec<libc::pollfd> = fds.iter().map(poll).collect();
    let millis = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: live pollfds.
    check(unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as u64, millis) })?;
    let ready = |index: &usize| polls[*index].revents != 0;
    Ok((0..polls.len()).filter(ready).collect())
}

/// Sleep until a socket has exceptional news (POLLPRI). False after `limit`.
pub fn has_news(fd: RawFd, limit: Duration) -> io::Result<bool> {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLPRI,
        revents: 0,
    };
    let millis = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one live pollfd.
    check(unsafe { libc::poll(&mut poll, 1, millis) })?;
    Ok(poll.revents & libc::POLLPRI != 0)
}

/// Take the POSIX write lock on a whole file; `wait`: until it is free.
pub fn lock(file: &File, wait: bool) -> io::Result<()> {
    // SAFETY: integers only; all zero is "the whole file".
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as i16;
    let command = if wait { libc::F_SETLKW } else { libc::F_SETLK };
    // SAFETY: an open file and a live struct.
    check(unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) })?;
    Ok(())
}

/// An io_uring that holds a file of ours without a descriptor. The file is
/// released some time after the ring.
#[derive(Debug)]
pub struct Ring(#[allow(dead_code, reason = "held for its drop")] OwnedFd);

impl Ring {
    pub fn holding(fd: RawFd) -> io::Result<Self> {
        const IORING_REGISTER_FILES: i32 = 2;
        // `struct io_uring_params`: all zero asks for the defaults.
        let mut params = [0_u64; 15];
        // SAFETY: the kernel reads and writes one struct of 120 bytes, and reads
        // one int; the descriptor that comes back is ours alone.
        unsafe {
            let ring = check(libc::syscall(
                libc::SYS_io_uring_setup,
                4,
                params.as_mut_ptr(),
            ))?;
            let ring = OwnedFd::from_raw_fd(ring as i32);
            check(libc::syscall(
                libc::SYS_io_uring_register,
                ring.as_raw_fd(),
                IORING_REGISTER_FILES,
                &raw const fd,
                1,
            ))?;
            Ok(Ring(ring))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_descriptor_arrives() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (read, write) = pipe().unwrap();
        send(&ours, 7, write.as_raw_fd()).unwrap();
        let (word, fd) = receive(&theirs).unwrap();
        assert_eq!(word, 7);
        let mut there = File::from(fd.unwrap());
        there.write_all(b"x").unwrap();
        drop((write, there));
        let mut text = String::new();
        File::from(read).read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
    }

    #[test]
    fn a_message_without_one_brings_none() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(&9_u64.to_ne_bytes()).unwrap();
        let (word, fd) = receive(&theirs).unwrap();
        assert_eq!((word, fd.is_none()), (9, true));
    }
}
