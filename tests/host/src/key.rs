// SPDX-License-Identifier: GPL-2.0

//! Cookies, and the order of the variable bits of rkeys.

use crate::policy::key::{
    Cookie,
    KeyBytes, //
};
use proptest::prelude::*;
use std::collections::HashSet;

/// Everything one region can be given.
fn order(seed: u32) -> Vec<u8> {
    let mut bytes = KeyBytes::new(seed);
    std::iter::from_fn(|| bytes.next()).take(1000).collect()
}

proptest! {
    #[test]
    fn a_cookie_is_the_rkey_and_the_offset(rkey in any::<u32>(), offset in any::<u32>()) {
        let cookie = Cookie::new(rkey, offset);
        prop_assert_eq!(cookie.raw(), u64::from(rkey) + u64::from(offset) * 0x1_0000_0000);
        prop_assert_eq!(Cookie::from_raw(cookie.raw()), cookie);
        prop_assert_eq!((cookie.rkey(), cookie.offset()), (rkey, offset));
    }

    #[test]
    fn no_key_byte_comes_back(seed in any::<u32>()) {
        let order = order(seed);
        prop_assert_eq!(order.len(), 255);
        prop_assert_eq!(order.iter().collect::<HashSet<_>>().len(), 255);
    }
}

/// The steps of an order in plain arithmetic: other steps could permute as well, and mix less.
fn order_by_arithmetic(seed: u32) -> Vec<u8> {
    let part = |n: u32| (seed >> (8 * n)) % 256;
    let (step, start, spread, mask) = (part(0) | 1, part(1), part(2) | 1, part(3));
    let byte = |turn: u32| {
        let walk = (turn * step + start) % 256;
        let folded = walk ^ (walk / 16);
        let turned = folded * 8 % 256 + folded / 32;
        let product = turned * spread % 256;
        let halves_swapped = product % 16 * 16 + product / 16;
        u8::try_from(halves_swapped ^ mask).unwrap()
    };
    (0..255).map(byte).collect()
}

proptest! {
    #[test]
    fn an_order_is_what_its_steps_say(seed in any::<u32>()) {
        prop_assert_eq!(order(seed), order_by_arithmetic(seed));
    }
}

/// All multipliers with all spreads; start and mask cannot make two bytes equal.
#[test]
fn every_pair_of_multipliers_permutes() {
    for step in 0..=255 {
        for spread in 0..=255 {
            let seed = u32::from_le_bytes([step, 0x5a, spread, 0xc3]);
            let mut seen = [0; 256];
            let mut bytes = KeyBytes::new(seed);
            for byte in std::iter::from_fn(|| bytes.next()).take(300) {
                seen[usize::from(byte)] += 1;
            }
            seen.sort_unstable();
            assert!(
                seen[0] == 0 && seen[1] == 1 && seen[255] == 1,
                "seed {seed:#x}"
            );
        }
    }
}

#[test]
fn a_worn_out_region_stays_so() {
    let mut bytes = KeyBytes::new(7);
    for _ in 0..255 {
        assert!(bytes.next().is_some());
    }
    for _ in 0..600 {
        assert_eq!(bytes.next(), None);
    }
}

/// Who saw some keys of other regions cannot tell the next one of this region by rote.
#[test]
fn orders_differ_between_seeds() {
    let orders: HashSet<Vec<u8>> = (0..=u32::MAX).step_by(0x0010_2347).map(order).collect();
    let seeds = (0..=u32::MAX).step_by(0x0010_2347).count();
    assert!(orders.len() > seeds * 9 / 10, "{} of {seeds}", orders.len());
    let firsts: HashSet<u8> = orders.iter().map(|order| order[0]).collect();
    assert!(firsts.len() > 250, "only {} first bytes", firsts.len());
}

/// 30 of the 32 bits of a seed choose the order; two make a number odd.
#[test]
fn every_bit_of_the_seed_matters() {
    for seed in [0, 0x1234_5678, u32::MAX] {
        for bit in (0..32).filter(|bit| ![0, 16].contains(bit)) {
            assert_ne!(
                order(seed),
                order(seed ^ (1 << bit)),
                "{seed:#x}, bit {bit}"
            );
        }
    }
}

#[test]
fn an_order_is_no_counting_up() {
    let counting = (0..1000_u32)
        .map(|i| order(i.wrapping_mul(0x9e37_79b9)))
        .filter(|order| {
            order
                .windows(2)
                .all(|pair| pair[1] == pair[0].wrapping_add(1))
        })
        .count();
    assert!(counting <= 10, "{counting} of 1000 orders count up");
}
