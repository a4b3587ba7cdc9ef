// SPDX-License-Identifier: GPL-2.0
//! TAP (<https://testanything.org>), as far as the test programs share it.

use std::fmt::Display;

/// Say that test `number` has failed. The reason comes first, since scripts/ktap
/// looks for it there.
pub fn not_ok(number: impl Display, name: &str, reason: &str) {
    reason.lines().for_each(|line| println!("#   {line}"));
    println!("not ok {number} - {name}");
}
