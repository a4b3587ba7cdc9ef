// SPDX-License-Identifier: GPL-2.0

//! The state machine of a key, inside the kernel: the whole table, cell by cell.

use crate::policy::{
    driver::Proof,
    mr_state::{
        step,
        Action,
        Event,
        State,
        Violation, //
    },
};
use kernel::prelude::*;

#[kunit_tests(rds_mr_policy_state)]
mod tests {
    use super::*;

    const STATES: [State; 8] = [
        State::Registering,
        State::Live,
        State::Invalidating,
        State::Deregistering,
        State::Stuck,
        State::Quarantined,
        State::Dead,
        State::Leaked,
    ];
    const EVENTS: [Event; 12] = [
        Event::RegOk,
        Event::RegFailed,
        Event::RegSilent,
        Event::Revoke,
        Event::InvProven,
        Event::InvUnproven,
        Event::DeregProven,
        Event::DeregFailed,
        Event::DeregLate,
        Event::QpGone,
        Event::Retry,
        Event::DeviceGone,
    ];
    const PROOFS: [Proof; 2] = [Proof::Invalidate, Proof::Dereg];

    /// Goes through a history and returns where it ends.
    fn history(proof: Proof, events: &[Event]) -> Result<(State, Action), Violation> {
        let mut at = (State::Registering, Action::Nothing);
        for &event in events {
            at = step(at.0, event, proof)?;
        }
        Ok(at)
    }

    #[test]
    fn only_a_proof_releases() {
        let mut releases = 0;
        for state in STATES {
            for event in EVENTS {
                for proof in PROOFS {
                    let proven = match (state, event) {
                        (State::Invalidating, Event::InvProven) => proof == Proof::Invalidate,
                        (State::Deregistering, Event::DeregProven) => true,
                        _ => false,
                    };
                    let release = step(state, event, proof) == Ok((State::Dead, Action::Release));
                    assert_eq!(release, proven);
                    releases += i32::from(release);
                }
            }
        }
        assert_eq!(releases, 3);
    }

    #[test]
    fn dead_is_reached_by_release_only() {
        for state in STATES {
            for event in EVENTS {
                for proof in PROOFS {
                    if let Ok((next, action)) = step(state, event, proof) {
                        let dies = next == State::Dead && state != State::Dead;
                        assert_eq!(dies, action == Action::Release);
                        assert_eq!(next.holds_pages(), next != State::Dead);
                    }
                }
            }
        }
    }

    #[test]
    fn ends_are_final() {
        for state in [State::Dead, State::Leaked] {
            for event in EVENTS {
                for proof in PROOFS {
                    let expected = match event {
                        Event::Revoke | Event::Retry | Event::DeviceGone | Event::QpGone => {
                            Ok((state, Action::Nothing))
                        }
                        _ => Err(Violation { state, event }),
                    };
                    assert_eq!(step(state, event, proof), expected);
                }
            }
        }
    }

    #[test]
    fn a_stuck_key_waits_for_its_queue() {
        for event in EVENTS {
            for proof in PROOFS {
                let expected = match event {
                    Event::QpGone => Ok((State::Deregistering, Action::Dereg)),
                    Event::Revoke | Event::Retry => Ok((State::Stuck, Action::Nothing)),
                    Event::DeviceGone => Ok((State::Leaked, Action::Leak)),
                    _ => Err(Violation {
                        state: State::Stuck,
                        event,
                    }),
                };
                assert_eq!(step(State::Stuck, event, proof), expected);
            }
        }
    }

    #[test]
    fn the_straight_ways() {
        use Event::*;
        let dead = Ok((State::Dead, Action::Release));
        assert_eq!(
            history(Proof::Invalidate, &[RegOk, Revoke, InvProven]),
            dead
        );
        assert_eq!(history(Proof::Dereg, &[RegOk, Revoke, DeregProven]), dead);
        assert_eq!(history(Proof::Invalidate, &[RegFailed, DeregProven]), dead);
    }

    #[test]
    fn the_crooked_ways() {
        use Event::*;
        let dead = Ok((State::Dead, Action::Release));
        let leaked = Ok((State::Leaked, Action::Leak));
        let inv = Proof::Invalidate;
        assert_eq!(
            history(inv, &[RegOk, Revoke, InvUnproven, DeregProven]),
            dead
        );
        assert_eq!(
            history(inv, &[RegSilent, Revoke, Retry, QpGone, DeregProven]),
            dead
        );
        assert_eq!(
            history(
                Proof::Dereg,
                &[
                    RegOk,
                    Revoke,
                    DeregFailed,
                    Retry,
                    DeregFailed,
                    Revoke,
                    DeregProven
                ]
            ),
            dead
        );
        assert_eq!(history(Proof::Dereg, &[RegOk, Revoke, DeregLate]), leaked);
        assert_eq!(history(inv, &[RegSilent, DeviceGone]), leaked);
        assert_eq!(
            history(inv, &[RegOk, Revoke, InvUnproven, DeregFailed, DeviceGone]),
            leaked
        );
    }

    #[test]
    fn who_comes_second_waits() {
        for (state, settled) in [
            (State::Invalidating, false),
            (State::Deregistering, false),
            (State::Live, true),
            (State::Stuck, true),
            (State::Quarantined, true),
            (State::Dead, true),
            (State::Leaked, true),
        ] {
            assert_eq!(state.is_settled(), settled);
            for proof in PROOFS {
                let waits = step(state, Event::Revoke, proof) == Ok((state, Action::Wait));
                assert_eq!(waits, !settled);
            }
        }
        assert!(!State::Registering.is_settled());
    }
}
