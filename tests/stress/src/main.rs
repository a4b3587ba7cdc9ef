// SPDX-License-Identifier: GPL-2.0
//! rds-mr-stress: races of all calls, at length, against a model of which keys
//! must be alive and which dead.
//!
//! Needs root, a loaded rds_mr.ko or rds_mr_kunit.ko, an rxe device at
//! RDS_MR_ADDR and another one at RDS_MR_PEER_ADDR, which it unplugs. The seed
//! decides who does what in which order; the scheduler decides the rest.

mod ask;
mod calls;
mod chaos;
mod events;
mod hammering;
mod keys;
mod killing;
mod kin;
mod ledger;
mod model;
mod plan;
mod plug;
mod report;
mod socks;
mod supervisor;
mod sys;
mod worker;

use crate::ledger::Ledger;
use crate::report::{Can, Counts, Tap};
use crate::supervisor::Supervisor;
use crate::worker::{Site, ARENA};
use rdsmr::inject::Failing;
use rdsmr::{kmod, process, stat, Mapping};
use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str =
    "usage: rds-mr-stress [--seed N] [--secs N] [--workers N] [--actions N] [--blind]";
/// For quarantined keys to be tried again, and for files to be put.
const SETTLES: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug)]
struct Options {
    seed: u64,
    secs: u64,
    workers: u64,
    /// Of each thread of each life.
    actions: u64,
    /// The module does not see the end of anybody's memory: the model must notice.
    blind: bool,
}

fn parse(mut args: impl Iterator<Item = String>, random: u64) -> Result<Options, String> {
    let mut options = Options {
        seed: random,
        secs: 600,
        workers: 4,
        actions: 10_000_000,
        blind: false,
    };
    while let Some(arg) = args.next() {
        let slot = match arg.as_str() {
            "--seed" => &mut options.seed,
            "--secs" => &mut options.secs,
            "--workers" => &mut options.workers,
            "--actions" => &mut options.actions,
            "--blind" => {
                options.blind = true;
                continue;
            }
            _ => return Err(format!("unknown argument {arg}")),
        };
        let value = args.next().and_then(|text| text.parse().ok());
        *slot = value.ok_or_else(|| format!("{arg} needs a number"))?;
    }
    if !(1..=32).contains(&options.workers) {
        return Err(format!("--workers is 1 to 32, not {}", options.workers));
    }
    Ok(options)
}

fn random() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    // Short enough to be typed.
    rdsmr::rng::Rng::new(now.map_or(0, |time| time.as_nanos() as u64)).next() % 1_000_000
}

fn site(options: Options) -> io::Result<Site> {
    let all = 0..options.workers;
    Ok(Site {
        seed: options.seed,
        workers: options.workers,
        actions: options.actions,
        ledger: Ledger::new(options.workers)?,
        arenas: all
            .clone()
            .map(|_| Mapping::shared(ARENA))
            .collect::<Result<_, _>>()?,
        mailboxes: all.map(|_| sys::Mailbox::new()).collect::<Result<_, _>>()?,
    })
}

/// The workers' part; what was counted, or what was wrong.
fn races(site: &Site, secs: u64, tap: &mut Tap) -> io::Result<(Can, Counts)> {
    let mut supervisor = Supervisor::new(site)?;
    let can = supervisor.can();
    println!("# {can:?}");
    let bites = supervisor.model_bites()?;
    tap.test(
        "the model notices a key that lives after its end",
        bites.then_some(()).ok_or("it does not".into()),
    );
    let start = Instant::now();
    let result = supervisor.run(Duration::from_secs(secs));
    report::progress(site, start.elapsed(), &supervisor.counts);
    if let Some(text) = site.ledger.failure() {
        supervisor.abandon();
        return Err(io::Error::other(text));
    }
    if let Err(error) = result {
        supervisor.abandon();
        let event = &supervisor.counts.last_event;
        return Err(io::Error::other(format!("{error}\nlast event: {event}")));
    }
    let counts = supervisor.finish()?;
    site.ledger
        .failure()
        .map_or(Ok((can, counts)), |text| Err(io::Error::other(text)))
}

/// A run in which half of it never took place shows nothing.
fn everything_took_place(site: &Site, can: Can, counts: &Counts) -> Result<(), String> {
    let all = report::what_took_place(site, can, counts);
    let text: Vec<String> = all
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    println!("# {}", text.join(", "));
    let missing = report::missing(site, can, counts);
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("never: {}", missing.join(", ")))
    }
}

/// Poll for what must come; the last thing that was found instead.
fn settles(mut ask: impl FnMut() -> io::Result<Result<(), String>>) -> Result<(), String> {
    let end = Instant::now() + SETTLES;
    loop {
        match ask() {
            Err(error) => return Err(error.to_string()),
            Ok(Ok(())) => return Ok(()),
            Ok(Err(text)) if Instant::now() > end => return Err(text),
            Ok(Err(_)) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// The control of all this: keys outlive their owners, and that is noticed.
fn outliving_is_noticed(site: &Site, secs: u64) -> Result<(), String> {
    let run = || -> io::Result<Option<String>> {
        let mut supervisor = Supervisor::new(site)?;
        supervisor.only_blind();
        let blind = Failing::always("rds_mr_helper_mm_ends", 0)?;
        let result = supervisor.run(Duration::from_secs(secs));
        drop(blind);
        supervisor.abandon();
        Ok(site
            .ledger
            .failure()
            .or(result.err().map(|e| e.to_string())))
    };
    match run() {
        Err(error) => Err(error.to_string()),
        Ok(None) => Err("expected: a key that outlives its owner is found\ngot: none".into()),
        Ok(Some(text)) => {
            println!("# noticed: {}", text.replace('\n', "; "));
            // Found alive, or written to; any other trouble is trouble.
            let wanted = ["got: alive", "got: Ok(Alive)", "changed"];
            let wanted = wanted.iter().any(|sign| text.contains(sign));
            wanted.then_some(()).ok_or(text)
        }
    }
}

fn nothing_is_left(pins: i64, module: &str, tap: &mut Tap) {
    let balanced = settles(|| {
        let now = stat::pins()?;
        Ok(if now == pins {
            Ok(())
        } else {
            Err(format!("expected: {pins} pinned pages\ngot: {now}"))
        })
    });
    tap.test("every pinned page was released", balanced);
    let unloaded = settles(|| match kmod::try_remove(module) {
        Err(error) if kmod::is_in_use(&error) => Ok(Err(format!("rmmod {module}: {error}"))),
        other => other.map(Ok),
    });
    tap.test("the module can be unloaded", unloaded);
    let left = match stat::mrs() {
        Ok(0) => Ok(()),
        Ok(left) => Err(format!(
            "expected: none\ngot: {left}, see rdma resource show mr"
        )),
        Err(error) => Err(error.to_string()),
    };
    tap.test("no MR is left at the HCAs", left);
}

fn run(options: Options) -> io::Result<bool> {
    println!(
        "# seed {} secs {} workers {}",
        options.seed, options.secs, options.workers
    );
    let Some(module) = kmod::current() else {
        println!("Bail out! Neither rds_mr nor rds_mr_kunit is loaded: insmod one of them first.");
        return Ok(false);
    };
    let mut tap = Tap::default();
    process::adopt_orphans()?;
    let pins = stat::pins()?;
    let site = site(options)?;
    if options.blind {
        tap.test(
            "keys that outlive their owner are noticed",
            outliving_is_noticed(&site, options.secs),
        );
        drop(site);
        nothing_is_left(pins, module, &mut tap);
        return Ok(tap.end());
    }
    match races(&site, options.secs, &mut tap) {
        Ok((can, counts)) => {
            tap.test("the model holds", Ok(()));
            tap.test(
                "everything took place",
                everything_took_place(&site, can, &counts),
            );
            drop(site);
            nothing_is_left(pins, module, &mut tap);
        }
        Err(error) => {
            report::last_actions(&site);
            tap.test(
                "the model holds",
                Err(format!("seed {}: {error}", options.seed)),
            );
        }
    }
    Ok(tap.end())
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).peekable();
    if args.peek().is_some_and(|arg| arg == "--heir") {
        let numbers: Vec<u64> = args.skip(1).filter_map(|text| text.parse().ok()).collect();
        let [fd, cookie] = numbers[..] else {
            return ExitCode::from(2);
        };
        return ExitCode::from(kin::heir(fd as i32, cookie) as u8);
    }
    let options = match parse(args, random()) {
        Ok(options) => options,
        Err(text) => {
            eprintln!("rds-mr-stress: {text}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("Bail out! The test machine itself fails: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let parse = |list: &[&str]| parse(list.iter().map(|s| s.to_string()), 5);
        let options = parse(&["--seed", "7", "--secs", "60"]).unwrap();
        assert_eq!((options.seed, options.secs), (7, 60));
        assert_eq!(parse(&[]).unwrap().seed, 5);
        assert!(parse(&["--seed"]).is_err());
        assert!(parse(&["--seed", "x"]).is_err());
        assert!(parse(&["--workers", "0"]).is_err());
        assert!(parse(&["--lost"]).is_err());
        assert!(!parse(&[]).unwrap().blind);
        assert!(parse(&["--blind", "--secs", "5"]).unwrap().blind);
    }
}
