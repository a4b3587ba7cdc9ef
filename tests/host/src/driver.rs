// SPDX-License-Identifier: GPL-2.0

//! Which driver is believed what.

use crate::policy::driver::{
    dereg_is_proof,
    gives_proof,
    proof_for,
    Proof,
    ProofMode, //
};
use proptest::prelude::*;

/// `enum rdma_driver_id`, `include/uapi/rdma/ib_user_ioctl_verbs.h`.
const MLX5: u32 = 1;
const RXE: u32 = 14;

/// More than there are drivers.
const IDS: std::ops::Range<u32> = 0..64;

#[test]
fn an_invalidation_is_believed_of_mlx5_only() {
    for id in IDS.chain([u32::MAX]) {
        let expected = if id == MLX5 {
            Proof::Invalidate
        } else {
            Proof::Dereg
        };
        assert_eq!(proof_for(ProofMode::Auto, id), expected, "driver {id}");
    }
}

#[test]
fn the_administrator_overrules_the_list() {
    for id in IDS {
        assert_eq!(proof_for(ProofMode::Inv, id), Proof::Invalidate);
        assert_eq!(proof_for(ProofMode::Dereg, id), Proof::Dereg);
    }
}

#[test]
fn a_driver_that_always_says_yes_proves_nothing() {
    // RDMA_DRIVER_OCRDMA, _VMW_PVRDMA, _HNS, _ERDMA.
    let silent: Vec<u32> = IDS.filter(|id| !gives_proof(*id)).collect();
    assert_eq!(silent, [7, 10, 12, 19]);
    assert!(gives_proof(u32::MAX));
}

#[test]
fn only_rxe_can_be_late() {
    for id in IDS {
        for ms in [0, 1, 44_999, 45_000, 50_000, u64::MAX] {
            assert_eq!(
                dereg_is_proof(id, ms),
                id != RXE || ms < 45_000,
                "{id} {ms}"
            );
        }
    }
}

#[test]
fn the_parameter_is_read_to_the_letter() {
    for (text, expected) in [
        ("auto", Some(ProofMode::Auto)),
        ("inv", Some(ProofMode::Inv)),
        ("dereg", Some(ProofMode::Dereg)),
        ("auto\n", Some(ProofMode::Auto)),
        ("inv\n", Some(ProofMode::Inv)),
        ("dereg\n", Some(ProofMode::Dereg)),
        ("auto\n\n", None),
        ("Auto", None),
        ("in", None),
        ("invalidate", None),
        (" inv", None),
        ("inv ", None),
        ("\n", None),
        ("", None),
    ] {
        assert_eq!(ProofMode::parse(text.as_bytes()), expected, "{text:?}");
    }
}

proptest! {
    #[test]
    fn no_other_text_is_a_mode(text in any::<Vec<u8>>()) {
        let known: [&[u8]; 6] = [b"auto", b"inv", b"dereg", b"auto\n", b"inv\n", b"dereg\n"];
        prop_assert_eq!(ProofMode::parse(&text).is_some(), known.contains(&text.as_slice()));
    }
}
