// SPDX-License-Identifier: GPL-2.0

//! What a peer gets through a key: the data, if the key is alive and allows it.

use crate::peer::At;
use crate::peer::Peer;
use crate::peer::REFUSED;
use crate::support::pattern;
use crate::support::Memory;
use crate::support::Site;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

use crate::kern::ib::Outcome::Success;

/// Offsets in the first page, and lengths, of the buffers that are tried.
pub(crate) const OFFSETS: [usize; 3] = [0, 1, 4095];
pub(crate) const LENGTHS: [usize; 5] = [1, 4095, 4096, 4097, 64 << 10];
/// Pages that hold any of them, with a page to spare on both sides.
pub(crate) const PAGES: usize = 20;

/// Where the tested buffer starts in the memory.
pub(crate) fn start(offset: usize) -> usize {
    PAGE_SIZE + offset
}

/// One buffer, both ways; every byte around it must stay.
fn both_ways(site: &Site, memory: &Memory, peer: &mut Peer, offset: usize, len: usize) -> Result {
    let (from, end) = (start(offset), start(offset) + len);
    must!(memory.fill(0x55));
    let cookie = must!(site.get_mr(memory.at(from), len, true));
    check_eq!(cookie.offset() as usize, offset);

    let sent = pattern(len, 0xa0)?;
    check_eq!(must!(peer.write(cookie.into(), &sent)), Success);
    check!(memory.read(from, len)? == sent);
    check!(memory.is_all(0, from, 0x55)?);
    check!(memory.is_all(end, PAGES * PAGE_SIZE - end, 0x55)?);

    let back = pattern(len, 0x5a)?;
    must!(memory.write(from, &back));
    check_eq!(must!(peer.read(cookie.into(), len)), Success);
    check!(*peer.received(len)? == *back);
    must!(site.free_mr(cookie));
    Ok(())
}

/// A peer that finds no way in, and memory that does not change.
fn refuses_all(peer: &mut Peer, memory: &Memory, at: At) -> Result {
    let before = memory.read(0, PAGE_SIZE)?;
    check_eq!(must!(peer.read(at, 1)), REFUSED);
    check_eq!(must!(peer.write(at, &[0xbb])), REFUSED);
    check_eq!(must!(peer.read(at, PAGE_SIZE)), REFUSED);
    check_eq!(must!(peer.write(at, &pattern(PAGE_SIZE, 0xbb)?)), REFUSED);
    check!(memory.read(0, PAGE_SIZE)? == before);
    Ok(())
}

#[kunit_tests(rds_mr_rxe_access)]
mod tests {
    use super::*;

    #[test]
    fn data_arrives_both_ways() -> Result {
        let site = site!();
        let memory = Memory::new(PAGES)?;
        let mut peer = Peer::of(&site, 64 << 10)?;
        for offset in OFFSETS {
            for len in LENGTHS {
                if let Err(error) = both_ways(&site, &memory, &mut peer, offset, len) {
                    check!(false, offset, len, error);
                }
            }
        }
        check_eq!(memory.pinned(), 0);
        Ok(())
    }

    #[test]
    fn a_read_only_key_refuses_writes() -> Result {
        let site = site!();
        let memory = Memory::new(1)?;
        let mut peer = Peer::of(&site, PAGE_SIZE)?;
        let secret = pattern(PAGE_SIZE, 0x11)?;
        must!(memory.write(0, &secret));
        let cookie = must!(site.get_mr(memory.at(0), PAGE_SIZE, false));
        check_eq!(must!(peer.read(cookie.into(), PAGE_SIZE)), Success);
        check!(*peer.received(PAGE_SIZE)? == *secret);
        for len in [1, 1024, PAGE_SIZE] {
            check_eq!(
                must!(peer.write(cookie.into(), &pattern(len, 0x77)?)),
                REFUSED
            );
        }
        check!(memory.read(0, PAGE_SIZE)? == secret);
        // The refusals have not harmed the key.
        check_eq!(must!(peer.read(cookie.into(), PAGE_SIZE)), Success);
        Ok(())
    }

    #[test]
    fn a_key_dies_by_free_mr() -> Result {
        let site = site!();
        let memory = Memory::new(1)?;
        let mut peer = Peer::of(&site, PAGE_SIZE)?;
        let cookie = must!(site.get_mr(memory.at(0), PAGE_SIZE, true));
        check_eq!(must!(peer.read(cookie.into(), PAGE_SIZE)), Success);
        check_eq!(memory.pinned(), 1);
        must!(site.free_mr(cookie));
        check_eq!(memory.pinned(), 0);
        refuses_all(&mut peer, &memory, cookie.into())?;
        check_eq!(site.free_mr(cookie), Err(EINVAL));
        Ok(())
    }

    #[test]
    fn a_key_dies_with_its_socket() -> Result {
        let (site, other) = (site!(), site!());
        let memory = Memory::new(1)?;
        let mut peer = Peer::of(&site, PAGE_SIZE)?;
        let cookie = must!(other.get_mr(memory.at(0), PAGE_SIZE, true));
        check_eq!(must!(peer.read(cookie.into(), PAGE_SIZE)), Success);
        check_eq!(site.free_mr(cookie), Err(EINVAL));
        drop(other);
        check_eq!(memory.pinned(), 0);
        refuses_all(&mut peer, &memory, cookie.into())
    }

    #[test]
    fn a_key_with_another_low_byte_misses() -> Result {
        let site = site!();
        let memory = Memory::new(1)?;
        let mut peer = Peer::of(&site, PAGE_SIZE)?;
        let cookie = must!(site.get_mr(memory.at(0), PAGE_SIZE, true));
        for wrong in [1, 0x80, 0xff] {
            let at = At::from(cookie);
            let at = At {
                rkey: at.rkey ^ wrong,
                ..at
            };
            refuses_all(&mut peer, &memory, at)?;
        }
        check_eq!(must!(peer.read(cookie.into(), PAGE_SIZE)), Success);
        Ok(())
    }

    #[test]
    fn two_keys_of_the_same_memory_die_apart() -> Result {
        let site = site!();
        let memory = Memory::new(1)?;
        let mut peer = Peer::of(&site, PAGE_SIZE)?;
        let (one, two) = (
            must!(site.get_mr(memory.at(0), PAGE_SIZE, true)),
            must!(site.get_mr(memory.at(0), PAGE_SIZE, true)),
        );
        must!(site.free_mr(one));
        refuses_all(&mut peer, &memory, one.into())?;
        check_eq!(memory.pinned(), 1);
        check_eq!(must!(peer.write(two.into(), &[0x42])), Success);
        check_eq!(memory.read(0, 1)?[0], 0x42);
        must!(site.free_mr(two));
        check_eq!(memory.pinned(), 0);
        Ok(())
    }
}
