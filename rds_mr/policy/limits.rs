// SPDX-License-Identifier: GPL-2.0

//! From module parameters to numbers that can be worked with.

/// The shortest time for a revocation in milliseconds: less would give up on a healthy HCA.
const MIN_TIMEOUT_MS: u32 = 100;

/// The longest time for a revocation in milliseconds, ten minutes.
const MAX_TIMEOUT_MS: u32 = 600_000;

/// The most idle regions that are kept in one size class.
const MAX_POOL: u32 = 4096;

/// Returns the time for a revocation, parameter `revoke_timeout_ms`, in milliseconds.
pub(crate) fn clamp_timeout_ms(param: u32) -> u32 {
    param.clamp(MIN_TIMEOUT_MS, MAX_TIMEOUT_MS)
}

/// Returns the idle regions to keep in each size class, parameter `mr_pool`.
pub(crate) fn clamp_pool(param: u32) -> u32 {
    param.min(MAX_POOL)
}

/// Returns the ceiling on the keys of a device, parameter `max_keys_per_device`.
///
/// `max_mr` is what the HCA can have (`ib_device_attr.max_mr`). With 0 the ceiling is three
/// quarters of it, which leaves a reserve to the other users of the HCA; it never exceeds it.
pub(crate) fn device_keys(param: u32, max_mr: u32) -> u64 {
    if param == 0 {
        u64::from(max_mr).saturating_mul(3) / 4
    } else {
        u64::from(param.min(max_mr))
    }
}

/// Returns the ceiling on the pages of a device, parameter `max_pages_per_device`; 0 is none.
pub(crate) fn device_pages(param: u64) -> u64 {
    if param == 0 {
        u64::MAX
    } else {
        param
    }
}
