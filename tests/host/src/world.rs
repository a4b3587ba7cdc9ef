// SPDX-License-Identifier: GPL-2.0

//! A key at its HCA, and a check that a table of transitions does it no wrong.
//!
//! The world keeps what is true, the table acts on what it was told. The checker walks through
//! everything that can happen to a key and compares: whenever the table permits an unpin, no
//! work request may be about to run and no access may be possible. It takes any table, so that
//! the tests can also show that it rejects broken ones.

use crate::policy::{
    driver::Proof,
    mr_state::{
        Action,
        Event,
        State,
        Violation, //
    },
};

/// All variants of an enumeration; one that is missing here does not compile.
macro_rules! all {
    ($name:ident: $type:ident { $($variant:ident),* $(,)? }) => {
        pub(crate) const $name: &[$type] = {
            const fn _complete(value: $type) {
                match value { $($type::$variant => ()),* }
            }
            &[$($type::$variant),*]
        };
    };
}

all!(STATES: State {
    Registering, Live, Invalidating, Deregistering, Stuck, Quarantined, Dead, Leaked,
});
all!(EVENTS: Event {
    RegOk, RegFailed, RegSilent, Revoke, InvProven, InvUnproven, DeregProven, DeregFailed,
    DeregLate, QpGone, Retry, DeviceGone,
});
all!(PROOFS: Proof { Invalidate, Dereg });

/// What a table answers.
pub(crate) type Answer = Result<(State, Action), Violation>;

/// What somebody is doing to the key right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Register,
    Invalidate,
    Deregister,
}

/// Returns the work that ends with `event`; a wish comes from elsewhere and ends none.
fn reported_by(event: Event) -> Option<Work> {
    match event {
        Event::RegOk | Event::RegFailed | Event::RegSilent => Some(Work::Register),
        Event::InvProven | Event::InvUnproven => Some(Work::Invalidate),
        Event::DeregProven | Event::DeregFailed | Event::DeregLate => Some(Work::Deregister),
        Event::Revoke | Event::QpGone | Event::Retry | Event::DeviceGone => None,
    }
}

/// The truth about one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct World {
    work: Option<Work>,
    /// A `REG_MR` that refers to the region may still run.
    reg_may_run: bool,
    /// The HCA may read or write the pages.
    may_access: bool,
    /// The memory region exists.
    region: bool,
    /// The pages are pinned.
    pinned: bool,
}

impl World {
    /// A key whose `REG_MR` was just posted. Pages count as reachable from here on.
    pub(crate) const REGISTERING: Self = Self {
        work: Some(Work::Register),
        reg_may_run: true,
        may_access: true,
        region: true,
        pinned: true,
    };

    /// A live key whose `LOCAL_INV` was just posted.
    const INVALIDATING: Self = Self {
        work: Some(Work::Invalidate),
        reg_may_run: false,
        ..Self::REGISTERING
    };

    /// Returns whether `event` can come now: a report only of what was started, a wish always.
    fn can(&self, event: Event) -> bool {
        let reports = reported_by(event);
        reports.is_none() || reports == self.work
    }

    /// Makes `event` true.
    fn happen(&mut self, event: Event, proof: Proof) {
        if reported_by(event).is_some() {
            self.work = None;
        }
        match event {
            Event::RegOk | Event::RegFailed | Event::QpGone => self.reg_may_run = false,
            // A software responder may be in the middle of a copy.
            Event::InvProven => self.may_access &= proof == Proof::Dereg,
            Event::DeregProven => {
                self.may_access = false;
                self.region = false;
            }
            Event::DeregLate => self.region = false,
            Event::RegSilent | Event::InvUnproven | Event::DeregFailed => {}
            Event::Revoke | Event::Retry | Event::DeviceGone => {}
        }
    }

    /// Carries out `action`, or says why that is wrong.
    fn carry_out(&mut self, action: Action, event: Event) -> Result<(), &'static str> {
        let free = self.work.is_none() && self.region && !self.reg_may_run;
        let right = match action {
            Action::Nothing => true,
            Action::Publish => event == Event::RegOk,
            Action::PostInvalidate | Action::Dereg => free,
            Action::Release => self.pinned && self.work.is_none() && !self.may_access,
            Action::Quarantine | Action::Leak => self.pinned && self.work.is_none(),
            Action::Wait => self.work.is_some(),
        };
        if !right {
            return Err("the action is wrong here");
        }
        match action {
            Action::PostInvalidate => self.work = Some(Work::Invalidate),
            Action::Dereg => self.work = Some(Work::Deregister),
            Action::Release => self.pinned = false,
            _ => {}
        }
        Ok(())
    }

    /// Tells whether a state describes this world.
    fn is_described_by(&self, state: State) -> bool {
        state.holds_pages() == self.pinned && state.is_settled() == self.work.is_none()
    }

    /// Lets `event` happen, takes the table's answer and returns where that leads.
    pub(crate) fn advance(
        mut self,
        state: State,
        event: Event,
        proof: Proof,
        answer: Answer,
    ) -> Result<(State, Self), String> {
        let wrong = |why: &str| Err(format!("{state:?} + {event:?} ({proof:?}): {why}"));
        let Ok((next, action)) = answer else {
            return match reported_by(event) {
                Some(_) if self.can(event) => wrong("a report is refused"),
                _ => Ok((state, self)),
            };
        };
        if !self.can(event) {
            return wrong("took what cannot have happened");
        }
        self.happen(event, proof);
        if let Err(why) = self.carry_out(action, event) {
            return wrong(why);
        }
        if !self.is_described_by(next) {
            return wrong("the next state does not describe what is");
        }
        Ok((next, self))
    }
}

/// What a key is taken for, and what it is.
type Node = (State, World);

/// Walks through everything that can happen and returns the first wrong.
pub(crate) fn check(step: impl Fn(State, Event, Proof) -> Answer) -> Result<(), String> {
    for &proof in PROOFS {
        // The second start is not reached with `Proof::Dereg`, but must be safe all the same:
        // a key may have been sent on its way under another rule.
        let mut todo: Vec<Node> = vec![
            (State::Registering, World::REGISTERING),
            (State::Invalidating, World::INVALIDATING),
        ];
        let mut graph: Vec<(Node, Vec<Node>)> = Vec::new();
        while let Some(node) = todo.pop() {
            if graph.iter().any(|(known, _)| *known == node) {
                continue;
            }
            let (state, world) = node;
            let mut next = Vec::new();
            for &event in EVENTS {
                next.push(world.advance(state, event, proof, step(state, event, proof))?);
            }
            todo.extend(&next);
            graph.push((node, next));
        }
        check_ends(&graph)?;
    }
    Ok(())
}

/// Checks that each key can still be freed, unless it is leaked, and that ends are final.
fn check_ends(graph: &[(Node, Vec<Node>)]) -> Result<(), String> {
    let mut freed: Vec<Node> = Vec::new();
    loop {
        let before = freed.len();
        for (node, next) in graph {
            let ends = node.0 == State::Dead || next.iter().any(|to| freed.contains(to));
            if ends && !freed.contains(node) {
                freed.push(*node);
            }
        }
        if freed.len() == before {
            break;
        }
    }
    for (node, next) in graph {
        let (state, _) = node;
        if matches!(state, State::Dead | State::Leaked) && next.iter().any(|(to, _)| to != state) {
            return Err(format!("{state:?} is not the end"));
        }
        if *state != State::Leaked && !freed.contains(node) {
            return Err(format!("no way to free from {node:?}"));
        }
    }
    Ok(())
}
