// SPDX-License-Identifier: GPL-2.0
//! The device's own floor: what the bare operations cost inside of the kernel.
//! The test module's bench leaves it as lines of `name p50_ns p99_ns`:
//!
//!   pin_4k, pin_1m            pin the pages
//!   reg_mr_4k, reg_mr_1m      REG_MR, posted and waited for
//!   local_inv, dereg          one key ended in either way
//!   local_inv_512, dereg_512  the same for 512 keys at once, per key

use crate::sample::Figure;
use std::collections::HashMap;
use std::fs;

pub const FILE: &str = "/sys/kernel/debug/rds_mr/floor";

pub struct Floor {
    figures: HashMap<String, Figure>,
    /// What ends a key here: `inv` or `dereg`.
    proof: &'static str,
}

impl Floor {
    /// Empty if there is none; then no ratio to it can be given.
    pub fn read(proof: &'static str) -> Self {
        let text = fs::read_to_string(FILE).unwrap_or_default();
        Floor {
            figures: text.lines().filter_map(parse).collect(),
            proof,
        }
    }

    pub fn is_known(&self) -> bool {
        !self.figures.is_empty()
    }

    fn sum(&self, names: &[&str]) -> Option<Figure> {
        names
            .iter()
            .try_fold(Figure { p50: 0, p99: 0 }, |sum, name| {
                let figure = self.figures.get(*name)?;
                Some(Figure {
                    p50: sum.p50 + figure.p50,
                    p99: sum.p99 + figure.p99,
                })
            })
    }

    /// To pin and to register `size`, "4k" or "1m".
    pub fn get(&self, size: &str) -> Option<Figure> {
        self.sum(&[&format!("pin_{size}"), &format!("reg_mr_{size}")])
    }

    /// To end one key.
    pub fn end_one(&self) -> Option<Figure> {
        self.sum(&[if self.proof == "inv" {
            "local_inv"
        } else {
            "dereg"
        }])
    }

    /// To end each of 512 keys that end together.
    pub fn end_512(&self) -> Option<Figure> {
        self.sum(&[if self.proof == "inv" {
            "local_inv_512"
        } else {
            "dereg_512"
        }])
    }
}

fn parse(line: &str) -> Option<(String, Figure)> {
    let mut words = line.split_whitespace();
    let name = words.next()?.to_string();
    let p50 = words.next()?.parse().ok()?;
    let p99 = words.next()?.parse().ok()?;
    words
        .next()
        .is_none()
        .then_some((name, Figure { p50, p99 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floor(proof: &'static str, text: &str) -> Floor {
        Floor {
            figures: text.lines().filter_map(parse).collect(),
            proof,
        }
    }

    #[test]
    fn floors_add_up() {
        let floor = floor("dereg", "pin_4k 10 20\nreg_mr_4k 30 60\ndereg 5 9\n");
        assert_eq!(floor.get("4k"), Some(Figure { p50: 40, p99: 80 }));
        assert_eq!(floor.get("1m"), None);
        assert_eq!(floor.end_one(), Some(Figure { p50: 5, p99: 9 }));
    }

    #[test]
    fn the_proof_decides_what_ends_a_key() {
        let text = "local_inv 1 2\ndereg 3 4\nlocal_inv_512 5 6\ndereg_512 7 8\n";
        assert_eq!(
            floor("inv", text).end_512(),
            Some(Figure { p50: 5, p99: 6 })
        );
        assert_eq!(
            floor("dereg", text).end_512(),
            Some(Figure { p50: 7, p99: 8 })
        );
    }

    #[test]
    fn other_lines_are_no_figures() {
        assert!(!floor("inv", "# name p50 p99\npin_4k 10\npin_1m 1 2 3\n").is_known());
    }
}
