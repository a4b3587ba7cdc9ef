// SPDX-License-Identifier: GPL-2.0

//! A gate: many may be inside, until somebody closes it and waits them out.

use kernel::new_condvar;
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::CondVar;
use kernel::sync::SpinLock;

struct State {
    open: bool,
    inside: usize,
}

/// Guards the use of something that can go away while the callers sleep.
///
/// A [`Pass`] must never be held across pinning or a copy to or from user
/// space: those can take for ever, and closing would take as long.
#[pin_data]
pub(crate) struct Gate {
    #[pin]
    state: SpinLock<State>,
    #[pin]
    left: CondVar,
}

impl Gate {
    /// A gate that is open.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state <- new_spinlock!(State { open: true, inside: 0 }, "Gate::state"),
            left <- new_condvar!("Gate::left"),
        })
    }

    /// Go in, unless the gate is closed. Never sleeps.
    pub(crate) fn enter(&self) -> Option<Pass<'_>> {
        let mut state = self.state.lock();
        if !state.open {
            return None;
        }
        // OVERFLOW: One per task inside; tasks are far fewer than `usize::MAX`.
        state.inside = state.inside.saturating_add(1);
        Some(Pass { gate: self })
    }

    /// Close, and wait until all have left: as long as their deadlines, and the
    /// calls that drivers have in hand, take. Idempotent.
    pub(crate) fn close_and_wait(&self) {
        let mut state = self.state.lock();
        state.open = false;
        while state.inside > 0 {
            self.left.wait(&mut state);
        }
    }
}

/// Proof of being inside a [`Gate`]. Neither taking nor dropping it sleeps.
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        state.inside = state.inside.saturating_sub(1);
        if state.inside == 0 && !state.open {
            self.gate.left.notify_all();
        }
    }
}
