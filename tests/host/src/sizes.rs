// SPDX-License-Identifier: GPL-2.0

//! Size classes against a sorted set.

use crate::policy::{
    error::Error,
    range::MAX_MR_PAGES,
    sizes::{
        Classes,
        MAX_CLASSES, //
    },
};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn pages_of_all(classes: &Classes) -> Vec<u32> {
    (0..classes.len())
        .map(|class| classes.pages_of(class).unwrap())
        .collect()
}

/// The naive model: sort, cut, make room for the largest key.
fn model(requested: &[u32], device: u32) -> Vec<u32> {
    let set: BTreeSet<u32> = requested
        .iter()
        .filter(|pages| **pages > 0)
        .map(|pages| (*pages).min(device).min(512))
        .collect();
    let mut sorted: Vec<u32> = set.into_iter().collect();
    if !sorted.iter().any(|pages| *pages >= 257) {
        sorted.push(257);
    }
    sorted.truncate(MAX_CLASSES);
    if *sorted.last().unwrap() < 257 {
        *sorted.last_mut().unwrap() = 257;
    }
    sorted
}

fn sizes() -> impl Strategy<Value = Vec<u32>> {
    let one = prop_oneof![3 => 0..20_u32, 3 => 250..520_u32, 1 => any::<u32>()];
    prop::collection::vec(one, 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn classes_agree_with_a_sorted_set(
        requested in sizes(),
        device in prop_oneof![257..600_u32, Just(u32::MAX)],
    ) {
        let classes = Classes::new(&requested, device).unwrap();
        prop_assert_eq!(pages_of_all(&classes), model(&requested, device));
    }

    #[test]
    fn every_key_finds_the_smallest_class(requested in sizes(), device in 257..600_u32) {
        let classes = Classes::new(&requested, device).unwrap();
        let all = pages_of_all(&classes);
        prop_assert!(!all.is_empty() && all.len() <= MAX_CLASSES);
        prop_assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert!(all.iter().all(|&pages| (1..=device.min(512)).contains(&pages)));
        for pages in 1..=600 {
            let best = all.iter().position(|&size| size >= pages);
            prop_assert_eq!(classes.class_for(pages), best);
            prop_assert!(best.is_some() || pages > MAX_MR_PAGES);
        }
        prop_assert_eq!(classes.pages_of(all.len()), None);
        prop_assert_eq!(classes.pages_of(usize::MAX), None);
    }

    #[test]
    fn a_device_too_small_for_the_largest_key_is_refused(
        requested in sizes(),
        device in 0..257_u32,
    ) {
        prop_assert_eq!(Classes::new(&requested, device), Err(Error::NotSupported));
    }
}

#[test]
fn known_requests() {
    for (requested, device, expected) in [
        (&[2, 17, 257][..], u32::MAX, &[2, 17, 257][..]),
        (&[], 257, &[257]),
        (&[0, 0], 300, &[257]),
        (&[257, 17, 2, 17], 512, &[2, 17, 257]),
        (&[1, 2, 4, 8], 512, &[1, 2, 4, 257]),
        (&[1, 2, 4, 8, 300], 512, &[1, 2, 4, 257]),
        (&[1, 2, 4, 300, 400], 512, &[1, 2, 4, 300]),
        (&[100_000], u32::MAX, &[512]),
        (&[400, 500], 300, &[300]),
    ] {
        let classes = Classes::new(requested, device).unwrap();
        assert_eq!(
            pages_of_all(&classes),
            expected,
            "{requested:?} on {device}"
        );
    }
}
