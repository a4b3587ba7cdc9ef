// SPDX-License-Identifier: GPL-2.0

//! The state machine of a key: no way to an unpin without the proof.

use crate::{
    policy::{
        driver::Proof,
        mr_state::{
            step,
            Action,
            Event,
            State,
            Violation, //
        },
    },
    world::{
        check,
        Answer,
        World,
        EVENTS,
        PROOFS,
        STATES, //
    },
};
use proptest::prelude::*;

/// The table once more, written down as a list. `None` as proof is "whatever the proof".
#[rustfmt::skip]
const TABLE: &[(State, Event, Option<Proof>, State, Action)] = {
    use {Action as A, Event as E, Proof as P, State as S};
    &[
        (S::Registering, E::RegOk, None, S::Live, A::Publish),
        (S::Registering, E::RegFailed, None, S::Deregistering, A::Dereg),
        (S::Registering, E::RegSilent, None, S::Stuck, A::Quarantine),
        (S::Live, E::Revoke, Some(P::Invalidate), S::Invalidating, A::PostInvalidate),
        (S::Live, E::Revoke, Some(P::Dereg), S::Deregistering, A::Dereg),
        (S::Invalidating, E::InvProven, Some(P::Invalidate), S::Dead, A::Release),
        (S::Invalidating, E::InvProven, Some(P::Dereg), S::Deregistering, A::Dereg),
        (S::Invalidating, E::InvUnproven, None, S::Deregistering, A::Dereg),
        (S::Invalidating, E::Revoke, None, S::Invalidating, A::Wait),
        (S::Deregistering, E::DeregProven, None, S::Dead, A::Release),
        (S::Deregistering, E::DeregFailed, None, S::Quarantined, A::Quarantine),
        (S::Deregistering, E::DeregLate, None, S::Leaked, A::Leak),
        (S::Deregistering, E::Revoke, None, S::Deregistering, A::Wait),
        (S::Stuck, E::QpGone, None, S::Deregistering, A::Dereg),
        (S::Stuck, E::Revoke, None, S::Stuck, A::Nothing),
        (S::Stuck, E::Retry, None, S::Stuck, A::Nothing),
        (S::Stuck, E::DeviceGone, None, S::Leaked, A::Leak),
        (S::Quarantined, E::Retry, None, S::Deregistering, A::Dereg),
        (S::Quarantined, E::Revoke, None, S::Deregistering, A::Dereg),
        (S::Quarantined, E::DeviceGone, None, S::Leaked, A::Leak),
        (S::Dead, E::Revoke, None, S::Dead, A::Nothing),
        (S::Dead, E::Retry, None, S::Dead, A::Nothing),
        (S::Dead, E::DeviceGone, None, S::Dead, A::Nothing),
        (S::Dead, E::QpGone, None, S::Dead, A::Nothing),
        (S::Leaked, E::Revoke, None, S::Leaked, A::Nothing),
        (S::Leaked, E::Retry, None, S::Leaked, A::Nothing),
        (S::Leaked, E::DeviceGone, None, S::Leaked, A::Nothing),
        (S::Leaked, E::QpGone, None, S::Leaked, A::Nothing),
    ]
};

/// All cells of the table.
fn cells() -> impl Iterator<Item = (State, Event, Proof)> {
    STATES.iter().flat_map(|&state| {
        let events = EVENTS.iter();
        events.flat_map(move |&event| PROOFS.iter().map(move |&proof| (state, event, proof)))
    })
}

fn is_proof(state: State, event: Event, proof: Proof) -> bool {
    match (state, event) {
        (State::Invalidating, Event::InvProven) => proof == Proof::Invalidate,
        (State::Deregistering, Event::DeregProven) => true,
        _ => false,
    }
}

#[test]
fn every_cell_is_as_written_down() {
    for (state, event, proof) in cells() {
        let row = TABLE.iter().find(|(from, on, with, ..)| {
            *from == state && *on == event && with.is_none_or(|with| with == proof)
        });
        let expected: Answer = match row {
            Some(&(.., next, action)) => Ok((next, action)),
            None => Err(Violation { state, event }),
        };
        assert_eq!(
            step(state, event, proof),
            expected,
            "{state:?} + {event:?} ({proof:?})"
        );
    }
}

#[test]
fn only_a_proof_releases() {
    let mut releases = 0;
    for (state, event, proof) in cells() {
        let Ok((next, action)) = step(state, event, proof) else {
            continue;
        };
        let released = action == Action::Release;
        assert_eq!(
            released,
            is_proof(state, event, proof),
            "{state:?} + {event:?} ({proof:?})"
        );
        let ended = next == State::Dead && state != State::Dead;
        assert_eq!(released, ended, "{state:?} + {event:?} ({proof:?})");
        releases += usize::from(released);
    }
    assert_eq!(releases, 3);
}

#[test]
fn no_history_of_a_key_ends_in_a_wrong_unpin() {
    assert_eq!(check(step), Ok(()));
}

/// Tables as somebody might break them; the same checker must reject each.
#[test]
fn the_checker_rejects_broken_tables() {
    let release = (State::Dead, Action::Release);
    let dereg = (State::Deregistering, Action::Dereg);
    for (state, event, broken) in [
        (State::Invalidating, Event::InvUnproven, release),
        (State::Registering, Event::RegFailed, release),
        (State::Registering, Event::RegSilent, release),
        (State::Registering, Event::RegSilent, dereg),
        (State::Deregistering, Event::DeregFailed, release),
        (State::Deregistering, Event::DeregLate, release),
        (
            State::Deregistering,
            Event::DeregLate,
            (State::Quarantined, Action::Quarantine),
        ),
        (State::Deregistering, Event::Revoke, dereg),
        (State::Stuck, Event::Retry, dereg),
        (State::Stuck, Event::Revoke, dereg),
        (State::Stuck, Event::QpGone, release),
        (State::Stuck, Event::DeviceGone, release),
        (State::Quarantined, Event::DeviceGone, release),
        (State::Live, Event::QpGone, release),
        (State::Dead, Event::Revoke, release),
        (State::Leaked, Event::Retry, dereg),
        (
            State::Registering,
            Event::RegOk,
            (State::Dead, Action::Publish),
        ),
    ] {
        let caught = check(|from, on, proof| {
            if (from, on) == (state, event) {
                Ok(broken)
            } else {
                step(from, on, proof)
            }
        });
        assert!(
            caught.is_err(),
            "{state:?} + {event:?} gives {broken:?} and nobody minds"
        );
    }
}

/// The same for each of the cells in turn: a release there must be noticed.
#[test]
fn the_checker_notices_a_release_in_any_wrong_cell() {
    for cell in cells() {
        let (state, event, proof) = cell;
        let caught = check(|from, on, with| {
            if (from, on, with) == cell {
                Ok((State::Dead, Action::Release))
            } else {
                step(from, on, with)
            }
        });
        assert_eq!(
            caught.is_ok(),
            is_proof(state, event, proof),
            "{cell:?}: {caught:?}"
        );
    }
}

/// A table that refuses what it must take leaves keys behind; that is noticed as well.
#[test]
fn the_checker_notices_a_missing_row() {
    for &(state, event, ..) in TABLE {
        // Without these there is another way out: a second wish, a later one.
        if matches!(
            event,
            Event::Revoke | Event::Retry | Event::QpGone | Event::DeviceGone
        ) {
            continue;
        }
        let caught = check(|from, on, proof| {
            if (from, on) == (state, event) {
                Err(Violation { state, event })
            } else {
                step(from, on, proof)
            }
        });
        assert!(caught.is_err(), "{state:?} without {event:?}");
    }
}

#[test]
fn states_say_who_holds_pages_and_who_works() {
    let holding: Vec<State> = STATES
        .iter()
        .copied()
        .filter(|state| state.holds_pages())
        .collect();
    assert_eq!(holding.len(), STATES.len() - 1);
    assert!(!holding.contains(&State::Dead));
    let busy: Vec<State> = STATES
        .iter()
        .copied()
        .filter(|state| !state.is_settled())
        .collect();
    assert_eq!(
        busy,
        [
            State::Registering,
            State::Invalidating,
            State::Deregistering
        ]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// Long random histories, judged by what they contain and not by the model of the world.
    #[test]
    fn random_histories_release_once_and_after_a_proof(
        proof in prop::sample::select(PROOFS),
        events in prop::collection::vec(prop::sample::select(EVENTS), 1..200),
    ) {
        let mut state = State::Registering;
        let mut world = World::REGISTERING;
        let mut silent = false;
        let mut released = 0;
        for event in events {
            let answer = step(state, event, proof);
            let advanced = world.advance(state, event, proof, answer);
            prop_assert!(advanced.is_ok(), "{:?}", advanced);
            (_, world) = advanced.unwrap();
            let Ok((next, action)) = answer else { continue };
            silent = event == Event::RegSilent || (silent && event != Event::QpGone);
            if action == Action::Release {
                released += 1;
                prop_assert!(is_proof(state, event, proof));
            }
            prop_assert!(!silent || !matches!(action, Action::Release | Action::Dereg));
            prop_assert!(released <= 1);
            prop_assert_eq!(next.holds_pages(), released == 0);
            state = next;
        }
    }
}
