// SPDX-License-Identifier: GPL-2.0

//! The choice of a port for a bind to port 0.

/// The port that in-tree RDS uses to probe for multipath; never bound by anybody.
pub(crate) const PROBE_PORT: u16 = 1;

/// Sockets that can be bound at once on the host, as in `net/rds/bind.c`.
pub(crate) const MAX_BOUND: usize = 16_384;

/// The smallest port that is handed out; 0 means "any" and 1 is [`PROBE_PORT`].
const FIRST: u16 = 2;

/// How many ports there are from [`FIRST`] on.
const COUNT: u32 = u16::MAX as u32 - FIRST as u32 + 1;

/// Returns the port to try in round `i`, or `None` when each port was tried once.
///
/// The rounds go up from `start`, which should be random, and wrap around.
pub(crate) fn candidate(start: u16, i: u32) -> Option<u16> {
    if i >= COUNT {
        return None;
    }
    let place = u32::from(start.saturating_sub(FIRST)).checked_add(i)? % COUNT;
    u16::try_from(place).ok()?.checked_add(FIRST)
}
