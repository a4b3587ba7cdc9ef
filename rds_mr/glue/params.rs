// SPDX-License-Identifier: GPL-2.0

//! Module parameters, checked once and then read as they are.

use crate::kern::module;
use crate::kern::time;
use crate::policy::deadline::Deadline;
use crate::policy::driver::ProofMode;
use crate::policy::limits;
use crate::policy::quota::Limits;
use kernel::prelude::*;

/// Refuse to load with parameters that make no sense, and say which.
pub(crate) fn check() -> Result {
    if ProofMode::parse(module::proof_param()).is_none() {
        pr_err!(
            "parameter proof must be auto, inv or dereg, not {}\n",
            module::proof_text()
        );
        return Err(EINVAL);
    }
    let asked = module::params().revoke_timeout_ms;
    if limits::clamp_timeout_ms(asked) != asked {
        pr_err!(
            "parameter revoke_timeout_ms must be 100 to 600000, not {}\n",
            asked
        );
        return Err(EINVAL);
    }
    let socket = socket_limits();
    let user = user_limits();
    if [socket.keys, socket.pages, user.keys, user.pages].contains(&0) {
        pr_err!("parameters max_keys_per_* and max_pages_per_* of socket and user must not be 0\n");
        return Err(EINVAL);
    }
    Ok(())
}

/// What proves that an HCA has let go. Valid after [`check`].
pub(crate) fn proof_mode() -> ProofMode {
    ProofMode::parse(module::proof_param()).unwrap_or(ProofMode::Dereg)
}

/// The end of a revocation that starts now.
pub(crate) fn deadline() -> Deadline {
    let ms = limits::clamp_timeout_ms(module::params().revoke_timeout_ms);
    Deadline::after(time::now_ns(), ms)
}

/// Default and ceiling of one socket.
pub(crate) fn socket_limits() -> Limits {
    let p = module::params();
    Limits {
        keys: u64::from(p.max_keys_per_socket),
        pages: p.max_pages_per_socket as u64,
    }
}

/// Ceiling of one user.
pub(crate) fn user_limits() -> Limits {
    let p = module::params();
    Limits {
        keys: u64::from(p.max_keys_per_user),
        pages: p.max_pages_per_user as u64,
    }
}

/// Ceiling of one device that offers `max_mr` MRs.
pub(crate) fn device_limits(max_mr: u32) -> Limits {
    let p = module::params();
    Limits {
        keys: limits::device_keys(p.max_keys_per_device, max_mr),
        pages: limits::device_pages(p.max_pages_per_device as u64),
    }
}

/// Sizes, in pages, of the MRs that are kept ready.
pub(crate) fn classes() -> &'static [u32] {
    let p = module::params();
    p.mr_classes
        .get(..p.nr_mr_classes as usize)
        .unwrap_or(&p.mr_classes)
}

/// How many MRs of a class are kept ready.
pub(crate) fn pool_size() -> usize {
    limits::clamp_pool(module::params().mr_pool) as usize
}

/// Whether a key without RDS_RDMA_READWRITE denies writes.
pub(crate) fn strict_access() -> bool {
    module::params().strict_access
}
