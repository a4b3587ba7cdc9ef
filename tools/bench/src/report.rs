// SPDX-License-Identifier: GPL-2.0
//! The tables.

use crate::sample::Figure;
use std::fmt::Display;

const MISSING: &str = "n/a";

fn micros(nanos: u64) -> String {
    format!("{:.1}", nanos as f64 / 1000.0)
}

fn ratio(of: Figure, to: Option<Figure>) -> Option<f64> {
    to.filter(|figure| figure.p50 > 0)
        .map(|figure| of.p50 as f64 / figure.p50 as f64)
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or(MISSING.into(), |ratio| format!("{ratio:.2}x"))
}

fn pair(figure: Option<Figure>) -> (String, String) {
    figure.map_or((MISSING.into(), MISSING.into()), |f| {
        (micros(f.p50), micros(f.p99))
    })
}

fn cells<T: Display>(values: impl IntoIterator<Item = T>) -> String {
    let cells = values.into_iter().map(|value| format!("{value:>11}"));
    cells.collect::<Vec<_>>().concat()
}

/// One thing, done by rds_mr and, where it can be, by others.
pub struct Row {
    pub name: String,
    pub ours: Figure,
    pub verbs: Option<Figure>,
    pub floor: Option<Figure>,
}

pub fn head() -> String {
    let names = [
        "rds_mr p50",
        "p99",
        "verbs p50",
        "p99",
        "floor p50",
        "to verbs",
        "to floor",
    ];
    let cells = cells(names);
    format!("{:<28}{cells}\n{:-<105}", "microseconds", "")
}

impl Row {
    pub fn line(&self) -> String {
        let (ours, verbs, floor) = (pair(Some(self.ours)), pair(self.verbs), pair(self.floor));
        let ratios = [ratio(self.ours, self.verbs), ratio(self.ours, self.floor)].map(times);
        let times = [ours.0, ours.1, verbs.0, verbs.1, floor.0];
        let cells = cells(times.into_iter().chain(ratios));
        format!("{:<28}{cells}", self.name)
    }
}

/// A goal: the ratio of two medians must not exceed a bound.
pub fn goal(what: &str, ours: Figure, other: Option<Figure>, bound: f64) -> String {
    let ratio = ratio(ours, other);
    let verdict = match ratio {
        None => "cannot be told",
        Some(ratio) if ratio <= bound => "reached",
        Some(_) => "NOT reached",
    };
    format!(
        "{what:<58} {:>8} (goal {bound:.2}x): {verdict}",
        times(ratio)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn figure(p50: u64, p99: u64) -> Figure {
        Figure { p50, p99 }
    }

    #[test]
    fn what_is_missing_says_so() {
        let row = Row {
            name: "x".into(),
            ours: figure(1500, 3000),
            verbs: None,
            floor: None,
        };
        let line = row.line();
        assert!(line.contains("1.5") && line.contains("3.0"));
        assert_eq!(line.matches(MISSING).count(), 5);
    }

    #[test]
    fn goals_are_judged_by_their_bound() {
        let ours = figure(130, 0);
        assert!(goal("a", ours, Some(figure(100, 0)), 1.3).ends_with(": reached"));
        assert!(goal("a", ours, Some(figure(99, 0)), 1.3).ends_with("NOT reached"));
        assert!(goal("a", ours, None, 1.3).ends_with("cannot be told"));
        assert!(goal("a", ours, Some(figure(0, 0)), 1.3).ends_with("cannot be told"));
    }
}
