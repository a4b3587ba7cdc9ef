// SPDX-License-Identifier: GPL-2.0

//! Cookies and key bytes, inside the kernel.

use crate::policy::key::{
    Cookie,
    KeyBytes, //
};
use kernel::prelude::*;

#[kunit_tests(rds_mr_policy_key)]
mod tests {
    use super::*;

    /// Returns whether `seed` gives 255 different bytes and then no more.
    fn permutes(seed: u32) -> bool {
        let mut bytes = KeyBytes::new(seed);
        let mut seen = [0_u64; 4];
        for _ in 0..255 {
            let Some(byte) = bytes.next() else {
                return false;
            };
            let bit = 1 << (byte % 64);
            let Some(word) = seen.get_mut(usize::from(byte / 64)) else {
                return false;
            };
            if *word & bit != 0 {
                return false;
            }
            *word |= bit;
        }
        bytes.next().is_none() && bytes.next().is_none()
    }

    #[test]
    fn cookie_halves() {
        let cookie = Cookie::new(0x1122_3344, 0xfff);
        assert_eq!(cookie.raw(), 0x0000_0fff_1122_3344);
        assert_eq!(cookie.rkey(), 0x1122_3344);
        assert_eq!(cookie.offset(), 0xfff);
        assert_eq!(Cookie::from_raw(cookie.raw()), cookie);
    }

    #[test]
    fn cookie_of_all_ones() {
        let cookie = Cookie::from_raw(u64::MAX);
        assert_eq!((cookie.rkey(), cookie.offset()), (u32::MAX, u32::MAX));
        assert_eq!(Cookie::from_raw(1).rkey(), 1);
        assert_eq!(Cookie::from_raw(1 << 32).offset(), 1);
    }

    #[test]
    fn key_bytes_never_come_back() {
        for low in 0..=u8::MAX {
            let seed = u32::from(low);
            assert!(permutes(seed));
            assert!(permutes(seed << 16));
            assert!(permutes(seed.wrapping_mul(0x9e37_79b9)));
        }
    }
}
