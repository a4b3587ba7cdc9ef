// SPDX-License-Identifier: GPL-2.0
//! Durations, and what to say about many of them.

use std::iter::Sum;
use std::time::Instant;

/// Nanoseconds of many runs of one thing.
#[derive(Clone, Debug, Default)]
pub struct Sample(Vec<u64>);

/// The two numbers that are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    pub p50: u64,
    pub p99: u64,
}

impl Sample {
    /// Time one run. A failed run is not a measurement, but an error.
    pub fn time<T, E>(&mut self, run: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let start = Instant::now();
        let result = run()?;
        self.0.push(start.elapsed().as_nanos() as u64);
        Ok(result)
    }

    /// Shared out evenly over `parts`.
    pub fn each(&self, parts: u64) -> Sample {
        Sample(self.0.iter().map(|nanos| nanos / parts).collect())
    }

    pub fn figure(&self) -> Option<Figure> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        Some(Figure {
            p50: rank(&sorted, 50)?,
            p99: rank(&sorted, 99)?,
        })
    }
}

impl<'a> Sum<&'a Sample> for Sample {
    fn sum<I: Iterator<Item = &'a Sample>>(samples: I) -> Self {
        Sample(
            samples
                .flat_map(|sample| sample.0.iter().copied())
                .collect(),
        )
    }
}

/// Nearest rank: a value that was measured, never one in between.
fn rank(sorted: &[u64], percent: usize) -> Option<u64> {
    let place = (sorted.len() * percent).div_ceil(100);
    sorted.get(place.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_values() {
        let sample = Sample((1..=200).rev().collect());
        assert_eq!(sample.figure(), Some(Figure { p50: 100, p99: 198 }));
        assert_eq!(Sample(vec![7]).figure(), Some(Figure { p50: 7, p99: 7 }));
        assert_eq!(Sample::default().figure(), None);
    }

    #[test]
    fn a_share_is_a_fraction_of_each_run() {
        let sample = Sample(vec![100, 300]);
        assert_eq!(sample.each(10).figure(), Some(Figure { p50: 10, p99: 30 }));
    }

    #[test]
    fn samples_add_up_to_all_their_runs() {
        let parts = [Sample(vec![1, 2]), Sample(vec![9])];
        assert_eq!(
            parts.iter().sum::<Sample>().figure(),
            Some(Figure { p50: 2, p99: 9 })
        );
    }

    #[test]
    fn failed_runs_do_not_count() {
        let mut sample = Sample::default();
        assert_eq!(sample.time(|| Err::<(), _>("no")), Err("no"));
        assert!(sample.figure().is_none());
        assert_eq!(sample.time(|| Ok::<_, ()>(5)), Ok(5));
        assert!(sample.figure().is_some());
    }
}
