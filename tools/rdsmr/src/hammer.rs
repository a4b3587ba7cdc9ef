// SPDX-License-Identifier: GPL-2.0
//! The write hammer of the test module: an RDMA peer inside of the kernel that
//! never stops writing to a key until the HCA makes it stop.

use crate::check;
use crate::fault::Fault;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

pub const DEVICE: &str = "/dev/rds_mr_test";
/// `IB_WC_REM_ACCESS_ERR`: what ends a hammer whose key has died.
pub const REMOTE_ACCESS_ERROR: u32 = 10;

#[repr(C)]
struct Start {
    cookie: u64,
    bytes: u64,
    chunk: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Writes that the HCA has confirmed.
    pub writes: u64,
    pub running: u32,
    /// The last completion's `enum ib_wc_status`.
    pub status: u32,
}

const NONE: u32 = 0;
const WRITE: u32 = 1;
const READ: u32 = 2;

/// `_IOC()` of `<asm-generic/ioctl.h>` for the hammer's type.
const fn ioc(direction: u32, number: u32, size: usize) -> u32 {
    (direction << 30) | ((size as u32) << 16) | ((b'H' as u32) << 8) | number
}

const START: u32 = ioc(WRITE, 1, size_of::<Start>());
const STATUS: u32 = ioc(READ, 2, size_of::<Progress>());
const STOP: u32 = ioc(NONE, 3, 0);
const SLOW_COPY: u32 = ioc(WRITE, 4, size_of::<u32>());
const FAULT: u32 = ioc(WRITE, 5, size_of::<FaultArgs>());
const FAULT_STRUCK: u32 = ioc(WRITE | READ, 6, size_of::<FaultArgs>());

#[repr(C)]
struct FaultArgs {
    fault: u32,
    times: u32,
    arg: u32,
    pad: u32,
}

/// A fault that is armed; disarmed when dropped.
#[derive(Debug)]
pub struct Armed(Hammer, Fault);

impl Armed {
    /// Let the next `times` uses go wrong.
    pub fn new(fault: Fault, times: u32, arg: u32) -> io::Result<Self> {
        let device = Hammer::open()?;
        device.fault(fault, times, arg)?;
        Ok(Armed(device, fault))
    }

    /// How often it has gone wrong since then.
    pub fn struck(&self) -> io::Result<u32> {
        let mut args = FaultArgs {
            fault: self.1 as u32,
            times: 0,
            arg: 0,
            pad: 0,
        };
        // SAFETY: FAULT_STRUCK reads and writes one struct FaultArgs.
        unsafe { self.0.ioctl(FAULT_STRUCK, (&raw mut args) as u64) }?;
        Ok(args.times)
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        let _ = self.0.fault(self.1, 0, 0);
    }
}

#[derive(Debug)]
pub struct Hammer {
    file: File,
    slow: bool,
}

impl Hammer {
    pub fn is_there() -> bool {
        std::path::Path::new(DEVICE).exists()
    }

    pub fn open() -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(DEVICE)?;
        Ok(Hammer { file, slow: false })
    }

    /// Write over the first `bytes` bytes of a key, `chunk` bytes at a time,
    /// each time with another value. Back when the first write has arrived.
    pub fn start(&self, cookie: u64, bytes: u64, chunk: u32) -> io::Result<()> {
        let start = Start {
            cookie,
            bytes,
            chunk,
            flags: 0,
        };
        // SAFETY: START reads one struct Start.
        unsafe { self.ioctl(START, (&raw const start) as u64) }
    }

    pub fn progress(&self) -> io::Result<Progress> {
        let mut progress = Progress::default();
        // SAFETY: STATUS writes one struct Progress.
        unsafe { self.ioctl(STATUS, (&raw mut progress) as u64) }?;
        Ok(progress)
    }

    pub fn stop(&self) -> io::Result<()> {
        // SAFETY: STOP takes no argument.
        unsafe { self.ioctl(STOP, 0) }
    }

    /// Hold every copy of the software HCA back for so long; 0 ends it.
    pub fn slow_copy(&mut self, microseconds: u32) -> io::Result<()> {
        // SAFETY: SLOW_COPY reads one u32.
        unsafe { self.ioctl(SLOW_COPY, (&raw const microseconds) as u64) }?;
        self.slow = microseconds != 0;
        Ok(())
    }

    fn fault(&self, fault: Fault, times: u32, arg: u32) -> io::Result<()> {
        let args = FaultArgs {
            fault: fault as u32,
            times,
            arg,
            pad: 0,
        };
        // SAFETY: FAULT reads one struct FaultArgs.
        unsafe { self.ioctl(FAULT, (&raw const args) as u64) }
    }

    /// Disarm every fault, whoever armed it.
    pub fn disarm_all(&self) -> io::Result<()> {
        Fault::ALL
            .into_iter()
            .try_for_each(|fault| self.fault(fault, 0, 0))
    }

    /// # Safety
    /// The argument must be what the command expects.
    unsafe fn ioctl(&self, command: u32, argument: u64) -> io::Result<()> {
        // SAFETY: by the caller.
        check(unsafe { libc::ioctl(self.file.as_raw_fd(), command.into(), argument) })?;
        Ok(())
    }
}

impl Drop for Hammer {
    fn drop(&mut self) {
        // The close of the file ends the hammer; the delay is the whole system's.
        if self.slow {
            let _ = self.slow_copy(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_the_header() {
        assert_eq!(START, 0x4018_4801);
        assert_eq!(STATUS, 0x8010_4802);
        assert_eq!(STOP, 0x4803);
        assert_eq!(SLOW_COPY, 0x4004_4804);
        assert_eq!(FAULT, 0x4010_4805);
        assert_eq!(FAULT_STRUCK, 0xc010_4806);
    }
}
