// SPDX-License-Identifier: GPL-2.0

//! Ports, deadlines and parameters.

use crate::policy::{
    deadline::Deadline,
    limits::{
        clamp_pool,
        clamp_timeout_ms,
        device_keys,
        device_pages, //
    },
    ports::{
        candidate,
        PROBE_PORT, //
    },
};
use proptest::prelude::*;

#[test]
fn every_port_but_two_is_tried_once_from_any_start() {
    for start in [0, 1, 2, 3, 1000, 32768, 65534, 65535] {
        let mut seen = vec![false; 65536];
        let mut i = 0;
        while let Some(port) = candidate(start, i) {
            assert!(!seen[usize::from(port)], "{port} twice from {start}");
            seen[usize::from(port)] = true;
            i += 1;
        }
        assert_eq!(i, 65534, "from {start}");
        assert!(!seen[0] && !seen[usize::from(PROBE_PORT)]);
        assert_eq!(candidate(start, 0), Some(start.max(2)));
    }
}

#[test]
fn ports_go_up_and_wrap() {
    assert_eq!(candidate(65534, 1), Some(65535));
    assert_eq!(candidate(65534, 2), Some(2));
    assert_eq!(candidate(65535, 65533), Some(65534));
    assert_eq!(candidate(65535, 65534), None);
    assert_eq!(candidate(65535, u32::MAX), None);
}

proptest! {
    #[test]
    fn a_deadline_is_one_point_in_time(
        now in prop_oneof![any::<u64>(), u64::MAX - 1_000_000_000_000..=u64::MAX],
        ms in any::<u32>(),
        at in prop_oneof![any::<u64>(), u64::MAX - 1_000_000_000_000..=u64::MAX],
    ) {
        let end = (u128::from(now) + u128::from(ms) * 1_000_000).min(u128::from(u64::MAX));
        let left = u64::try_from(end.saturating_sub(u128::from(at))).unwrap();
        let deadline = Deadline::after(now, ms);
        prop_assert_eq!(u128::from(deadline.end_ns()), end);
        prop_assert_eq!(deadline.remaining_ns(at), left);
        prop_assert_eq!(deadline.passed(at), u128::from(at) >= end);
    }

    #[test]
    fn a_device_keeps_a_quarter_to_itself(param in any::<u32>(), max_mr in any::<u32>()) {
        let keys = device_keys(param, max_mr);
        prop_assert!(keys <= u64::from(max_mr));
        let quarters = u64::from(max_mr) * 3 / 4;
        prop_assert_eq!(device_keys(0, max_mr), quarters);
        if param != 0 && param <= max_mr {
            prop_assert_eq!(keys, u64::from(param));
        }
    }
}

#[test]
fn half_of_the_time_that_is_left_is_never_beyond_the_end() {
    let deadline = Deadline::after(100, 2);
    for (now, end) in [
        (100, 1_000_100),
        (2_000_000, 2_000_050),
        (2_000_100, 2_000_100),
    ] {
        assert_eq!(deadline.halfway(now).end_ns(), end);
    }
    let later = Deadline::after(100, 3);
    assert_eq!(deadline.min(later), deadline);
    assert_eq!(later.min(deadline), deadline);
    // Past the end there is nothing left.
    assert!(deadline.halfway(3_000_000).passed(3_000_000));
}

#[test]
fn a_deadline_ends_exactly() {
    let deadline = Deadline::after(5, 2);
    assert_eq!(deadline.remaining_ns(5), 2_000_000);
    assert!(!deadline.passed(2_000_004));
    assert!(deadline.passed(2_000_005));
    assert_eq!(deadline.remaining_ns(u64::MAX), 0);
}

#[test]
fn parameters_are_clamped() {
    for (param, expected) in [
        (0, 100),
        (99, 100),
        (100, 100),
        (5_000, 5_000),
        (600_000, 600_000),
        (600_001, 600_000),
        (u32::MAX, 600_000),
    ] {
        assert_eq!(clamp_timeout_ms(param), expected);
    }
    assert_eq!(
        (clamp_pool(0), clamp_pool(64), clamp_pool(u32::MAX)),
        (0, 64, 4096)
    );
    assert_eq!((device_pages(0), device_pages(1)), (u64::MAX, 1));
    assert_eq!(device_keys(8, 4), 4);
    assert_eq!(device_keys(0, u32::MAX), 3_221_225_471);
}
