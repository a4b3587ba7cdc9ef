// SPDX-License-Identifier: GPL-2.0

//! User ranges against a transcription of the C code and against counting.

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
use proptest::prelude::*;

/// What both steps say together.
fn both(addr: u64, bytes: u64) -> Result<u32, Error> {
    UserRange::new(addr, bytes)?.span().map(|span| span.pages())
}

/// The checks of `__rds_rdma_map()` and `rds_pages_in_vec()`, with C's wrapping arithmetic.
fn in_tree(addr: u64, bytes: u64) -> Result<u32, Error> {
    let end = addr.wrapping_add(bytes);
    let aligned = end.wrapping_add(PAGE_SIZE - 1) & !(PAGE_SIZE - 1);
    if end < addr || aligned < end {
        return Err(Error::Invalid);
    }
    let pages = if end <= addr || bytes > u64::from(u32::MAX) {
        0
    } else {
        (end.wrapping_add(PAGE_SIZE - 1) >> PAGE_SHIFT) - (addr >> PAGE_SHIFT)
    };
    if pages == 0 {
        return Err(Error::Invalid);
    }
    if pages - 1 > (1 << 20) >> PAGE_SHIFT {
        return Err(Error::MessageSize);
    }
    Ok(u32::try_from(pages).unwrap())
}

/// Numbers near the places where something changes.
fn interesting() -> impl Strategy<Value = u64> {
    let edges = prop::sample::select(vec![
        0,
        PAGE_SIZE,
        MAX_MR_BYTES,
        u64::from(MAX_MR_PAGES) * PAGE_SIZE,
        1 << 32,
        1 << 47,
        1 << 63,
        u64::MAX - PAGE_SIZE,
        u64::MAX,
    ]);
    let near = (edges, -4097..=4097_i64).prop_map(|(edge, by)| edge.wrapping_add_signed(by));
    prop_oneof![4 => near, 1 => any::<u64>(), 2 => 0..3 * MAX_MR_BYTES]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn agrees_with_the_in_tree_checks(addr in interesting(), bytes in interesting()) {
        prop_assert_eq!(both(addr, bytes), in_tree(addr, bytes));
    }
}

proptest! {
    // Few cases: each counts up to a million bytes.
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn span_is_the_pages_that_are_touched(
        addr in interesting(),
        bytes in 1..=MAX_MR_BYTES + PAGE_SIZE,
    ) {
        let Ok(span) = UserRange::new(addr, bytes).and_then(|range| range.span()) else {
            return Ok(());
        };
        let mut touched: Vec<u64> = (0..bytes).map(|i| (addr + i) / PAGE_SIZE).collect();
        touched.dedup();
        prop_assert_eq!(touched.len(), usize::try_from(span.pages()).unwrap());
        prop_assert_eq!(span.first(), touched[0] * PAGE_SIZE);
        prop_assert_eq!(span.first() + u64::from(span.offset()), addr);
        prop_assert_eq!(u64::from(span.bytes()), bytes);
        prop_assert!(span.pages() <= MAX_MR_PAGES);
    }
}

#[test]
fn limits_are_exact() {
    let whole = u64::from(MAX_MR_PAGES) * PAGE_SIZE;
    for (addr, bytes, expected) in [
        (0x1000, 1, Ok(1)),
        (0x1fff, 1, Ok(1)),
        (0x1fff, 2, Ok(2)),
        (0, MAX_MR_BYTES, Ok(256)),
        (1, MAX_MR_BYTES, Ok(257)),
        (4095, MAX_MR_BYTES, Ok(257)),
        (4095, MAX_MR_BYTES + 1, Ok(257)),
        (4095, MAX_MR_BYTES + 2, Err(Error::MessageSize)),
        (0, whole, Ok(257)),
        (0, whole + 1, Err(Error::MessageSize)),
        (1, whole, Err(Error::MessageSize)),
        (0, u64::from(u32::MAX), Err(Error::MessageSize)),
        (0, u64::from(u32::MAX) + 1, Err(Error::Invalid)),
        (0x1000, 0, Err(Error::Invalid)),
        (0, 0, Err(Error::Invalid)),
        (u64::MAX - 4094, 0, Err(Error::Invalid)),
        (u64::MAX - 4096, 1, Ok(1)),
        (u64::MAX - 4096, 2, Err(Error::Invalid)),
        (u64::MAX, 1, Err(Error::Invalid)),
        (u64::MAX, u64::MAX, Err(Error::Invalid)),
    ] {
        assert_eq!(both(addr, bytes), expected, "{addr:#x} + {bytes:#x}");
    }
}

/// The right to lock memory is checked between the two steps, so they must not be mixed.
#[test]
fn the_first_step_looks_at_wrapping_only() {
    assert!(UserRange::new(0x1000, 0).is_ok());
    assert!(UserRange::new(0, u64::from(u32::MAX) + 1).is_ok());
    assert!(UserRange::new(0, 1 << 40).is_ok());
    assert_eq!(UserRange::new(u64::MAX, 0), Err(Error::Invalid));
    assert_eq!(UserRange::new(2, u64::MAX - 1), Err(Error::Invalid));
}
