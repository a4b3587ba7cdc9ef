// SPDX-License-Identifier: GPL-2.0

//! The layout handshake: gcc and libclang see the same structs, and the check
//! would notice if they did not.

use crate::sys::layout;
use kernel::prelude::*;

#[kunit_tests(rds_mr_kern_layout)]
mod tests {
    use super::*;

    #[test]
    fn gcc_and_libclang_agree() {
        assert_eq!(layout::mismatch(), None);
    }

    #[test]
    fn equal_lists_do_not_differ() {
        assert_eq!(layout::difference(&[8, 16, 4], &[8, 16, 4]), None);
        // What C has not used of its array.
        assert_eq!(layout::difference(&[8, 16, 4], &[8, 16, 4, 0, 0]), None);
    }

    #[test]
    fn the_first_difference_is_named() {
        assert_eq!(
            layout::difference(&[9, 16, 4], &[8, 16, 4]),
            Some((0, 8, 9))
        );
        assert_eq!(
            layout::difference(&[8, 16, 4], &[8, 12, 3]),
            Some((1, 12, 16))
        );
        assert_eq!(
            layout::difference(&[8, 16, 0], &[8, 16, 4]),
            Some((2, 4, 0))
        );
    }

    #[test]
    fn an_entry_that_one_side_lacks_is_a_difference() {
        assert_eq!(layout::difference(&[8], &[8, 16]), Some((1, 16, 0)));
        assert_eq!(layout::difference(&[8, 16], &[8, 0]), Some((1, 0, 16)));
    }

    #[test]
    fn numbers_above_32_bits_do_not_wrap() {
        assert_eq!(
            layout::difference(&[(1 << 32) + 8], &[8]),
            Some((0, 8, (1 << 32) + 8))
        );
    }
}
