// SPDX-License-Identifier: GPL-2.0

//! The queue that registers keys is no way in: its QP is in the PD of every key
//! and lives for long, so it must take no requests from anybody.

use crate::kern::ib::qp::Remote;
use crate::kern::ib::Outcome;
use crate::kern::ib::Route;
use crate::kern::ib::SendQueue;
use crate::kern::time;
use crate::keys::Key;
use crate::keys::Verbs;
use crate::peer::Buffer;
use crate::peer::Peer;
use crate::peer::NO_SUCH_REQUEST;
use crate::raw::QpView;
use crate::support::eventually;
use crate::support::Memory;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::Arc;

/// How long a requester whose answers go elsewhere is listened to.
const ANSWER_NS: u64 = 200_000_000;

fn view(queue: &SendQueue) -> Result<QpView> {
    queue.with_qp(QpView::of).ok_or(ENODEV)?
}

/// A queue like that of the device, but open to the world.
fn open_to_self(verbs: &Verbs<'_>) -> Result<Arc<SendQueue>> {
    let queue = SendQueue::unconnected(&verbs.pd)?;
    let route = Route::find(verbs.pd.device())?;
    queue
        .with_qp(|qp| qp.connect(&route, qp.number(), 77, 77, Remote::ReadWrite))
        .ok_or(ENODEV)??;
    Ok(queue)
}

/// Send one RDMA to the QP of `victim`, with the PSN that it waits for, as one
/// who guessed it would. The answer goes to whom the victim is connected to.
fn attack(verbs: &Verbs<'_>, victim: &SendQueue, write: bool, key: &Key) -> Result<Outcome> {
    let mut buffer = Buffer::new(verbs.pd.device(), PAGE_SIZE)?;
    buffer.bytes().fill(0x66);
    let attacker = SendQueue::unconnected(&verbs.pd)?;
    let route = Route::find(verbs.pd.device())?;
    let number = victim.with_qp(|qp| qp.number()).ok_or(ENODEV)?;
    let psn = view(victim)?.rq_psn;
    attacker
        .with_qp(|qp| qp.connect(&route, number, psn, 0, Remote::Nothing))
        .ok_or(ENODEV)??;
    let wr = [buffer.rdma(&verbs.pd, write, 8, key.at())?];
    let end = time::now_ns().saturating_add(ANSWER_NS);
    // SAFETY: The buffer is dropped after the queue.
    let batch = unsafe { attacker.post(&wr, end) }?;
    batch.wait(end);
    Ok(batch.outcome(0))
}

#[kunit_tests(rds_mr_rxe_isolation)]
mod tests {
    use super::*;

    /// The attack is a real one: who is open to it gets hit.
    #[test]
    fn an_open_queue_would_be_hit() -> Result {
        let site = site!();
        let memory = Memory::new(1)?;
        let verbs = must!(Verbs::new(site.device()));
        let key = must!(verbs.register(verbs.mr()?, &memory, 0, 1));
        let open = must!(open_to_self(&verbs));
        must!(attack(&verbs, &open, true, &key));
        check!(eventually(|| memory.is_all(0, 8, 0x66) == Ok(true)));
        let psn = must!(view(&open)).rq_psn;
        must!(attack(&verbs, &open, false, &key));
        check!(eventually(|| view(&open).is_ok_and(|now| now.rq_psn != psn)));
        check!(!view(&open)?.is_in_error());
        Ok(())
    }

    #[test]
    fn the_engine_takes_no_writes() -> Result {
        let site = site!();
        let memory = Memory::new(1)?;
        let verbs = must!(Verbs::new(site.device()));
        let key = must!(verbs.register(verbs.mr()?, &memory, 0, 1));
        let engine = must!(site.device().queue(&site.device().enter()?));
        check_eq!(must!(view(&engine)).access, 0);
        check!(must!(attack(&verbs, &engine, true, &key)) != Outcome::Success);
        // rxe ends a QP that was asked for what it does not allow.
        check!(eventually(
            || view(&engine).is_ok_and(|now| now.is_in_error())
        ));
        check!(memory.is_all(0, PAGE_SIZE, 0)?);
        Ok(())
    }

    #[test]
    fn the_engine_takes_no_reads() -> Result {
        let site = site!();
        let memory = Memory::new(1)?;
        let verbs = must!(Verbs::new(site.device()));
        let key = must!(verbs.register(verbs.mr()?, &memory, 0, 1));
        // The one before may be in error.
        let cookie = must!(site.get_mr(memory.at(0), 1, false));
        let engine = must!(site.device().queue(&site.device().enter()?));
        check!(!view(&engine)?.is_in_error());
        check!(must!(attack(&verbs, &engine, false, &key)) != Outcome::Success);
        check!(eventually(
            || view(&engine).is_ok_and(|now| now.is_in_error())
        ));
        // And the module gets over it.
        must!(site.free_mr(cookie));
        must!(site.get_mr(memory.at(0), 1, false));
        Ok(())
    }

    #[test]
    fn packet_numbers_are_not_those_of_the_last_queue() -> Result {
        let site = site!();
        let verbs = must!(Verbs::new(site.device()));
        let first = must!(view(&verbs.queue)).rq_psn;
        let mut same = 0;
        for _ in 0..4 {
            let other = must!(SendQueue::to_self(&verbs.pd));
            same += u32::from(must!(view(&other)).rq_psn == first);
        }
        check!(same < 4, first);
        Ok(())
    }

    #[test]
    fn a_queue_gives_what_it_was_made_to_give() -> Result {
        let site = site!();
        let memory = Memory::new(1)?;
        let verbs = must!(Verbs::new(site.device()));
        let key = must!(verbs.register(verbs.mr()?, &memory, 0, 1));
        for (remote, read, write) in [
            (Remote::Nothing, NO_SUCH_REQUEST, NO_SUCH_REQUEST),
            (Remote::Read, Outcome::Success, NO_SUCH_REQUEST),
            (Remote::ReadWrite, Outcome::Success, Outcome::Success),
        ] {
            must!(memory.fill(0));
            let mut peer = must!(Peer::with_rights(&verbs.pd, PAGE_SIZE, remote));
            check_eq!(must!(peer.read(key.at(), PAGE_SIZE)), read);
            check_eq!(must!(peer.write(key.at(), &[0x31])), write);
            let written = u8::from(write == Outcome::Success) * 0x31;
            check!(memory.is_all(0, 1, written)?);
        }
        Ok(())
    }
}
