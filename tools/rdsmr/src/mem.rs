// SPDX-License-Identifier: GPL-2.0
//! Memory to register.

use crate::check;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering::Relaxed};

pub const PAGE: u64 = 4096;

pub const NONE: i32 = libc::PROT_NONE;
pub const READ: i32 = libc::PROT_READ;
pub const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// A mapping with a page before and a page behind it that nobody can touch, so
/// that a step over its edge cannot land on somebody else's memory.
#[derive(Debug)]
pub struct Mapping {
    base: *mut u8,
    len: usize,
    reserved: usize,
    file: Option<File>,
}

// SAFETY: a Mapping is an address range; it hands its bytes out as atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Private memory that nobody has touched yet.
    pub fn anonymous(bytes: u64) -> io::Result<Self> {
        Self::new(bytes, READ_WRITE, None)
    }

    pub fn read_only(bytes: u64) -> io::Result<Self> {
        Self::new(bytes, READ, None)
    }

    /// Memory that stays common with every child.
    pub fn shared(bytes: u64) -> io::Result<Self> {
        // SAFETY: a terminated name; the descriptor that comes back is ours.
        let file = unsafe {
            let fd = check(libc::memfd_create(c"rdsmr".as_ptr(), libc::MFD_CLOEXEC))?;
            File::from_raw_fd(fd)
        };
        Self::new(bytes, READ_WRITE, Some(file))
    }

    /// Memory that the kernel takes out of its own map and never pins.
    pub fn secret(bytes: u64) -> io::Result<Self> {
        Self::new(bytes, READ_WRITE, Some(secret_file()?))
    }

    fn new(bytes: u64, prot: i32, file: Option<File>) -> io::Result<Self> {
        let len = bytes.next_multiple_of(PAGE) as usize;
        let reserved = len + 2 * PAGE as usize;
        if let Some(file) = &file {
            file.set_len(len as u64)?;
        }
        // SAFETY: a fresh range; nothing of Rust's is in it.
        let start = unsafe { map(std::ptr::null_mut(), reserved, NONE, None)? };
        // SAFETY: one page into a reservation of more than one page.
        let base = unsafe { start.add(PAGE as usize) };
        let mapping = Mapping {
            base,
            len,
            reserved,
            file,
        };
        mapping.renew(0, len as u64, prot)?;
        Ok(mapping)
    }

    pub fn len(&self) -> u64 {
        self.len as u64
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of a byte, or of what lies beside the mapping.
    pub fn at(&self, offset: u64) -> u64 {
        (self.base as u64).wrapping_add(offset)
    }

    fn range(&self, offset: u64, bytes: u64) -> *mut u8 {
        let end = offset.checked_add(bytes).expect("range wraps");
        assert!(
            end <= self.len() && offset % PAGE == 0,
            "not whole pages of this mapping"
        );
        // SAFETY: inside of the mapping, as just checked.
        unsafe { self.base.add(offset as usize) }
    }

    /// Put fresh pages in place of the old ones, as munmap and mmap would.
    pub fn renew(&self, offset: u64, bytes: u64, prot: i32) -> io::Result<()> {
        let at = self.range(offset, bytes);
        let file = self.file.as_ref().map(|file| (file, offset));
        // SAFETY: replaces pages of this mapping only, which holds no Rust object.
        unsafe { map(at, bytes as usize, prot, file)? };
        Ok(())
    }

    pub fn protect(&self, offset: u64, bytes: u64, prot: i32) -> io::Result<()> {
        let at = self.range(offset, bytes);
        // SAFETY: pages of this mapping only, which holds no Rust object.
        check(unsafe { libc::mprotect(at.cast(), bytes as usize, prot) })?;
        Ok(())
    }

    /// Give everything from `bytes` on back; there is nothing mapped then.
    pub fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        let at = self.range(bytes, self.len() - bytes);
        let tail = self.len - bytes as usize + PAGE as usize;
        // SAFETY: the end of this mapping with its guard page, and it is not
        // looked at again, since both lengths shrink.
        check(unsafe { libc::munmap(at.cast(), tail) })?;
        self.len -= tail - PAGE as usize;
        self.reserved -= tail;
        Ok(())
    }

    pub fn bytes(&self) -> &[AtomicU8] {
        // SAFETY: mapped for as long as self is; atomics may change any time.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.len) }
    }

    /// The same memory in eights, for looking at much of it.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: as above; the base is on a page and the length whole pages.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.len / 8) }
    }

    pub fn fill(&self, value: u8) {
        let word = u64::from_ne_bytes([value; 8]);
        self.words().iter().for_each(|w| w.store(word, Relaxed));
    }

    pub fn snapshot(&self) -> Vec<u64> {
        self.words().iter().map(|w| w.load(Relaxed)).collect()
    }

    /// The first byte offset (of a word) that is not as it was.
    pub fn changed_since(&self, before: &[u64]) -> Option<usize> {
        let mut pairs = self.words().iter().zip(before);
        pairs
            .position(|(now, then)| now.load(Relaxed) != *then)
            .map(|word| word * 8)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the reservation of new(), less what truncate() gave back; the
        // borrows that bytes() and words() gave out have ended.
        unsafe { libc::munmap(self.base.sub(PAGE as usize).cast(), self.reserved) };
    }
}

pub fn secret_file() -> io::Result<File> {
    // SAFETY: takes no pointer; the descriptor that comes back is ours.
    unsafe {
        let fd = check(libc::syscall(libc::SYS_memfd_secret, libc::O_CLOEXEC))?;
        Ok(File::from_raw_fd(fd as i32))
    }
}

/// # Safety
/// With an address, the range must be the caller's own and hold no Rust object.
unsafe fn map(
    at: *mut u8,
    len: usize,
    prot: i32,
    file: Option<(&File, u64)>,
) -> io::Result<*mut u8> {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let (kind, fd, offset) = match file {
        Some((file, offset)) => (libc::MAP_SHARED, file.as_raw_fd(), offset),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
    };
    // SAFETY: the caller's range, or one that the kernel chooses.
    let got = unsafe { libc::mmap(at.cast(), len, prot, kind | fixed, fd, offset as i64) };
    if got == libc::MAP_FAILED {
        Err(io::Error::last_os_error())
    } else {
        Ok(got.cast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_whole_zeroed_pages() {
        let map = Mapping::anonymous(PAGE + 1).unwrap();
        assert_eq!((map.len(), map.at(0) % PAGE), (2 * PAGE, 0));
        assert!(map.snapshot().iter().all(|word| *word == 0));
    }

    #[test]
    fn a_change_is_found_where_it_is() {
        let map = Mapping::shared(PAGE).unwrap();
        map.fill(7);
        let before = map.snapshot();
        assert_eq!(map.changed_since(&before), None);
        map.bytes()[4095].store(8, Relaxed);
        assert_eq!(map.changed_since(&before), Some(4088));
    }

    #[test]
    fn renewed_pages_are_new_and_shared_ones_are_the_same() {
        let private = Mapping::anonymous(PAGE).unwrap();
        private.fill(1);
        private.renew(0, PAGE, READ_WRITE).unwrap();
        assert_eq!(private.words()[0].load(Relaxed), 0);
        let shared = Mapping::shared(PAGE).unwrap();
        shared.fill(1);
        shared.renew(0, PAGE, READ).unwrap();
        assert_eq!(shared.bytes()[0].load(Relaxed), 1);
    }

    #[test]
    fn a_truncated_mapping_keeps_its_start() {
        let mut map = Mapping::anonymous(4 * PAGE).unwrap();
        map.fill(3);
        map.truncate(PAGE).unwrap();
        assert_eq!(map.len(), PAGE);
        assert_eq!(map.bytes()[4095].load(Relaxed), 3);
    }

    #[test]
    #[should_panic(expected = "not whole pages")]
    fn pages_of_others_cannot_be_renewed() {
        let _ = Mapping::anonymous(PAGE).unwrap().renew(0, 2 * PAGE, READ);
    }
}
