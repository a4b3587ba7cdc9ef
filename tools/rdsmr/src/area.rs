// SPDX-License-Identifier: GPL-2.0
//! Address space of every kind. A [`Mapping`](crate::Mapping) is memory to work
//! with; an [`Area`] is memory to do things to: move it, tear holes into it, take
//! its pages away.

use crate::check;
use crate::mem::{PAGE, READ_WRITE};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

pub const HUGE: u64 = 2 << 20;

pub const HUGEPAGE: i32 = libc::MADV_HUGEPAGE;
pub const DONTNEED: i32 = libc::MADV_DONTNEED;

/// What lies behind a piece of an area.
#[derive(Clone, Copy, Debug)]
pub enum Of<'a> {
    Anonymous,
    HugeTlb,
    /// A file from this offset on; writes go to a copy.
    Private(&'a File, u64),
    /// A file from this offset on, as everybody else sees it.
    Shared(&'a File, u64),
}

impl Of<'_> {
    fn parts(self) -> (i32, i32, u64) {
        match self {
            Of::Anonymous => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
            Of::HugeTlb => {
                let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
                (kind, -1, 0)
            }
            Of::Private(file, offset) => (libc::MAP_PRIVATE, file.as_raw_fd(), offset),
            Of::Shared(file, offset) => (libc::MAP_SHARED, file.as_raw_fd(), offset),
        }
    }
}

/// A range of this process's addresses that belongs to nobody else. Like the
/// bytes of a `Mapping` those of an area are only seen as atomics.
#[derive(Debug)]
pub struct Area {
    at: u64,
    len: u64,
}

impl Area {
    pub fn new(bytes: u64, prot: i32, of: Of) -> io::Result<Self> {
        // SAFETY: the kernel chooses a free range.
        let at = unsafe { map(0, bytes, prot, of)? };
        Ok(Area { at, len: bytes })
    }

    pub fn anonymous(bytes: u64) -> io::Result<Self> {
        Self::new(bytes, READ_WRITE, Of::Anonymous)
    }

    /// Anonymous memory that starts on a multiple of `align`.
    pub fn aligned(bytes: u64, align: u64) -> io::Result<Self> {
        let wide = Self::new(bytes + align, READ_WRITE, Of::Anonymous)?;
        let at = wide.at.next_multiple_of(align);
        let (before, behind) = (at - wide.at, wide.at + wide.len - at - bytes);
        if before != 0 {
            wide.unmap(0, before)?;
        }
        if behind != 0 {
            wide.unmap(before + bytes, behind)?;
        }
        std::mem::forget(wide);
        Ok(Area { at, len: bytes })
    }

    pub fn at(&self, offset: u64) -> u64 {
        self.at + offset
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn range(&self, offset: u64, bytes: u64) -> *mut libc::c_void {
        let inside = offset <= self.len && bytes <= self.len - offset;
        assert!(inside, "not a range of this area");
        self.at(offset) as *mut _
    }

    /// Put something else in place of what is mapped there.
    pub fn overlay(&self, offset: u64, bytes: u64, prot: i32, of: Of) -> io::Result<()> {
        let at = self.range(offset, bytes) as u64;
        // SAFETY: replaces pages of this area only, which holds no Rust object.
        unsafe { map(at, bytes, prot, of) }.map(drop)
    }

    pub fn unmap(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let at = self.range(offset, bytes);
        // SAFETY: pages of this area only, which holds no Rust object.
        check(unsafe { libc::munmap(at, bytes as usize) })?;
        Ok(())
    }

    pub fn protect(&self, offset: u64, bytes: u64, prot: i32) -> io::Result<()> {
        let at = self.range(offset, bytes);
        // SAFETY: as in unmap.
        check(unsafe { libc::mprotect(at, bytes as usize, prot) })?;
        Ok(())
    }

    pub fn advise(&self, offset: u64, bytes: u64, advice: i32) -> io::Result<()> {
        let at = self.range(offset, bytes);
        // SAFETY: as in unmap.
        check(unsafe { libc::madvise(at, bytes as usize, advice) })?;
        Ok(())
    }

    /// The same pages at another address, which suits huge ones, too.
    pub fn moved(self) -> io::Result<Self> {
        let target = Self::aligned(self.len, HUGE)?;
        let (old, len) = (self.at as *mut libc::c_void, self.len as usize);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: from a range that is ours to one that is ours; neither holds a
        // Rust object.
        let at = unsafe { libc::mremap(old, len, len, flags, target.at as *mut libc::c_void) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        std::mem::forget(self);
        Ok(target)
    }

    /// One byte; who touches an address where nothing can be touched dies.
    pub fn byte(&self, offset: u64) -> &AtomicU8 {
        let at = self.range(offset, 1);
        // SAFETY: an address of ours for as long as self lives; atomics may
        // change at any time.
        unsafe { &*at.cast() }
    }

    /// Write to every page, so that each is there.
    pub fn touch(&self, value: u8) {
        let pages = (0..self.len).step_by(PAGE as usize);
        pages.for_each(|offset| self.byte(offset).store(value, Relaxed));
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: ours, and the borrows that byte() gave out have ended.
        unsafe { libc::munmap(self.at as *mut _, self.len as usize) };
    }
}

/// A file without a name, `bytes` long; in huge pages if so wanted.
pub fn memfd(bytes: u64, huge: bool) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | if huge { libc::MFD_HUGETLB } else { 0 };
    // SAFETY: a terminated name; the descriptor that comes back is ours.
    let file = unsafe { File::from_raw_fd(check(libc::memfd_create(c"rdsmr".as_ptr(), flags))?) };
    file.set_len(bytes)?;
    Ok(file)
}

/// # Safety
/// With an address, the range must be the caller's own and hold no Rust object.
unsafe fn map(at: u64, bytes: u64, prot: i32, of: Of) -> io::Result<u64> {
    let (kind, fd, offset) = of.parts();
    let flags = kind | if at == 0 { 0 } else { libc::MAP_FIXED };
    // SAFETY: the caller's range, or one that the kernel chooses.
    let got = unsafe { libc::mmap(at as *mut _, bytes as usize, prot, flags, fd, offset as i64) };
    if got == libc::MAP_FAILED {
        Err(io::Error::last_os_error())
    } else {
        Ok(got as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aligned_area_is_aligned_and_whole() {
        let area = Area::aligned(3 * PAGE, HUGE).unwrap();
        assert_eq!((area.at(0) % HUGE, area.len()), (0, 3 * PAGE));
        area.touch(1);
        assert_eq!(area.byte(2 * PAGE).load(Relaxed), 1);
    }

    #[test]
    fn a_moved_area_has_its_bytes_elsewhere() {
        let area = Area::anonymous(2 * PAGE).unwrap();
        area.touch(7);
        let old = area.at(0);
        let area = area.moved().unwrap();
        assert_ne!(area.at(0), old);
        assert_eq!(area.byte(PAGE).load(Relaxed), 7);
    }

    #[test]
    fn pieces_of_a_file_lie_side_by_side() {
        let file = memfd(2 * PAGE, false).unwrap();
        let area = Area::anonymous(3 * PAGE).unwrap();
        area.touch(1);
        let piece = area.overlay(PAGE, PAGE, READ_WRITE, Of::Shared(&file, PAGE));
        piece.unwrap();
        assert_eq!(area.byte(PAGE).load(Relaxed), 0);
        assert_eq!(area.byte(2 * PAGE).load(Relaxed), 1);
    }

    #[test]
    #[should_panic(expected = "not a range")]
    fn what_is_behind_an_area_is_not_its() {
        let _ = Area::anonymous(PAGE).unwrap().unmap(0, PAGE + 1);
    }
}
