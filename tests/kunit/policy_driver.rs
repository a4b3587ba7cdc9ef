// SPDX-License-Identifier: GPL-2.0

//! Which driver is believed what, inside the kernel.

use crate::policy::driver::{
    dereg_is_proof,
    gives_proof,
    proof_for,
    Proof,
    ProofMode, //
};
use kernel::prelude::*;

#[kunit_tests(rds_mr_policy_driver)]
mod tests {
    use super::*;

    /// `enum rdma_driver_id` as of `include/uapi/rdma/ib_user_ioctl_verbs.h`.
    const MLX5: u32 = 1;
    const RXE: u32 = 14;
    const HFI1: u32 = 15;

    #[test]
    fn auto_believes_an_invalidation_of_mlx5_only() {
        for id in 0..64 {
            let invalidate = proof_for(ProofMode::Auto, id) == Proof::Invalidate;
            assert_eq!(invalidate, id == MLX5);
        }
        assert_eq!(proof_for(ProofMode::Auto, u32::MAX), Proof::Dereg);
    }

    #[test]
    fn the_parameter_overrules() {
        for id in [0, MLX5, RXE, HFI1, u32::MAX] {
            assert_eq!(proof_for(ProofMode::Inv, id), Proof::Invalidate);
            assert_eq!(proof_for(ProofMode::Dereg, id), Proof::Dereg);
        }
    }

    #[test]
    fn some_drivers_prove_nothing() {
        for id in [0, MLX5, 2, RXE, HFI1, u32::MAX] {
            assert!(gives_proof(id));
        }
        // ocrdma, vmw_pvrdma, hns, erdma.
        for id in [7, 10, 12, 19] {
            assert!(!gives_proof(id));
        }
    }

    #[test]
    fn rxe_can_be_late() {
        assert!(dereg_is_proof(RXE, 0));
        assert!(dereg_is_proof(RXE, 44_999));
        assert!(!dereg_is_proof(RXE, 45_000));
        assert!(!dereg_is_proof(RXE, 50_001));
        assert!(dereg_is_proof(MLX5, 60_000));
        assert!(dereg_is_proof(HFI1, u64::MAX));
    }

    #[test]
    fn the_parameter_is_parsed() {
        assert_eq!(ProofMode::parse(b"auto"), Some(ProofMode::Auto));
        assert_eq!(ProofMode::parse(b"inv\n"), Some(ProofMode::Inv));
        assert_eq!(ProofMode::parse(b"dereg\n"), Some(ProofMode::Dereg));
        assert_eq!(ProofMode::parse(b"dereg\n\n"), None);
        assert_eq!(ProofMode::parse(b"AUTO"), None);
        assert_eq!(ProofMode::parse(b""), None);
    }
}
