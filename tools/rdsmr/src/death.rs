// SPDX-License-Identifier: GPL-2.0
//! Deaths that others can see early, or that come late.

use crate::process::Child;
use crate::{check, Mapping};
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

pub const SIGQUIT: i32 = libc::SIGQUIT;

/// Start a process that shares this one's memory (CLONE_VM), has a copy of its
/// files, closes one of them, and sleeps until it is killed. For a process that
/// has one thread and is about to sleep as well: both have the same libc.
pub fn share_memory(close: Option<RawFd>) -> io::Result<i32> {
    const STACK: usize = 64 << 10;
    extern "C" fn body(fd: *mut libc::c_void) -> i32 {
        // SAFETY: system calls without pointers; errno is shared, and nobody reads it.
        unsafe {
            if fd as isize >= 0 {
                libc::close(fd as i32);
            }
            loop {
                libc::pause();
            }
        }
    }
    let stack = Box::leak(vec![0_u128; STACK / 16].into_boxed_slice());
    let fd = close.map_or(-1, |fd| fd as isize);
    // SAFETY: the stack is leaked, so it outlives the process; it grows down.
    check(unsafe {
        libc::clone(
            body,
            stack.as_mut_ptr_range().end.cast(),
            libc::CLONE_VM | libc::SIGCHLD,
            fd as *mut _,
        )
    })
}

/// Read a byte of another process's memory (`process_vm_readv`). As long as it
/// lasts, that memory is held.
pub fn read_memory_of(pid: i32, addr: u64) -> io::Result<u8> {
    let mut byte = 0_u8;
    let ours = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let theirs = libc::iovec {
        iov_base: addr as *mut _,
        iov_len: 1,
    };
    // SAFETY: the kernel writes one byte to a live local.
    check(unsafe { libc::process_vm_readv(pid, &ours, 1, &theirs, 1, 0) })?;
    Ok(byte)
}

fn ptrace(request: libc::c_uint, child: &Child, data: usize) -> io::Result<()> {
    // SAFETY: none of the requests here takes a pointer.
    check(unsafe { libc::ptrace(request, child.pid(), 0, data) })?;
    Ok(())
}

/// Have a child stop when it is about to exit.
pub fn trace_exit(child: &Child) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACEEXIT as usize;
    ptrace(libc::PTRACE_SEIZE, child, options)
}

pub fn wait_for_exit_stop(child: &Child) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: a live int.
    check(unsafe { libc::waitpid(child.pid(), &mut status, 0) })?;
    if libc::WIFSTOPPED(status) && status >> 16 == libc::PTRACE_EVENT_EXIT {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "wait status {status:#x}, no exit stop"
    )))
}

pub fn go_on(child: &Child) -> io::Result<()> {
    ptrace(libc::PTRACE_CONT, child, 0)
}

/// Let a process dump core.
pub fn allow_core(pid: i32) -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: a live struct to read, and nothing to write to.
    check(unsafe { libc::prlimit(pid, libc::RLIMIT_CORE, &limit, std::ptr::null_mut()) })?;
    Ok(())
}

const FUTEX_WAITERS: u32 = 0x8000_0000;
const FUTEX_OWNER_DIED: u32 = 0x4000_0000;

/// `struct robust_list_head` of `<linux/futex.h>`.
#[repr(C)]
struct RobustHead {
    next: u64,
    offset: i64,
    pending: u64,
}

/// Where the futex of [`hold_robust_futex`] stands in the shared memory, behind
/// its link.
const WORD_AT: u64 = 8;

fn word(shared: &Mapping) -> &AtomicU32 {
    // SAFETY: inside of the mapping, which outlives the reference, and aligned.
    unsafe { &*(shared.at(WORD_AT) as *const AtomicU32) }
}

/// Take a robust futex in shared memory, as a locked robust mutex would.
pub fn hold_robust_futex(shared: &Mapping) -> io::Result<()> {
    let head = Box::leak(Box::new(RobustHead {
        next: shared.at(0),
        offset: WORD_AT as i64,
        pending: 0,
    }));
    // The list of one element ends where it began.
    let link = &shared.words()[0];
    link.store((&raw const *head) as u64, SeqCst);
    // SAFETY: takes no pointer.
    let thread = unsafe { libc::gettid() } as u32;
    word(shared).store(thread | FUTEX_WAITERS, SeqCst);
    // SAFETY: the head is leaked, the element lies in memory that stays.
    check(unsafe {
        libc::syscall(
            libc::SYS_set_robust_list,
            &raw const *head,
            size_of::<RobustHead>(),
        )
    })?;
    Ok(())
}

/// Until the kernel has marked the futex as one whose owner has died.
pub fn wait_for_owner_died(shared: &Mapping) -> io::Result<()> {
    let word = word(shared);
    let limit = libc::timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    loop {
        let value = word.load(SeqCst);
        if value & FUTEX_OWNER_DIED != 0 {
            return Ok(());
        }
        // SAFETY: a live word and a live struct.
        let woken = check(unsafe {
            libc::syscall(
                libc::SYS_futex,
                word,
                libc::FUTEX_WAIT,
                value,
                &raw const limit,
            )
        });
        match woken {
            Err(error) if error.raw_os_error() == Some(libc::ETIMEDOUT) => return Err(error),
            _ => {}
        }
    }
}
