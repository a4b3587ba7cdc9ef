// SPDX-License-Identifier: GPL-2.0

//! The gate: who is inside stays, nobody comes in any more, and closing waits.

use crate::kern::gate::Gate;
use crate::kern::time::now_ns;
use crate::kern::time::Completion;
use crate::kern::wq::OwnedQueue;
use crate::support::eventually;
use crate::support::soon_ns;
use kernel::prelude::*;
use kernel::sync::atomic::Acquire;
use kernel::sync::atomic::Atomic;
use kernel::sync::atomic::Relaxed;
use kernel::sync::atomic::Release;
use kernel::sync::Arc;
use kernel::time::delay::fsleep;
use kernel::time::Delta;

/// A limit for what takes microseconds, in nanoseconds.
const LONG: u64 = 20_000_000_000;
/// For others to get ahead if nothing holds them, in milliseconds.
const A_MOMENT: i64 = 50;

/// What a test and its workers share.
#[pin_data]
struct Scene {
    #[pin]
    gate: Gate,
    #[pin]
    entered: Completion,
    #[pin]
    closed: Completion,
    inside: Atomic<i32>,
    passes: Atomic<i32>,
    left: Atomic<bool>,
}

impl Scene {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                gate <- Gate::new(),
                entered <- Completion::new(),
                closed <- Completion::new(),
                inside: Atomic::new(0),
                passes: Atomic::new(0),
                left: Atomic::new(false),
            }),
            GFP_KERNEL,
        )
    }

    fn is_closed(&self) -> bool {
        self.gate.enter().is_none()
    }
}

fn a_moment() {
    fsleep(Delta::from_millis(A_MOMENT));
}

#[kunit_tests(rds_mr_kern_gate)]
mod tests {
    use super::*;

    #[test]
    fn many_may_be_inside() -> Result {
        let scene = Scene::new()?;
        let passes = (scene.gate.enter(), scene.gate.enter(), scene.gate.enter());
        check!(passes.0.is_some() && passes.1.is_some() && passes.2.is_some());
        Ok(())
    }

    #[test]
    fn an_empty_gate_closes_at_once_and_for_good() -> Result {
        let scene = Scene::new()?;
        drop(scene.gate.enter());
        check!(!scene.is_closed());
        for _ in 0..2 {
            scene.gate.close_and_wait();
            check!(scene.is_closed());
        }
        Ok(())
    }

    /// The worker closes, and we are inside.
    #[test]
    fn closing_waits_for_the_last_pass() -> Result {
        let scene = Scene::new()?;
        let worker = OwnedQueue::new(c"rds_mr_gate", 1)?;
        let (first, last) = (scene.gate.enter(), scene.gate.enter());
        let theirs = scene.clone();
        must!(worker.queue().try_spawn(GFP_KERNEL, move || {
            theirs.gate.close_and_wait();
            theirs.closed.complete_all();
        }));
        let closing = eventually(|| scene.is_closed());
        drop(first);
        a_moment();
        let early = scene.closed.wait_ns(0);
        drop(last);
        let closed = scene.closed.wait_ns(LONG);
        check!(closing);
        check!(!early);
        check!(closed);
        Ok(())
    }

    /// We close, and the worker is inside.
    #[test]
    fn closing_waits_for_a_worker() -> Result {
        let scene = Scene::new()?;
        let worker = OwnedQueue::new(c"rds_mr_gate", 1)?;
        let theirs = scene.clone();
        must!(worker.queue().try_spawn(GFP_KERNEL, move || {
            let pass = theirs.gate.enter();
            theirs.entered.complete_all();
            eventually(|| theirs.is_closed());
            a_moment();
            theirs.left.store(true, Release);
            drop(pass);
        }));
        check!(scene.entered.wait_ns(LONG));
        scene.gate.close_and_wait();
        check!(scene.left.load(Acquire));
        Ok(())
    }

    /// Whoever was let in has left when closing returns, also in a crowd.
    #[test]
    fn a_crowd_is_waited_out() -> Result {
        const CROWD: i32 = 4;
        let scene = Scene::new()?;
        let workers = OwnedQueue::new(c"rds_mr_gate", CROWD)?;
        for _ in 0..CROWD {
            let theirs = scene.clone();
            let end = soon_ns();
            must!(workers.queue().try_spawn(GFP_KERNEL, move || {
                while let (Some(pass), true) = (theirs.gate.enter(), now_ns() < end) {
                    theirs.inside.add(1, Relaxed);
                    fsleep(Delta::from_micros(100));
                    theirs.inside.fetch_sub(1, Release);
                    theirs.passes.add(1, Relaxed);
                    drop(pass);
                }
            }));
        }
        let busy = eventually(|| scene.passes.load(Relaxed) >= 100);
        scene.gate.close_and_wait();
        let (inside, passes) = (scene.inside.load(Acquire), scene.passes.load(Relaxed));
        // Joins them.
        drop(workers);
        check!(busy);
        check_eq!(inside, 0);
        check_eq!(scene.passes.load(Relaxed), passes);
        Ok(())
    }
}
