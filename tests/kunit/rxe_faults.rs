// SPDX-License-Identifier: GPL-2.0

//! Verbs that fail: nothing is let go on hope, and nothing is left behind.

use crate::fault::Fault;
use crate::kern::ib::Outcome::Success;
use crate::keys::end_all;
use crate::keys::invalidate;
use crate::keys::rkeys_of;
use crate::keys::Verbs;
use crate::peer::Peer;
use crate::peer::REFUSED;
use crate::policy::quota::Limits;
use crate::raw::Armed;
use crate::support::eventually;
use crate::support::Memory;
use crate::support::Site;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::time::delay::fsleep;
use kernel::time::Delta;

/// More often than anything is tried.
const ALWAYS: u32 = 1_000_000;

/// Let this socket have one key at a time: who leaves a charge behind cannot
/// get another one.
fn allow_one_key(site: &Site) -> Result {
    site.socket().account().change_limits(|_| {
        Ok(Limits {
            keys: 1,
            pages: u64::MAX,
        })
    })
}

/// GET_MR fails with EIO, and it is as if it had not been called.
fn fails_and_leaves_nothing(fault: Fault) -> Result {
    let site = site!();
    allow_one_key(&site)?;
    let memory = Memory::new(3)?;
    for _ in 0..3 {
        let armed = Armed::new(fault, ALWAYS, 0);
        let result = site.get_mr(memory.at(0), 3 * PAGE_SIZE, true);
        drop(armed);
        check_eq!(result, Err(EIO));
        check_eq!(memory.pinned(), 0);
        check_eq!(site.socket().keys().iter().count(), 0);
        check_eq!(site.device().keys().iter().count(), 0);
    }
    let cookie = must!(site.get_mr(memory.at(0), 3 * PAGE_SIZE, true));
    check_eq!(site.get_mr(memory.at(0), 1, true), Err(EAGAIN));
    must!(site.free_mr(cookie));
    Ok(())
}

/// Nothing ends a key: it cannot be invalidated, nor deregistered.
fn nothing_works() -> (Armed, Armed) {
    (
        Armed::new(Fault::Dereg, ALWAYS, 0),
        Armed::new(Fault::PostCut, ALWAYS, 0),
    )
}

#[kunit_tests(rds_mr_rxe_faults)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_that_is_posted_in_part_proves_that_part() -> Result {
        const COUNT: usize = 9;
        let site = site!();
        for posted in [0, 1, 5, COUNT - 1] {
            let memory = Memory::new(COUNT)?;
            let verbs = must!(Verbs::new(site.device()));
            let keys = must!(verbs.keys(&memory, COUNT));
            let armed = Armed::new(Fault::PostCut, 1, posted as u32);
            let proofs = invalidate(&verbs.queue, &rkeys_of(&keys)?)?;
            drop(armed);
            for (n, proof) in proofs.iter().enumerate() {
                check_eq!(proof.is_some(), n < posted);
            }
            check!(verbs.queue.is_broken());
            end_all(keys, proofs)?;
            check_eq!(memory.pinned(), 0);
        }
        Ok(())
    }

    #[test]
    fn a_socket_whose_chain_is_cut_ends_all_its_keys() -> Result {
        let (site, other) = (site!(), site!());
        let memory = Memory::new(9)?;
        let cookies = must!(other.get_mrs(&memory, 9));
        let armed = Armed::new(Fault::PostCut, 1, 4);
        drop(other);
        drop(armed);
        check_eq!(memory.pinned(), 0);
        let mut peer = Peer::of(&site, PAGE_SIZE)?;
        for &cookie in &cookies {
            check_eq!(must!(peer.read(cookie.into(), 1)), REFUSED);
        }
        Ok(())
    }

    #[test]
    fn get_mr_tries_again_when_a_post_is_refused() -> Result {
        let site = site!();
        let memory = Memory::new(1)?;
        let armed = Armed::new(Fault::PostCut, 1, 0);
        let cookie = must!(site.get_mr(memory.at(0), PAGE_SIZE, true));
        drop(armed);
        let mut peer = Peer::of(&site, PAGE_SIZE)?;
        check_eq!(must!(peer.read(cookie.into(), 1)), Success);
        Ok(())
    }

    #[test]
    fn get_mr_fails_clean_when_posts_are_refused() -> Result {
        fails_and_leaves_nothing(Fault::PostCut)
    }

    #[test]
    fn get_mr_fails_clean_when_the_mapping_is_short() -> Result {
        fails_and_leaves_nothing(Fault::MapShort)
    }

    #[test]
    fn get_mr_fails_clean_when_dma_mapping_fails() -> Result {
        fails_and_leaves_nothing(Fault::DmaMap)
    }

    /// The one failure of GET_MR that leaves something: the WR may still run, as
    /// long as its queue exists. Until then not even the MR may go.
    #[test]
    fn a_silent_registration_is_quarantined_until_its_queue_is_gone() -> Result {
        let (site, other) = (site!(), site!());
        allow_one_key(&site)?;
        let memory = Memory::new(2)?;
        let queue = must!(site.device().queue(&site.device().enter()?));
        // While we are at its QP, the queue cannot be destroyed.
        let (silent, early, others, later, next) = must!(queue
            .with_qp(|_| {
                let armed = Armed::new(Fault::PostLost, 1, 0);
                let silent = site.get_mr(memory.at(0), PAGE_SIZE, true);
                drop(armed);
                let early = (memory.pinned(), site.quarantined());
                // Gets a new queue.
                let others = other.get_mr(memory.at(PAGE_SIZE), PAGE_SIZE, true);
                // What is quarantined is tried again every second.
                fsleep(Delta::from_millis(2500));
                let later = (memory.pinned(), site.quarantined());
                let next = site.get_mr(memory.at(0), PAGE_SIZE, true);
                (silent, early, others, later, next)
            })
            .ok_or(ENODEV));
        check_eq!(silent, Err(EIO));
        check_eq!(early, (1, 1));
        must!(others);
        check_eq!(later, (2, 1));
        check_eq!(next, Err(EAGAIN));
        check!(eventually(|| site.quarantined() == 0));
        check!(eventually(|| memory.pinned() == 1));
        check!(queue.is_destroyed());
        // The quota is given back when the pages are.
        check!(eventually(|| site
            .get_mr(memory.at(0), PAGE_SIZE, true)
            .is_ok()));
        Ok(())
    }

    #[test]
    fn a_key_without_proof_is_not_free() -> Result {
        let site = site!();
        allow_one_key(&site)?;
        let memory = Memory::new(1)?;
        let cookie = must!(site.get_mr(memory.at(0), PAGE_SIZE, true));
        let armed = nothing_works();
        check_eq!(site.free_mr(cookie), Err(EIO));
        check_eq!(site.free_mr(cookie), Err(EIO));
        let (pinned, quarantined) = (memory.pinned(), site.quarantined());
        drop(armed);
        check_eq!((pinned, quarantined), (1, 1));
        must!(site.free_mr(cookie));
        check_eq!((memory.pinned(), site.quarantined()), (0, 0));
        let mut peer = Peer::of(&site, PAGE_SIZE)?;
        check_eq!(must!(peer.read(cookie.into(), 1)), REFUSED);
        must!(site.get_mr(memory.at(0), PAGE_SIZE, true));
        Ok(())
    }

    #[test]
    fn keys_of_a_closed_socket_stay_pinned_until_they_are_proven_dead() -> Result {
        let (site, other) = (site!(), site!());
        let memory = Memory::new(5)?;
        let cookies = must!(other.get_mrs(&memory, 5));
        let armed = nothing_works();
        drop(other);
        let (pinned, quarantined) = (memory.pinned(), site.quarantined());
        drop(armed);
        check_eq!((pinned, quarantined), (5, 5));
        check!(eventually(|| site.quarantined() == 0));
        check!(eventually(|| memory.pinned() == 0));
        let mut peer = Peer::of(&site, PAGE_SIZE)?;
        for &cookie in &cookies {
            check_eq!(must!(peer.read(cookie.into(), 1)), REFUSED);
        }
        Ok(())
    }

    /// Longer than a socket may take to close, and so many that they cannot have
    /// ended one after the other, nor a few at a time, when they must.
    #[test]
    fn a_driver_that_takes_its_time_does_not_hold_up_a_close() -> Result {
        const COUNT: usize = 24;
        let (site, other) = (site!(), site!());
        let memory = Memory::new(COUNT)?;
        must!(other.get_mrs(&memory, COUNT));
        let armed = (
            Armed::new(Fault::DeregSlow, ALWAYS, 12_000),
            Armed::new(Fault::PostCut, ALWAYS, 0),
        );
        drop(other);
        let pinned = memory.pinned();
        let ended = eventually(|| memory.pinned() == 0);
        drop(armed);
        check_eq!(pinned, COUNT);
        check!(ended);
        // The pages are back a moment before the key is taken off the list.
        check!(eventually(|| site.device().keys().iter().next().is_none()));
        Ok(())
    }
}
