// SPDX-License-Identifier: GPL-2.0

//! What names a key: the cookie that applications pass around, and the bits of an rkey that
//! change each time a memory region is registered again.

/// The RDS cookie: the rkey in the low half, in the high half the address of the buffer's first
/// byte as the peer must use it (`rds_rdma_make_cookie()` in `net/rds/rds.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cookie(u64);

impl Cookie {
    /// Makes the cookie of a key whose buffer starts `offset` bytes into its first page.
    pub(crate) fn new(rkey: u32, offset: u32) -> Self {
        Self((u64::from(offset) << 32) | u64::from(rkey))
    }

    /// Takes a cookie from an application; any number is one.
    pub(crate) fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns the number that applications see.
    pub(crate) fn raw(self) -> u64 {
        self.0
    }

    /// Returns the rkey, in host order.
    pub(crate) fn rkey(self) -> u32 {
        let [a, b, c, d, ..] = self.0.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// Returns the start of the buffer in its first page, in bytes.
    pub(crate) fn offset(self) -> u32 {
        let [.., a, b, c, d] = self.0.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
}

/// The low byte of the rkeys of one memory region, a new one for each registration.
///
/// RDS counts it up from 0, so whoever saw one key knows the next one. Here the values follow a
/// random order, and none comes back during the life of the region: an old key never fits again.
/// It is no secret (8 bits can be tried out), it only makes a stale or guessed key miss.
///
/// # Invariants
///
/// `step` and `spread` are odd.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyBytes {
    step: u8,
    start: u8,
    spread: u8,
    mask: u8,
    used: u8,
}

impl KeyBytes {
    /// Chooses an order; `seed` should be random.
    pub(crate) fn new(seed: u32) -> Self {
        let [step, start, spread, mask] = seed.to_le_bytes();
        // INVARIANT: Both are made odd.
        Self {
            step: step | 1,
            start,
            spread: spread | 1,
            mask,
            used: 0,
        }
    }

    /// Returns the byte for the next registration, or `None` after 255 of them.
    ///
    /// `None` means that the region is worn out: it must be deregistered and allocated anew.
    pub(crate) fn next(&mut self) -> Option<u8> {
        let turn = self.used;
        self.used = turn.checked_add(1)?;
        // Modulo 256, multiplying by an odd number, adding, folding the high bits into the low
        // ones, rotating and xor can all be undone, so different turns give different bytes.
        let walk = turn.wrapping_mul(self.step).wrapping_add(self.start);
        let folded = (walk ^ (walk >> 4)).rotate_left(3);
        let spread = folded.wrapping_mul(self.spread).rotate_left(4);
        Some(spread ^ self.mask)
    }
}
