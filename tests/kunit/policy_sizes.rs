// SPDX-License-Identifier: GPL-2.0

//! Size classes and what else is derived from parameters, inside the kernel.

use crate::policy::{
    deadline::Deadline,
    error::Error,
    limits::{
        clamp_timeout_ms,
        device_keys, //
    },
    ports::candidate,
    sizes::Classes,
};
use kernel::prelude::*;

#[kunit_tests(rds_mr_policy_sizes)]
mod tests {
    use super::*;

    /// Returns whether the classes are exactly `expected`.
    fn gives(requested: &[u32], device_max_pages: u32, expected: &[u32]) -> bool {
        let Ok(classes) = Classes::new(requested, device_max_pages) else {
            return false;
        };
        let mut pages = expected.iter().enumerate();
        classes.len() == expected.len()
            && pages.all(|(class, &pages)| classes.pages_of(class) == Some(pages))
            && classes.pages_of(expected.len()).is_none()
    }

    #[test]
    fn the_default_is_taken_as_it_is() {
        assert!(gives(&[2, 17, 257], u32::MAX, &[2, 17, 257]));
    }

    #[test]
    fn anything_else_is_put_in_order() {
        assert!(gives(&[], 512, &[257]));
        assert!(gives(&[0, 0, 0, 0], 512, &[257]));
        assert!(gives(&[257, 2, 17, 2], 512, &[2, 17, 257]));
        assert!(gives(&[1, 2, 4, 8], 512, &[1, 2, 4, 257]));
        assert!(gives(&[u32::MAX], u32::MAX, &[512]));
        assert!(gives(&[400, 500], 300, &[300]));
    }

    #[test]
    fn a_device_must_serve_the_largest_key() {
        assert_eq!(Classes::new(&[2], 256), Err(Error::NotSupported));
        assert!(gives(&[2], 257, &[2, 257]));
    }

    #[test]
    fn the_smallest_class_that_fits() {
        let classes = Classes::new(&[2, 17, 257], 512);
        assert!(classes.is_ok());
        for (pages, class) in [
            (1, Some(0)),
            (2, Some(0)),
            (3, Some(1)),
            (17, Some(1)),
            (18, Some(2)),
            (257, Some(2)),
            (258, None),
        ] {
            assert_eq!(classes.map(|classes| classes.class_for(pages)), Ok(class));
        }
    }

    #[test]
    fn ports_are_tried_once_each() {
        assert_eq!(candidate(0, 0), Some(2));
        assert_eq!(candidate(1000, 1), Some(1001));
        assert_eq!(candidate(65535, 1), Some(2));
        assert_eq!(candidate(1000, 65533), Some(999));
        assert_eq!(candidate(1000, 65534), None);
    }

    #[test]
    fn times_and_ceilings() {
        assert_eq!(clamp_timeout_ms(0), 100);
        assert_eq!(clamp_timeout_ms(5000), 5000);
        assert_eq!(clamp_timeout_ms(u32::MAX), 600_000);
        assert_eq!(device_keys(0, 1000), 750);
        assert_eq!(device_keys(2000, 1000), 1000);
        assert_eq!(Deadline::after(7, 1).remaining_ns(8), 999_999);
        assert!(Deadline::after(7, 1).passed(1_000_007));
        assert!(!Deadline::after(u64::MAX - 1, 1).passed(u64::MAX - 1));
    }
}
