// SPDX-License-Identifier: GPL-2.0
//! What the demo claims, and what came of it.

use std::fmt::Display;

struct Claim {
    text: String,
    answer: String,
    held: bool,
}

#[derive(Default)]
pub struct Claims(Vec<Claim>);

const TEXT_WIDTH: usize = 47;
const ANSWER_WIDTH: usize = 31;

impl Claims {
    pub fn add(&mut self, text: impl Display, answer: impl Display, held: bool) {
        let (text, answer) = (text.to_string(), answer.to_string());
        println!("     {:<6} {text}: {answer}", mark(held));
        self.0.push(Claim { text, answer, held });
    }

    pub fn all_held(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|claim| claim.held)
    }

    pub fn table(&self) -> String {
        let mut out = row("claim", "what the HCA or the kernel said", "");
        out += &format!("{:-<1$}\n", "", TEXT_WIDTH + ANSWER_WIDTH + 12);
        for claim in &self.0 {
            out += &row(&claim.text, &claim.answer, mark(claim.held));
        }
        out
    }
}

fn mark(held: bool) -> &'static str {
    if held {
        "ok"
    } else {
        "FAILED"
    }
}

fn row(text: &str, answer: &str, verdict: &str) -> String {
    let line = format!("{text:<TEXT_WIDTH$} | {answer:<ANSWER_WIDTH$} | {verdict}");
    format!("{}\n", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_fails_all_and_nothing_proves_nothing() {
        let mut claims = Claims::default();
        assert!(!claims.all_held());
        claims.add("a", "yes", true);
        assert!(claims.all_held());
        claims.add("b", "no", false);
        assert!(!claims.all_held());
        assert!(claims.table().ends_with("| FAILED\n"));
    }
}
