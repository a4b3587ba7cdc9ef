// SPDX-License-Identifier: GPL-2.0

//! A key ends at the byte where its buffer ends, on both sides.

use crate::kern::ib::Outcome;
use crate::kern::ib::Outcome::Success;
use crate::peer::At;
use crate::peer::Peer;
use crate::peer::REFUSED;
use crate::rxe_access::start;
use crate::rxe_access::LENGTHS;
use crate::rxe_access::OFFSETS;
use crate::rxe_access::PAGES;
use crate::support::pattern;
use crate::support::Memory;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

/// Whether the peer may use `len` bytes from `at` on. Reading and writing must
/// agree on that, and what is refused must change nothing.
fn expect(peer: &mut Peer, memory: &Memory, at: At, len: usize, expected: Outcome) -> Result {
    check_eq!(must!(peer.read(at, len)), expected);
    let before = memory.read(0, PAGES * PAGE_SIZE)?;
    check_eq!(must!(peer.write(at, &pattern(len, 0x99)?)), expected);
    if expected != Success {
        check!(memory.read(0, PAGES * PAGE_SIZE)? == before);
    }
    Ok(())
}

/// All edges of a buffer of `len` bytes whose first byte is at `first`.
fn edges(peer: &mut Peer, memory: &Memory, first: At, len: usize) -> Result {
    let end = len as i64;
    // The last byte on either side, and the whole.
    expect(peer, memory, first, 1, Success)?;
    expect(peer, memory, first.plus(end - 1), 1, Success)?;
    expect(peer, memory, first, len, Success)?;
    // One byte outside, alone and together with what is inside.
    expect(peer, memory, first.plus(-1), 1, REFUSED)?;
    expect(peer, memory, first.plus(end), 1, REFUSED)?;
    expect(peer, memory, first.plus(-1), 2, REFUSED)?;
    expect(peer, memory, first.plus(end - 1), 2, REFUSED)?;
    expect(peer, memory, first.plus(-1), len + 1, REFUSED)?;
    expect(peer, memory, first, len + 1, REFUSED)
}

#[kunit_tests(rds_mr_rxe_bounds)]
mod tests {
    use super::*;

    fn lengths(offset: usize) -> Result {
        let site = site!();
        let memory = Memory::new(PAGES)?;
        let mut peer = Peer::of(&site, (64 << 10) + 1)?;
        for len in LENGTHS {
            let cookie = must!(site.get_mr(memory.at(start(offset)), len, true));
            if let Err(error) = edges(&mut peer, &memory, cookie.into(), len) {
                check!(false, offset, len, error);
            }
            must!(site.free_mr(cookie));
        }
        Ok(())
    }

    #[test]
    fn exact_from_the_start_of_a_page() -> Result {
        lengths(OFFSETS[0])
    }

    #[test]
    fn exact_from_the_second_byte() -> Result {
        lengths(OFFSETS[1])
    }

    #[test]
    fn exact_from_the_last_byte() -> Result {
        lengths(OFFSETS[2])
    }

    #[test]
    fn addresses_that_wrap_are_outside() -> Result {
        let site = site!();
        let memory = Memory::new(PAGES)?;
        let mut peer = Peer::of(&site, PAGE_SIZE)?;
        let cookie = must!(site.get_mr(memory.at(0), PAGE_SIZE, true));
        for far in [i64::MIN, i64::MAX, -4096, -2, 1 << 32, 1 << 47] {
            let at = At::from(cookie).plus(far);
            expect(&mut peer, &memory, at, 1, REFUSED)?;
            expect(&mut peer, &memory, at, PAGE_SIZE, REFUSED)?;
        }
        expect(&mut peer, &memory, cookie.into(), PAGE_SIZE, Success)
    }
}
