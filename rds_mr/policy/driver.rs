// SPDX-License-Identifier: GPL-2.0

//! What counts as proof that an HCA can no longer use a key; it depends on the driver.
//!
//! Pages are given back only on such a proof. A flushed, failed or silent invalidation is none,
//! nor is the end of a QP or a PD: keys belong to the PD, and `ib_dealloc_pd()` asks nobody.

/// `RDMA_DRIVER_MLX5` of `enum rdma_driver_id` in `include/uapi/rdma/ib_user_ioctl_verbs.h`.
const MLX5: u32 = 1;

/// `RDMA_DRIVER_RXE` of the same enumeration.
const RXE: u32 = 14;

/// Drivers that answer 0 to `ib_dereg_mr()` whatever has become of the command, by
/// `enum rdma_driver_id`: ocrdma, vmw_pvrdma, hns, erdma.
const DEREG_SAYS_NOTHING: [u32; 4] = [7, 10, 12, 19];

/// From this time on, in milliseconds, a successful `ib_dereg_mr()` of rxe proves nothing.
///
/// rxe waits 50 s for the last user of the region; the margin is for a late clock or scheduler.
const RXE_DEREG_PROOF_MS: u64 = 45_000;

/// The administrator's choice, module parameter `proof`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProofMode {
    /// Decide by driver.
    Auto,
    /// Believe a successful `LOCAL_INV` of any driver. For tests: on a software HCA no proof.
    Inv,
    /// Believe only a successful `ib_dereg_mr()`.
    Dereg,
}

impl ProofMode {
    /// Reads the parameter; a newline at its end, as `echo` leaves it in sysfs, is ignored.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        match text.strip_suffix(b"\n").unwrap_or(text) {
            b"auto" => Some(Self::Auto),
            b"inv" => Some(Self::Inv),
            b"dereg" => Some(Self::Dereg),
            _ => None,
        }
    }
}

/// How a key is proven dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Its own `LOCAL_INV` completed with success.
    Invalidate,
    /// `ib_dereg_mr()` returned 0, in time (see [`dereg_is_proof`]).
    Dereg,
}

/// Returns whether there is any proof to be had from the driver `driver_id`.
///
/// Even where an invalidation is the proof, deregistration is the last resort. Some drivers drop
/// the error of the command that takes the key from the HCA, or never send it, and return 0:
/// `ocrdma_dereg_mr()`, `pvrdma_dereg_mr()`, `hns_roce_dereg_mr()`, `erdma_dereg_mr()` (Linux 7.3).
pub(crate) fn gives_proof(driver_id: u32) -> bool {
    !DEREG_SAYS_NOTHING.contains(&driver_id)
}

/// Returns the proof to be had from the driver `driver_id` (`ib_device.ops.driver_id`).
///
/// In mode `auto` an invalidation is believed only of drivers on a list, so that a driver nobody
/// has looked at gets the slow and safe way:
///
/// * mlx5 is on it: the UMR that revokes a user's region, of the same kind as `LOCAL_INV` and
///   also posted on a queue of its own, is documented as "Upon return the NIC will not be doing
///   any DMA to the pages under the MR" (`drivers/infiniband/hw/mlx5/umr.c`), and the driver
///   itself unpins on that word.
/// * rxe is not: its `LOCAL_INV` flips a state while a responder may be copying a packet
///   (`sw/rxe/rxe_mr.c`, `rxe_resp.c`). Only deregistration waits for that responder.
/// * hfi1 and qib (rdmavt) are not: the key is looked at only in the first packet of a write,
///   and a write of many packets runs on after the invalidation (`hw/hfi1/rc.c`).
pub(crate) fn proof_for(mode: ProofMode, driver_id: u32) -> Proof {
    match (mode, driver_id) {
        (ProofMode::Inv, _) | (ProofMode::Auto, MLX5) => Proof::Invalidate,
        (ProofMode::Dereg, _) | (ProofMode::Auto, _) => Proof::Dereg,
    }
}

/// Returns whether an `ib_dereg_mr()` that returned 0 after `elapsed_ms` milliseconds is a proof.
///
/// It is for all drivers but rxe, which gives up waiting for its responder after 50 s, frees the
/// region and returns 0 all the same (`rxe_dereg_mr()` ignores what `rxe_cleanup()` says). By
/// then nothing is left to try again with, and the pages are lost.
pub(crate) fn dereg_is_proof(driver_id: u32, elapsed_ms: u64) -> bool {
    driver_id != RXE || elapsed_ms < RXE_DEREG_PROOF_MS
}
