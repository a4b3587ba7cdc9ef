// SPDX-License-Identifier: GPL-2.0
//! What happens to the workers from outside, and when: follows from the seed.

use rdsmr::rng::Rng;
use rdsmr::Fault;

/// Where a verb fails; the names are those of the module's functions.
pub const POINTS: &[&str] = &[
    "rds_mr_helper_post_send",
    "rds_mr_helper_dereg_mr",
    "rds_mr_helper_alloc_mr",
    "rds_mr_helper_map_mr_sg",
    "rds_mr_helper_dma_map",
];

/// What an HCA does wrong that a failing function cannot show; only with the test
/// module (tests/kunit/faults.h).
const QUIRKS: &[Fault] = &[
    Fault::PostCut,
    Fault::PostLost,
    Fault::PostSlow,
    Fault::DeregSlow,
    Fault::InvWrong,
    Fault::PollBlind,
];

/// What goes wrong at the HCA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[rustfmt::skip]
pub enum Wrong {
    /// A function of [`POINTS`] fails in so many of a hundred calls.
    Verb { point: usize, percent: u64 },
    Quirk { fault: Fault, times: u32, arg: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[rustfmt::skip]
pub enum Event {
    /// kill -9. With a hammer, at a key that is being written to.
    Kill { worker: u64, hammer: bool },
    /// Unplug the peer device, and plug it in again after so long.
    Unplug { gone_ms: u64 },
    Fault { wrong: Wrong, ms: u64 },
    MoveToGroup { worker: u64, group: u64 },
    /// Limit on HCA objects of a group; 0: none.
    LimitGroup { group: u64, objects: u64 },
}

/// Events, each with the milliseconds to wait before. Endless, in rounds that
/// bring every kind, so that a short run has them all.
pub struct Chaos {
    rng: Rng,
    workers: u64,
    /// What is left of this round.
    round: Vec<u64>,
}

const ROUND: [u64; 11] = [0, 0, 1, 1, 2, 3, 3, 4, 4, 5, 6];

fn quirk(rng: &mut Rng) -> Wrong {
    let fault = rng.pick(QUIRKS);
    let (times, arg) = match fault {
        // Which WR of a chain.
        Fault::PostCut | Fault::InvWrong => (1 + rng.below(5), rng.below(9)),
        // Each is waited for until a deadline.
        Fault::PostLost => (1 + rng.below(2), 0),
        Fault::PollBlind => (1 << 30, 0),
        // Milliseconds.
        _ => (1 + rng.below(20), rng.pick(&[1, 30, 400])),
    };
    Wrong::Quirk {
        fault,
        times: times as u32,
        arg: arg as u32,
    }
}

impl Chaos {
    pub fn new(seed: u64, workers: u64) -> Self {
        Chaos {
            rng: Rng::stream(seed, &[2]),
            workers,
            round: Vec::new(),
        }
    }

    fn kind(&mut self) -> u64 {
        if self.round.is_empty() {
            self.round.extend(ROUND);
        }
        let at = self.rng.below(self.round.len() as u64);
        self.round.swap_remove(at as usize)
    }
}

impl Iterator for Chaos {
    type Item = (u64, Event);

    fn next(&mut self) -> Option<Self::Item> {
        let kind = self.kind();
        let rng = &mut self.rng;
        let pause = 50 + rng.below(700);
        let worker = rng.below(self.workers);
        let event = match kind {
            0 => Event::Kill {
                worker,
                hammer: false,
            },
            1 => Event::Kill {
                worker,
                hammer: true,
            },
            2 => Event::Unplug {
                gone_ms: rng.below(1500),
            },
            3 => Event::Fault {
                wrong: Wrong::Verb {
                    point: rng.below(POINTS.len() as u64) as usize,
                    percent: rng.pick(&[3, 20, 60, 100]),
                },
                ms: 200 + rng.below(2500),
            },
            4 => Event::Fault {
                wrong: quirk(rng),
                ms: 200 + rng.below(2500),
            },
            5 => Event::MoveToGroup {
                worker,
                group: rng.below(2),
            },
            _ => Event::LimitGroup {
                group: rng.below(2),
                objects: rng.pick(&[0, 1, 20, 1000]),
            },
        };
        Some((pause, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_same_seed_gives_the_same_events() {
        let events = |seed| Chaos::new(seed, 4).take(500).collect::<Vec<_>>();
        assert_eq!(events(7), events(7));
        assert_ne!(events(7), events(8));
    }

    #[test]
    fn every_round_has_every_kind() {
        for seed in 0..20 {
            let events = Chaos::new(seed, 4).take(ROUND.len());
            let kinds: HashSet<_> = events
                .map(|(_, event)| std::mem::discriminant(&event))
                .collect();
            assert_eq!(kinds.len(), 5);
        }
    }
}
