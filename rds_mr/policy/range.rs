// SPDX-License-Identifier: GPL-2.0

//! From a user's buffer to the pages that hold it, without an overflow anywhere.
//!
//! The checks and their order are those of `__rds_rdma_map()` in `net/rds/rdma.c`. They come in
//! two steps because the right to lock memory at all (`EPERM`) is checked between them.

use super::error::Error;

/// Base-two logarithm of the page size. The module is built for x86-64 only.
pub(crate) const PAGE_SHIFT: u32 = 12;

/// Bytes in a page.
pub(crate) const PAGE_SIZE: u64 = 1 << PAGE_SHIFT;

/// The largest RDS message, and so the largest buffer that fits at any alignment, in bytes.
pub(crate) const MAX_MR_BYTES: u64 = 1 << 20;

/// Pages that such a buffer can touch: one more than it has, because it need not be aligned.
///
/// Only pages are limited, as in RDS: a page-aligned buffer may have this many whole pages.
pub(crate) const MAX_MR_PAGES: u32 = 257;

const _: () = assert!((MAX_MR_BYTES >> PAGE_SHIFT) + 1 == MAX_MR_PAGES as u64);

/// A user's buffer whose end, also when rounded up to a page, is a valid 64-bit number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserRange {
    addr: u64,
    bytes: u64,
}

impl UserRange {
    /// Takes the buffer of `bytes` bytes at `addr`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the end, or the end rounded up to a page, exceeds 64 bits.
    pub(crate) fn new(addr: u64, bytes: u64) -> Result<Self, Error> {
        addr.checked_add(bytes)
            .and_then(|end| end.checked_next_multiple_of(PAGE_SIZE))
            .map(|_| Self { addr, bytes })
            .ok_or(Error::Invalid)
    }

    /// Returns the pages that hold the buffer.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the buffer is empty or its length exceeds 32 bits,
    /// [`Error::MessageSize`] if it touches more than [`MAX_MR_PAGES`] pages.
    pub(crate) fn span(&self) -> Result<PageSpan, Error> {
        let bytes = u32::try_from(self.bytes).map_err(|_| Error::Invalid)?;
        let length = self.bytes.checked_sub(1).ok_or(Error::Invalid)?;
        let last = self.addr.checked_add(length).ok_or(Error::Invalid)?;
        // Pages after the first one; RDS compares this number, not the number of pages.
        let more = (last >> PAGE_SHIFT)
            .checked_sub(self.addr >> PAGE_SHIFT)
            .ok_or(Error::Invalid)?;
        if more > MAX_MR_BYTES >> PAGE_SHIFT {
            return Err(Error::MessageSize);
        }
        let offset = self.addr % PAGE_SIZE;
        Ok(PageSpan {
            first: self.addr & !(PAGE_SIZE - 1),
            pages: u32::try_from(more)
                .ok()
                .and_then(|more| more.checked_add(1))
                .ok_or(Error::MessageSize)?,
            offset: u32::try_from(offset).map_err(|_| Error::Invalid)?,
            bytes,
        })
    }
}

/// The pages that hold one buffer: at least one, at most [`MAX_MR_PAGES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageSpan {
    first: u64,
    pages: u32,
    offset: u32,
    bytes: u32,
}

impl PageSpan {
    /// Returns the user address of the first page, a multiple of [`PAGE_SIZE`].
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Returns the number of pages.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// Returns where in its first page the buffer starts, in bytes.
    pub(crate) fn offset(&self) -> u32 {
        self.offset
    }

    /// Returns the length of the buffer in bytes, never 0.
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }
}
