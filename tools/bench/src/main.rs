// SPDX-License-Identifier: GPL-2.0
//! rds-mr-bench: what a key costs, next to user verbs and to the device's floor.
//!
//! On soft-RoCE under emulation only the ratios mean anything. Needs root, a
//! loaded module, RDS_MR_ADDR and RDS_MR_IBDEV, which name one device.

mod floor;
mod measure;
mod report;
mod sample;
mod verbs;

use floor::Floor;
use measure::{Maker, Registrar};
use rdsmr::errno::describe;
use rdsmr::{kmod, Socket};
use report::{goal, Row};
use sample::{Figure, Sample};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

const USAGE: &str = "usage: rds-mr-bench [--quick]";
const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
/// Where "many keys" starts to be interesting, and the numbers on the way.
const LIVE: [u64; 4] = [1, 64, 512, 2048];
const MANY: u64 = 512;
const ROUNDS: usize = 5;

/// What one registrar reached.
struct Results<T> {
    get_4k: T,
    free_4k: T,
    get_1m: T,
    free_1m: T,
    close_1: T,
    close_64: T,
    close_512: T,
    kill_0: T,
    kill_512: T,
}

type Figures = Results<Figure>;

/// A part of the runs. Those who are compared take turns, so that what else
/// happens on the machine meets them all.
fn round<R: Registrar>(maker: &Maker<R>, runs: &Runs) -> io::Result<Results<Sample>> {
    let (get_4k, free_4k) = maker.pairs(4 * KIB, 0, runs.pairs)?;
    let (get_1m, free_1m) = maker.pairs(MIB, 0, runs.pairs)?;
    let close = |keys| Ok::<_, io::Error>(maker.close(keys, runs.closes)?.each(keys));
    Ok(Results {
        get_4k,
        free_4k,
        get_1m,
        free_1m,
        close_1: close(1)?,
        close_64: close(64)?,
        close_512: close(MANY)?,
        kill_0: maker.kill(0, runs.closes)?,
        kill_512: maker.kill(MANY, runs.closes)?,
    })
}

fn figures(rounds: &[Results<Sample>]) -> io::Result<Figures> {
    let all = |pick: fn(&Results<Sample>) -> &Sample| figure(rounds.iter().map(pick).sum());
    Ok(Results {
        get_4k: all(|r| &r.get_4k)?,
        free_4k: all(|r| &r.free_4k)?,
        get_1m: all(|r| &r.get_1m)?,
        free_1m: all(|r| &r.free_1m)?,
        close_1: all(|r| &r.close_1)?,
        close_64: all(|r| &r.close_64)?,
        close_512: all(|r| &r.close_512)?,
        kill_0: all(|r| &r.kill_0)?,
        kill_512: all(|r| &r.kill_512)?,
    })
}

fn figure(sample: Sample) -> io::Result<Figure> {
    let missing = || io::Error::other("nothing was measured");
    sample.figure().ok_or_else(missing)
}

fn rows(ours: &Figures, verbs: Option<&Figures>, floor: &Floor) -> Vec<Row> {
    let row = |name: &str, pick: fn(&Figures) -> Figure, floor| Row {
        name: name.into(),
        ours: pick(ours),
        verbs: verbs.map(pick),
        floor,
    };
    vec![
        row("get 4 KiB", |f| f.get_4k, floor.get("4k")),
        row("get 1 MiB", |f| f.get_1m, floor.get("1m")),
        row("free 4 KiB", |f| f.free_4k, floor.end_one()),
        row("free 1 MiB", |f| f.free_1m, floor.end_one()),
        row("close, 1 key", |f| f.close_1, floor.end_one()),
        row("close, 64 keys, per key", |f| f.close_64, None),
        row("close, 512 keys, per key", |f| f.close_512, floor.end_512()),
        row("kill -9 to wait, 0 keys", |f| f.kill_0, None),
        row("kill -9 to wait, 512 keys", |f| f.kill_512, None),
    ]
}

fn goals(ours: &Figures, verbs: Option<&Figures>, floor: &Floor, flat: [Figure; 2]) -> [String; 7] {
    let user = |pick: fn(&Figures) -> Figure| verbs.map(pick);
    [
        goal(
            "get 4 KiB, to pin + REG_MR",
            ours.get_4k,
            floor.get("4k"),
            1.3,
        ),
        goal(
            "get 1 MiB, to pin + REG_MR",
            ours.get_1m,
            floor.get("1m"),
            1.3,
        ),
        goal(
            "free 4 KiB, to the proof",
            ours.free_4k,
            floor.end_one(),
            1.3,
        ),
        goal(
            "close with 512 keys, to the proof",
            ours.close_512,
            floor.end_512(),
            1.5,
        ),
        goal(
            "close with 512 keys, to user verbs",
            ours.close_512,
            user(|f| f.close_512),
            1.0,
        ),
        goal(
            "kill -9 with 512 keys, to user verbs",
            ours.kill_512,
            user(|f| f.kill_512),
            1.0,
        ),
        goal(
            "get 4 KiB with 2048 live keys, to one with 1",
            flat[1],
            Some(flat[0]),
            1.1,
        ),
    ]
}

/// Runs in each round.
struct Runs {
    pairs: usize,
    closes: usize,
}

struct Setting {
    home: SocketAddr,
    ibdev: String,
    runs: Runs,
}

fn setting() -> Result<Setting, String> {
    let mut runs = Runs {
        pairs: 200,
        closes: 10,
    };
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--quick" => {
                runs = Runs {
                    pairs: 20,
                    closes: 2,
                }
            }
            _ => return Err(format!("unknown argument {arg}\n{USAGE}")),
        }
    }
    let var = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.into());
    let addr = var("RDS_MR_ADDR", "10.77.0.1");
    let ip: IpAddr = addr
        .parse()
        .map_err(|_| format!("RDS_MR_ADDR=\"{addr}\" is no address"))?;
    Ok(Setting {
        home: SocketAddr::new(ip, 0),
        ibdev: var("RDS_MR_IBDEV", "rxe0"),
        runs,
    })
}

/// What ends a key with the loaded module. "auto" means dereg on soft-RoCE.
fn proof() -> &'static str {
    let param = kmod::current().and_then(|module| kmod::param(module, "proof").ok());
    match param.as_deref() {
        Some("inv") => "inv",
        _ => "dereg",
    }
}

fn flat(maker: &Maker<Socket>, runs: &Runs) -> io::Result<Vec<(u64, Figure)>> {
    let round = || {
        LIVE.iter()
            .map(|live| Ok(maker.pairs(4 * KIB, *live, runs.pairs)?.0))
            .collect()
    };
    let rounds = (0..ROUNDS)
        .map(|_| round())
        .collect::<io::Result<Vec<Vec<Sample>>>>()?;
    let at = |(index, live)| {
        let all = rounds.iter().map(|round| &round[index]).sum();
        Ok((live, figure(all)?))
    };
    LIVE.into_iter().enumerate().map(at).collect()
}

/// Both, by turns. User verbs may be missing, and then the reason is said.
fn compare(setting: &Setting) -> io::Result<(Figures, Option<Figures>)> {
    let sockets = measure::sockets(setting.home);
    let sessions = measure::sessions(setting.ibdev.clone());
    let has_verbs = match sessions.make() {
        Ok(_) => true,
        Err(error) => {
            println!(
                "user verbs on {}: n/a ({})",
                setting.ibdev,
                describe(&error)
            );
            false
        }
    };
    let (mut ours, mut verbs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(round(&sockets, &setting.runs)?);
        if has_verbs {
            verbs.push(round(&sessions, &setting.runs)?);
        }
    }
    let verbs = if has_verbs {
        Some(figures(&verbs)?)
    } else {
        None
    };
    Ok((figures(&ours)?, verbs))
}

fn run(setting: &Setting) -> io::Result<()> {
    let (runs, floor) = (&setting.runs, Floor::read(proof()));
    let (pairs, closes) = (runs.pairs * ROUNDS, runs.closes * ROUNDS);
    println!(
        "{pairs} get/free pairs and {closes} closes of each kind; proof: {}",
        proof()
    );
    if !floor.is_known() {
        println!("the device's floor: n/a (no {})", floor::FILE);
    }
    let (ours, verbs) = compare(setting)?;
    println!("\n{}", report::head());
    rows(&ours, verbs.as_ref(), &floor)
        .iter()
        .for_each(|row| println!("{}", row.line()));
    println!();
    let flat = flat(&measure::sockets(setting.home), runs)?;
    for (live, ours) in &flat {
        let name = format!("get 4 KiB, {live} live");
        println!(
            "{}",
            Row {
                name,
                ours: *ours,
                verbs: None,
                floor: None
            }
            .line()
        );
    }
    println!();
    let ends = [flat[0].1, flat[flat.len() - 1].1];
    goals(&ours, verbs.as_ref(), &floor, ends)
        .iter()
        .for_each(|goal| println!("{goal}"));
    Ok(())
}

fn main() -> ExitCode {
    let setting = match setting() {
        Ok(setting) => setting,
        Err(text) => {
            eprintln!("rds-mr-bench: {text}");
            return ExitCode::from(2);
        }
    };
    match run(&setting) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let (home, text) = (setting.home.ip(), describe(&error));
            eprintln!("rds-mr-bench: a call failed on {home}: {text}; is rds_mr.ko loaded?");
            ExitCode::FAILURE
        }
    }
}
