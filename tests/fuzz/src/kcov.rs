// SPDX-License-Identifier: GPL-2.0
//! Which code of the module a thread went through: /sys/kernel/debug/kcov.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const PATH: &str = "/sys/kernel/debug/kcov";
const INIT_TRACE: u64 = 0x8008_6301; // _IOR('c', 1, unsigned long)
const ENABLE: u64 = 0x6364; // _IO('c', 100)
const TRACE_PC: u64 = 0;
const WORDS: usize = 64 << 10;

/// A trace buffer, in memory that is common with every child.
pub struct Kcov {
    file: File,
    words: &'static [AtomicU64],
}

impl Kcov {
    /// `None` where the kernel has none.
    pub fn new() -> io::Result<Option<Self>> {
        let Ok(file) = File::options().read(true).write(true).open(PATH) else {
            return Ok(None);
        };
        let (fd, bytes) = (file.as_raw_fd(), WORDS * 8);
        // SAFETY: the sizes agree; the mapping is never taken back, and its words
        // are only ever used as atomics.
        let words = unsafe {
            if libc::ioctl(fd, INIT_TRACE, WORDS) != 0 {
                return Err(io::Error::last_os_error());
            }
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(std::ptr::null_mut(), bytes, prot, libc::MAP_SHARED, fd, 0);
            if at == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            std::slice::from_raw_parts(at.cast::<AtomicU64>(), WORDS)
        };
        Ok(Some(Kcov { file, words }))
    }

    /// Trace the calling thread until it ends.
    pub fn enable(&self) -> io::Result<()> {
        self.words[0].store(0, Relaxed);
        // SAFETY: takes no pointer.
        match unsafe { libc::ioctl(self.file.as_raw_fd(), ENABLE, TRACE_PC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Where the traced thread was, in order.
    pub fn trace(&self) -> impl Iterator<Item = u64> + '_ {
        let count = (self.words[0].load(Relaxed) as usize).min(WORDS - 1);
        self.words[1..=count].iter().map(|word| word.load(Relaxed))
    }
}
