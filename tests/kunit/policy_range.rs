// SPDX-License-Identifier: GPL-2.0

//! From user ranges to pages, inside the kernel.

use crate::policy::{
    error::Error,
    range::{
        UserRange,
        MAX_MR_BYTES,
        MAX_MR_PAGES,
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
};
use kernel::prelude::*;

#[kunit_tests(rds_mr_policy_range)]
mod tests {
    use super::*;

    fn pages(addr: u64, bytes: u64) -> Result<u32, Error> {
        UserRange::new(addr, bytes)?.span().map(|span| span.pages())
    }

    #[test]
    fn pages_are_those_of_the_kernel() {
        assert_eq!(PAGE_SIZE, kernel::page::PAGE_SIZE as u64);
        assert_eq!(PAGE_SHIFT as usize, kernel::page::PAGE_SHIFT);
    }

    #[test]
    fn counts_the_pages_that_are_touched() {
        for (addr, bytes, expected) in [
            (0x1000, 1, 1),
            (0x1fff, 1, 1),
            (0x1fff, 2, 2),
            (0x1001, 4095, 1),
            (0x1001, 4096, 2),
            (0x1fff, 4098, 3),
            (u64::MAX - 4096, 1, 1),
        ] {
            assert_eq!(pages(addr, bytes), Ok(expected));
        }
    }

    #[test]
    fn the_largest_buffer_fits_at_any_alignment() {
        for offset in [0, 1, 4095] {
            assert!(pages(offset, MAX_MR_BYTES).is_ok());
        }
        assert_eq!(pages(4095, MAX_MR_BYTES + 1), Ok(MAX_MR_PAGES));
        assert_eq!(pages(4095, MAX_MR_BYTES + 2), Err(Error::MessageSize));
        assert_eq!(pages(0, MAX_MR_BYTES + PAGE_SIZE), Ok(MAX_MR_PAGES));
        assert_eq!(
            pages(0, MAX_MR_BYTES + PAGE_SIZE + 1),
            Err(Error::MessageSize)
        );
        assert_eq!(pages(0, u64::from(u32::MAX)), Err(Error::MessageSize));
    }

    #[test]
    fn refuses_what_wraps() {
        for (addr, bytes) in [
            (u64::MAX, 0),
            (u64::MAX, 1),
            (u64::MAX, u64::MAX),
            (u64::MAX - 4094, 0),
            (u64::MAX - 4096, 2),
            (1, u64::MAX),
        ] {
            assert_eq!(UserRange::new(addr, bytes), Err(Error::Invalid));
        }
    }

    #[test]
    fn refuses_empty_and_oversized_lengths_second() {
        for bytes in [0, u64::from(u32::MAX) + 1, 1 << 40] {
            let range = UserRange::new(0x1000, bytes);
            assert!(range.is_ok());
            assert_eq!(range.and_then(|range| range.span()), Err(Error::Invalid));
        }
    }

    #[test]
    fn knows_where_the_buffer_starts() {
        let span = UserRange::new(0x7123, 0x2000).and_then(|range| range.span());
        assert_eq!(span.map(|span| span.first()), Ok(0x7000));
        assert_eq!(span.map(|span| span.offset()), Ok(0x123));
        assert_eq!(span.map(|span| span.bytes()), Ok(0x2000));
        assert_eq!(span.map(|span| span.pages()), Ok(3));
    }
}
