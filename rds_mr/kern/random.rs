// SPDX-License-Identifier: GPL-2.0

//! Random numbers.

/// 32 unpredictable bits.
pub(crate) fn random_u32() -> u32 {
    // SAFETY: No preconditions.
    unsafe { kernel::bindings::get_random_u32() }
}
