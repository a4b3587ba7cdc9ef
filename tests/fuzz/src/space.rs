// SPDX-License-Identifier: GPL-2.0
//! The memory and the addresses that programs speak of. At fixed places, so that
//! a program means the same in every run.

use crate::call::{offset, region, REGIONS};
use rdsmr::PAGE;
use std::io;
use std::net::IpAddr;

const BASE: u64 = 0x10_0000_0000;
/// Large enough for the largest key, and one page more.
pub const RW_PAGES: u64 = 300;
/// The gap of nothing between two regions.
const GAP: u64 = 0x1000_0000;

/// Which addresses sockets can be given, by number. The first two are of HCAs.
pub const IPS: &[&str] = &[
    "10.77.0.1",
    "fd77::1",
    "10.77.0.2",
    "fd77::2",
    "127.0.0.1",
    "::1",
    "0.0.0.0",
    "::",
    "255.255.255.255",
    "224.0.0.1",
    "ff02::1",
    "fe80::1",
    "::ffff:10.77.0.1",
    "::ffff:127.0.0.1",
    "10.77.0.99",
    "10.77.0.255",
];

pub fn ip(number: u64) -> IpAddr {
    let text = IPS[number as usize % IPS.len()];
    text.parse().expect("a constant address")
}

fn start(region: usize) -> u64 {
    match REGIONS[region] {
        "null" => 0,
        "kernel" => 0xffff_8880_0000_0000,
        "noncanonical" => 1 << 47,
        // The end of user memory: an offset below 0 is its last page.
        "top" => (1 << 47) - PAGE,
        "max" => 0,
        _ => BASE + region as u64 * GAP,
    }
}

/// Offsets of `arg` count from the end of its only page, behind which nothing is.
fn origin(region: usize) -> u64 {
    match REGIONS[region] {
        "arg" => start(region) + PAGE,
        _ => start(region),
    }
}

pub fn resolve(addr: u64) -> u64 {
    origin(region(addr)).wrapping_add(offset(addr) as u64)
}

fn map(at: u64, pages: u64, prot: i32) -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: only called for ranges of this module's regions, where no object
    // of Rust's or of libc's ever is.
    let got = unsafe { libc::mmap(at as *mut _, (pages * PAGE) as usize, prot, flags, -1, 0) };
    if got == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

pub fn make() -> io::Result<()> {
    for (number, name) in REGIONS.iter().enumerate() {
        match *name {
            "rw" => map(start(number), RW_PAGES, RW)?,
            "arg" => map(start(number), 1, RW)?,
            "ro" => map(start(number), 4, libc::PROT_READ)?,
            "none" => map(start(number), 4, libc::PROT_NONE)?,
            _ => {}
        }
    }
    Ok(())
}

/// Change pages of a program's own memory; elsewhere nothing happens.
pub fn change(addr: u64, pages: u64, how: u64) {
    let number = region(addr);
    let limit = match REGIONS[number] {
        "rw" => RW_PAGES,
        "ro" | "none" | "hole" => 4,
        _ => return,
    };
    let first = (offset(addr).max(0) as u64 / PAGE).min(limit - 1);
    let pages = pages.clamp(1, limit - first);
    let (at, len) = (start(number) + first * PAGE, (pages * PAGE) as usize);
    let pointer = at as *mut libc::c_void;
    // SAFETY: pages of a region, which holds no object of Rust's or of libc's.
    unsafe {
        match how % 8 {
            0 => libc::munmap(pointer, len),
            1 => libc::mprotect(pointer, len, libc::PROT_READ),
            2 => libc::mprotect(pointer, len, libc::PROT_NONE),
            3 => libc::mprotect(pointer, len, RW),
            4 => libc::madvise(pointer, len, libc::MADV_DONTNEED),
            5 => libc::mlock(pointer, len),
            _ => i32::from(map(at, pages, RW).is_err()),
        };
    }
}

fn own(at: u64, len: usize) -> libc::iovec {
    let iov_base = at as *mut _;
    libc::iovec {
        iov_base,
        iov_len: len,
    }
}

/// Put bytes to an address if that can be written to. The kernel does it, since
/// there may be nothing, or another thread may just be unmapping it.
pub fn poke(at: u64, bytes: &[u8]) {
    let (from, to) = (
        own(bytes.as_ptr() as u64, bytes.len()),
        own(at, bytes.len()),
    );
    // SAFETY: reads a live slice; writes to a region or says EFAULT, since the
    // addresses of programs lie in regions only.
    unsafe { libc::process_vm_writev(libc::getpid(), &from, 1, &to, 1, 0) };
}

pub fn peek(at: u64) -> Option<u64> {
    let mut word = [0; 8];
    let (to, from) = (own(word.as_mut_ptr() as u64, 8), own(at, 8));
    // SAFETY: writes to a live array, and reads whatever is there.
    let got = unsafe { libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) };
    (got == 8).then_some(u64::from_ne_bytes(word))
}
