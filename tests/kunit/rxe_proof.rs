// SPDX-License-Identifier: GPL-2.0

//! A proof is about one key in one life: it opens no other.
//!
//! Here the proof is an executed LOCAL_INV, which rxe gives as well; that it
//! does not stop what runs there is the write hammer's business.

use crate::kern::ib::Outcome::Success;
use crate::kern::ib::Pd;
use crate::kern::ib::SendQueue;
use crate::keys::Verbs;
use crate::peer::Peer;
use crate::peer::REFUSED;
use crate::policy::key::KeyBytes;
use crate::support::soon_ns;
use crate::support::Memory;
use kernel::alloc::KVec;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

#[kunit_tests(rds_mr_rxe_proof)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_releases_its_key() -> Result {
        let site = site!();
        let memory = Memory::new(1)?;
        let verbs = must!(Verbs::new(site.device()));
        let mut key = must!(verbs.register(verbs.mr()?, &memory, 0, 1));
        check_eq!(memory.pinned(), 1);
        let proof = must!(verbs.invalidate(key.rkey()).ok_or(EIO));
        check_eq!(memory.pinned(), 1);
        check!(key.quiesce(proof)?.is_some());
        check_eq!(memory.pinned(), 0);
        Ok(())
    }

    #[test]
    fn a_proof_does_not_release_another_key() -> Result {
        let site = site!();
        let (a_memory, b_memory) = (Memory::new(1)?, Memory::new(1)?);
        let verbs = must!(Verbs::new(site.device()));
        let mut a = must!(verbs.register(verbs.mr()?, &a_memory, 0, 1));
        let mut b = must!(verbs.register(verbs.mr()?, &b_memory, 0, 1));
        let proof = must!(verbs.invalidate(a.rkey()).ok_or(EIO));
        check!(b.quiesce(proof)?.is_none());
        check_eq!(b_memory.pinned(), 1);
        let mut peer = Peer::new(&verbs.pd, PAGE_SIZE)?;
        check_eq!(must!(peer.write(b.at(), &[1])), Success);
        check_eq!(must!(peer.write(a.at(), &[1])), REFUSED);
        check!(b.deregister());
        check!(a.deregister());
        check_eq!((a_memory.pinned(), b_memory.pinned()), (0, 0));
        Ok(())
    }

    #[test]
    fn a_proof_from_another_pd_is_none() -> Result {
        let site = site!();
        let memory = Memory::new(1)?;
        let verbs = must!(Verbs::new(site.device()));
        let mut key = must!(verbs.register(verbs.mr()?, &memory, 0, 1));
        let pd = must!(Pd::alloc(site.device().ib()));
        let queue = must!(SendQueue::to_self(&pd));
        let mut proof = None;
        queue.invalidate(&[key.rkey()], soon_ns(), |_, found| proof = found);
        // rxe does not ask which PD a LOCAL_INV comes from; others may.
        let proof = or_skip!(proof, c"this HCA refuses keys of other PDs itself");
        check!(key.quiesce(proof)?.is_none());
        check_eq!(memory.pinned(), 1);
        Ok(())
    }

    #[test]
    fn a_proof_of_an_earlier_life_is_none() -> Result {
        let site = site!();
        let memory = Memory::new(2)?;
        let verbs = must!(Verbs::new(site.device()));
        let mut key = must!(verbs.register(verbs.mr()?, &memory, 0, 1));
        let kept = must!(verbs.invalidate(key.rkey()).ok_or(EIO));
        let used = must!(verbs.invalidate(key.rkey()).ok_or(EIO));
        let mr = must!(key.quiesce(used)?.ok_or(EIO));
        let mut next = must!(verbs.register(mr, &memory, 1, 2));
        check!(next.quiesce(kept)?.is_none());
        check_eq!(memory.pinned(), 1);
        let proof = must!(verbs.invalidate(next.rkey()).ok_or(EIO));
        check!(next.quiesce(proof)?.is_some());
        check_eq!(memory.pinned(), 0);
        Ok(())
    }

    #[test]
    fn every_life_of_an_mr_has_another_key() -> Result {
        const LIVES: usize = 12;
        let site = site!();
        let memory = Memory::new(1)?;
        let verbs = must!(Verbs::new(site.device()));
        let mut peer = Peer::new(&verbs.pd, PAGE_SIZE)?;
        let mut bytes = KeyBytes::new(0x1234_5678);
        let mut old = KVec::with_capacity(LIVES, GFP_KERNEL)?;
        let mut mr = verbs.mr()?;
        for _ in 0..LIVES {
            let byte = must!(bytes.next().ok_or(EIO));
            let mut key = must!(verbs.register(mr, &memory, 0, byte));
            let at = key.at();
            check_eq!(must!(peer.read(at, PAGE_SIZE)), Success);
            for &earlier in &old {
                check!(at.rkey != earlier);
                check_eq!(at.rkey >> 8, earlier >> 8);
                let at = crate::peer::At {
                    rkey: earlier,
                    ..at
                };
                check_eq!(must!(peer.read(at, 1)), REFUSED);
            }
            must!(old.push(at.rkey, GFP_KERNEL));
            let proof = must!(verbs.invalidate(at.rkey).ok_or(EIO));
            mr = must!(key.quiesce(proof)?.ok_or(EIO));
            check_eq!(must!(peer.read(at, 1)), REFUSED);
        }
        Ok(())
    }

    #[test]
    fn a_deregistration_is_a_proof() -> Result {
        let site = site!();
        let memory = Memory::new(1)?;
        let verbs = must!(Verbs::new(site.device()));
        let mut key = must!(verbs.register(verbs.mr()?, &memory, 0, 1));
        let at = key.at();
        check!(key.deregister());
        check_eq!(memory.pinned(), 0);
        let mut peer = Peer::new(&verbs.pd, PAGE_SIZE)?;
        check_eq!(must!(peer.write(at, &[1])), REFUSED);
        Ok(())
    }
}
