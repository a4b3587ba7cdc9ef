// SPDX-License-Identifier: GPL-2.0
//! rds-mr-fuzz: a fuzzer of the socket interface, as TAP.
//!
//! Replays a corpus, then makes programs out of it, and keeps those that come to
//! code where none was before, if the kernel can tell (CONFIG_KCOV). Each program
//! runs in a process of its own. Wrong is: an errno that docs/errno.md does not
//! allow, a page that stays pinned, a process that does not end. What the kernel
//! itself reports is for the one who reads its log.

mod allowed;
mod call;
mod exec;
mod kcov;
mod mutate;
mod run;
mod space;

use call::Program;
use rdsmr::rng::Rng;
use rdsmr::tap;
use run::{Places, Runner};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{fs, io};

const USAGE: &str = "usage: rds-mr-fuzz [--secs N] [--seed N] [--corpus DIR]";

/// Wrong programs of one run that are told; there may be a lot of one kind.
const TOLD: usize = 10;

struct Options {
    secs: u64,
    seed: u64,
    corpus: Option<PathBuf>,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        secs: 45,
        seed: 1,
        corpus: None,
    };
    while let Some(arg) = args.next() {
        let value = args.next().ok_or(format!("{arg} needs a value"))?;
        let number = || {
            value
                .parse()
                .map_err(|_| format!("{arg} takes a number, not \"{value}\""))
        };
        match arg.as_str() {
            "--secs" => options.secs = number()?,
            "--seed" => options.seed = number()?,
            "--corpus" => options.corpus = Some(value.into()),
            _ => return Err(format!("unknown argument {arg}")),
        }
    }
    Ok(options)
}

fn load(dir: &Path) -> io::Result<Vec<(String, Program)>> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir)?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    let read = |path: &PathBuf| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let program = call::parse(&fs::read_to_string(path)?);
        let program = program.map_err(|text| io::Error::other(format!("{name}: {text}")))?;
        Ok((name, program))
    };
    files.iter().map(read).collect()
}

#[derive(Default)]
struct Tap {
    count: usize,
    failed: usize,
}

impl Tap {
    fn result(&mut self, name: &str, wrong: &[String]) {
        self.count += 1;
        if wrong.is_empty() {
            println!("ok {} - {name}", self.count);
            return;
        }
        self.failed += 1;
        tap::not_ok(self.count, name, &wrong.join("\n"));
    }
}

struct Fuzzer {
    runner: Runner,
    rng: Rng,
    corpus: Vec<Program>,
    seen: Places,
}

impl Fuzzer {
    fn replay(&mut self, program: Program) -> io::Result<Vec<String>> {
        let wrong = match self.runner.run(&program)? {
            Ok(places) => {
                self.seen.extend(places);
                vec![]
            }
            Err(text) => vec![text],
        };
        self.corpus.push(program);
        Ok(wrong)
    }

    fn next(&mut self) -> Program {
        if self.corpus.is_empty() || self.rng.one_in(8) {
            return mutate::fresh(&mut self.rng);
        }
        let old = self.rng.index(self.corpus.len());
        mutate::mutated(&self.corpus[old], &self.corpus, &mut self.rng)
    }

    fn explore(&mut self, time: Duration) -> io::Result<Vec<String>> {
        let (end, mut wrong) = (Instant::now() + time, Vec::new());
        while Instant::now() < end && wrong.len() < TOLD {
            let program = self.next();
            match self.runner.run(&program)? {
                Err(text) => wrong.push(text),
                Ok(places) => {
                    let new: Places = places.difference(&self.seen).copied().collect();
                    if !new.is_empty() {
                        self.keep(program, new)?;
                    }
                }
            }
        }
        Ok(wrong)
    }

    /// Add a program to the corpus, without the calls that it does not need to
    /// come to the `new` places.
    fn keep(&mut self, mut program: Program, mut new: Places) -> io::Result<()> {
        for at in (0..program.len()).rev() {
            let mut shorter = program.clone();
            shorter.remove(at);
            if let Ok(places) = self.runner.run(&shorter)? {
                if new.is_subset(&places) {
                    program = shorter;
                }
            }
        }
        println!("#+ {} new places", new.len());
        call::text(&program)
            .lines()
            .for_each(|line| println!("#| {line}"));
        self.seen.append(&mut new);
        self.corpus.push(program);
        Ok(())
    }
}

fn fuzz(options: &Options) -> io::Result<bool> {
    let files = options.corpus.as_deref().map_or(Ok(vec![]), load)?;
    let (rng, runner) = (Rng::new(options.seed), Runner::new()?);
    let mut fuzzer = Fuzzer {
        runner,
        rng,
        corpus: vec![],
        seen: Places::new(),
    };
    println!("TAP version 13\n1..{}", files.len() + 2);
    let mut tap = Tap::default();
    for (name, program) in files {
        let wrong = fuzzer.replay(program)?;
        tap.result(&format!("fuzz.corpus/{name}"), &wrong);
    }
    let (old, replayed) = (fuzzer.corpus.len(), fuzzer.seen.len());
    let wrong = fuzzer.explore(Duration::from_secs(options.secs))?;
    tap.result(&format!("fuzz.random of seed {}", options.seed), &wrong);
    let (places, new) = (fuzzer.seen.len(), fuzzer.corpus.len() - old);
    println!(
        "# {} programs, {replayed} places by the corpus, {places} in all, {new} kept",
        fuzzer.runner.programs
    );
    if !fuzzer.runner.sees() {
        println!(
            "ok {} - fuzz.coverage # SKIP this kernel has no kcov",
            tap.count + 1
        );
    } else {
        let blind =
            ["expected: places in the module's code\ngot: none, is it instrumented?".to_string()];
        tap.result("fuzz.coverage", if places == 0 { &blind } else { &[] });
    }
    Ok(tap.failed == 0)
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(text) => {
            eprintln!("rds-mr-fuzz: {text}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if rdsmr::kmod::current().is_none() {
        println!("Bail out! Neither rds_mr nor rds_mr_kunit is loaded: insmod one of them first.");
        return ExitCode::FAILURE;
    }
    match fuzz(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("Bail out! The fuzzer itself fails: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let parse = |list: &[&str]| parse(list.iter().map(|s| s.to_string()));
        assert_eq!(parse(&["--secs", "7"]).map(|options| options.secs), Ok(7));
        assert!(parse(&["--secs", "soon"]).is_err());
        assert!(parse(&["--seed"]).is_err());
        assert!(parse(&["--lost", "1"]).is_err());
    }

    #[test]
    fn the_corpus_can_be_read() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        assert!(!load(&dir).unwrap().is_empty());
    }
}
