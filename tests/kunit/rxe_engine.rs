// SPDX-License-Identifier: GPL-2.0

//! Ending many keys at once, and with a queue that has failed: every key ends,
//! with a proof of its own or deregistered, and all pages come back.

use crate::kern::ib::qp::Qp;
use crate::kern::ib::Outcome::Success;
use crate::kern::ib::SendQueue;
use crate::kern::ib::Wr;
use crate::kern::ib::CHAIN;
use crate::keys::end_all;
use crate::keys::invalidate;
use crate::keys::rkeys_of;
use crate::keys::Verbs;
use crate::peer::At;
use crate::peer::Peer;
use crate::peer::REFUSED;
use crate::support::eventually;
use crate::support::soon_ns;
use crate::support::Memory;
use crate::support::Site;
use kernel::alloc::KVec;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::Arc;

/// The device's queue.
fn engine(site: &Site) -> Result<Arc<SendQueue>> {
    site.device().queue(&site.device().enter()?)
}

fn break_silently(engine: &SendQueue) -> Result {
    engine.with_qp(Qp::fail).ok_or(ENODEV)?
}

/// A new key of a new socket works, and so does its end.
fn is_in_order(memory: &Memory) -> Result {
    let site = site!();
    let mut peer = Peer::of(&site, PAGE_SIZE)?;
    let cookie = must!(site.get_mr(memory.at(0), PAGE_SIZE, true));
    check_eq!(must!(peer.write(cookie.into(), &[0x17])), Success);
    check_eq!(memory.read(0, 1)?[0], 0x17);
    must!(site.free_mr(cookie));
    check_eq!(must!(peer.read(cookie.into(), 1)), REFUSED);
    check!(!engine(&site)?.is_broken());
    Ok(())
}

#[kunit_tests(rds_mr_rxe_engine)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_proves_each_of_its_keys() -> Result {
        let site = site!();
        let verbs = must!(Verbs::new(site.device()));
        for count in [1, 2, CHAIN - 1, CHAIN] {
            let memory = Memory::new(count)?;
            let keys = must!(verbs.keys(&memory, count));
            let proofs = invalidate(&verbs.queue, &rkeys_of(&keys)?)?;
            check!(proofs.iter().all(Option::is_some), count);
            end_all(keys, proofs)?;
            check_eq!(memory.pinned(), 0);
        }
        check!(!verbs.queue.is_broken());
        Ok(())
    }

    #[test]
    fn a_chain_that_is_too_long_does_nothing() -> Result {
        let site = site!();
        let memory = Memory::new(CHAIN + 1)?;
        let verbs = must!(Verbs::new(site.device()));
        let keys = must!(verbs.keys(&memory, CHAIN + 1));
        let proofs = invalidate(&verbs.queue, &rkeys_of(&keys)?)?;
        check!(proofs.iter().all(Option::is_none));
        check!(!verbs.queue.is_broken());
        let mut peer = Peer::new(&verbs.pd, PAGE_SIZE)?;
        for key in &keys {
            check_eq!(must!(peer.read(key.at(), 1)), Success);
        }
        end_all(keys, proofs)?;
        check_eq!(memory.pinned(), 0);
        Ok(())
    }

    /// Others who take one slot each must not keep a chain waiting.
    #[test]
    fn a_chain_goes_in_parts_through_a_queue_that_is_nearly_full() -> Result {
        const DEPTH: usize = 256;
        const LEFT: usize = 6;
        let site = site!();
        let verbs = must!(Verbs::new(site.device()));
        let memory = Memory::new(DEPTH - LEFT)?;
        let held = must!(verbs.keys(&memory, DEPTH - LEFT));
        let mut batches = KVec::with_capacity(DEPTH, GFP_KERNEL)?;
        for key in &held {
            let wr = [Wr::LocalInv { rkey: key.rkey() }];
            // SAFETY: A LOCAL_INV refers to nothing in memory that has to live.
            let batch = must!(unsafe { verbs.queue.post(&wr, soon_ns()) });
            check!(batch.wait(soon_ns()));
            batches.push(batch, GFP_KERNEL)?;
        }
        let others = Memory::new(CHAIN)?;
        // Registered by another queue: this one has no room to spare.
        let second = must!(Verbs::new(site.device()));
        let keys = must!(second.keys(&others, CHAIN));
        let proofs = invalidate(&verbs.queue, &rkeys_of(&keys)?)?;
        check!(proofs.iter().all(Option::is_some));
        end_all(keys, proofs)?;
        drop(batches);
        check!(!verbs.queue.is_broken());
        drop(held);
        check_eq!(memory.pinned(), 0);
        check_eq!(others.pinned(), 0);
        Ok(())
    }

    #[test]
    fn a_bogus_key_in_the_middle_harms_no_other() -> Result {
        const COUNT: usize = 9;
        let site = site!();
        for place in [0, 4, COUNT] {
            let memory = Memory::new(COUNT)?;
            let verbs = must!(Verbs::new(site.device()));
            let keys = must!(verbs.keys(&memory, COUNT));
            let mut ats = KVec::new();
            for key in &keys {
                ats.push(key.at(), GFP_KERNEL)?;
            }
            let mut rkeys = rkeys_of(&keys)?;
            must!(rkeys.push(keys[0].rkey() ^ 0xff, GFP_KERNEL));
            rkeys[place..].rotate_right(1);
            let mut proofs = invalidate(&verbs.queue, &rkeys)?;
            check!(proofs.iter().skip(place).all(Option::is_none), place);
            check!(must!(proofs.remove(place).map_err(|_| EINVAL)).is_none());
            check!(verbs.queue.is_broken());
            end_all(keys, proofs)?;
            check_eq!(memory.pinned(), 0);
            let mut peer = Peer::new(&verbs.pd, PAGE_SIZE)?;
            for &at in &ats {
                check_eq!(must!(peer.read(at, 1)), REFUSED);
            }
        }
        Ok(())
    }

    #[test]
    fn nothing_is_proven_by_a_queue_in_error() -> Result {
        let site = site!();
        let memory = Memory::new(5)?;
        let verbs = must!(Verbs::new(site.device()));
        let keys = must!(verbs.keys(&memory, 5));
        must!(break_silently(&verbs.queue));
        let proofs = invalidate(&verbs.queue, &rkeys_of(&keys)?)?;
        check!(proofs.iter().all(Option::is_none));
        check!(verbs.queue.is_broken());
        check_eq!(memory.pinned(), 5);
        end_all(keys, proofs)?;
        check_eq!(memory.pinned(), 0);
        Ok(())
    }

    #[test]
    fn a_socket_ends_all_its_keys() -> Result {
        for count in [1, CHAIN - 1, CHAIN, CHAIN + 1, 2 * CHAIN + 1] {
            let (site, other) = (site!(), site!());
            let memory = Memory::new(count)?;
            let cookies = must!(other.get_mrs(&memory, count));
            let before = must!(engine(&site));
            drop(other);
            check_eq!(memory.pinned(), 0);
            let mut peer = Peer::of(&site, PAGE_SIZE)?;
            for n in [0, count / 2, count - 1] {
                check_eq!(must!(peer.read(At::from(cookies[n]), 1)), REFUSED);
            }
            check!(Arc::ptr_eq(&before, &must!(engine(&site))), count);
        }
        Ok(())
    }

    #[test]
    fn keys_end_with_an_engine_in_error() -> Result {
        let (site, other) = (site!(), site!());
        let memory = Memory::new(9)?;
        let cookies = must!(other.get_mrs(&memory, 9));
        must!(break_silently(&*engine(&site)?));
        must!(other.free_mr(cookies[0]));
        check_eq!(memory.pinned(), 8);
        drop(other);
        check_eq!(memory.pinned(), 0);
        let mut peer = Peer::of(&site, PAGE_SIZE)?;
        for &cookie in &cookies {
            check_eq!(must!(peer.read(cookie.into(), 1)), REFUSED);
        }
        is_in_order(&memory)
    }

    #[test]
    fn keys_end_with_an_engine_known_to_be_broken() -> Result {
        let (site, other) = (site!(), site!());
        let memory = Memory::new(9)?;
        let cookies = must!(other.get_mrs(&memory, 9));
        let engine = must!(engine(&site));
        invalidate(&engine, &[cookies[0].rkey() ^ 0xff])?;
        check!(engine.is_broken());
        must!(other.free_mr(cookies[0]));
        drop(other);
        check_eq!(memory.pinned(), 0);
        is_in_order(&memory)
    }

    #[test]
    fn get_mr_replaces_an_engine_in_error() -> Result {
        let site = site!();
        let memory = Memory::new(1)?;
        let old = must!(engine(&site));
        must!(break_silently(&old));
        must!(site.get_mr(memory.at(0), PAGE_SIZE, true));
        check!(!Arc::ptr_eq(&old, &must!(engine(&site))));
        check!(eventually(|| old.is_destroyed()));
        is_in_order(&Memory::new(1)?)
    }

    /// With a proof that keeps MRs one comes back under another key; with one
    /// that does not, none comes back at all.
    #[test]
    fn a_key_that_was_free_does_not_come_back() -> Result {
        const LIVES: usize = 300;
        let site = site!();
        let memory = Memory::new(1)?;
        let mut seen = KVec::with_capacity(LIVES, GFP_KERNEL)?;
        let mut reused = 0;
        for _ in 0..LIVES {
            let cookie = must!(site.get_mr(memory.at(0), PAGE_SIZE, true));
            let rkey = cookie.rkey();
            check!(!seen.contains(&rkey), rkey);
            reused += usize::from(seen.iter().any(|&old| old >> 8 == rkey >> 8));
            must!(seen.push(rkey, GFP_KERNEL));
            must!(site.free_mr(cookie));
        }
        check_eq!(reused > 0, site.reuses_mrs());
        Ok(())
    }
}
