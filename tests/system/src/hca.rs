// SPDX-License-Identifier: GPL-2.0
//! The HCA misbehaves, in every phase of a key's life. What is alive stays
//! alive; what ends, ends with a proof or stays pinned, listed, and tried again;
//! nobody waits for ever; and when the fault is over everything comes back.
//!
//! The faults stand between the module and the verbs (tests/kunit/faults.c), and
//! are lifted before a test ends. Those that leave something for good are in
//! `leak`, which has a guest of its own.

use crate::check::{helper, holds, same, skip, Check, End, Outcome};
use crate::device::{second_device, Unplugged};
use crate::reload;
use crate::runner::Test;
use crate::site::{self, alive, bound, refused};
use rdsmr::abi::*;
use rdsmr::errno::*;
use rdsmr::{stat, Armed, Child, Fault, Hammer, Mapping, Socket, PAGE};

pub const TESTS: &[Test] = &[
    Test::reloading("hca.faults_at_free", || at_end(Way::Free)),
    Test::reloading("hca.faults_at_close", || at_end(Way::Close)),
    Test::reloading("hca.faults_at_kill_9", || at_end(Way::Kill)),
    Test::reloading("hca.faults_at_unplug", || at_end(Way::Unplug)),
    Test::reloading("hca.faults_at_get", at_get),
    Test::reloading("hca.failing_registrations_by_the_thousand", thousands),
    Test::reloading("hca.quarantine_is_listed_and_ends", quarantine),
    Test::reloading("hca.a_driver_that_takes_long_holds_up_no_death", long_dereg),
];

const KEYS: u64 = 6;
/// Often enough for everything that a test does.
pub const ALWAYS: u32 = 1 << 30;
/// Short, so that a fault which lasts until the deadline does not last long.
pub const PARAMS: &str = "revoke_timeout_ms=2000";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Free,
    Close,
    Kill,
    Unplug,
}

/// What goes wrong, how often, and how.
pub type Wrong = (Fault, u32, u32);

/// What goes wrong when keys end by deregistration.
const AT_DEREG: &[Wrong] = &[
    (Fault::Dereg, 1, 0),
    (Fault::Dereg, KEYS as u32, 0),
    (Fault::DeregSlow, KEYS as u32, 200),
];

/// What goes wrong when they end by invalidation; it leads to a deregistration.
const AT_INVALIDATION: &[Wrong] = &[
    (Fault::PostCut, 1, 0),
    (Fault::PostCut, 1, 2),
    (Fault::PostLost, 1, 0),
    (Fault::PostSlow, 1, 200),
    (Fault::InvWrong, 1, 0),
    (Fault::InvWrong, 1, 2),
    (Fault::PollBlind, ALWAYS, 0),
];

pub fn needs_faults() -> Outcome {
    if Hammer::is_there() {
        return Ok(());
    }
    skip("needs rds_mr_kunit.ko, which can make verbs fail")
}

pub fn arm(wrong: Wrong) -> Result<Armed, End> {
    Armed::new(wrong.0, wrong.1, wrong.2).must("arming a fault")
}

fn keys(socket: &Socket, map: &Mapping) -> Result<Vec<u64>, End> {
    let get = |n| socket.get_mr(map.at(n * PAGE), PAGE, RDS_RDMA_READWRITE);
    (0..KEYS).map(|n| get(n).must("GET_MR")).collect()
}

/// A key that has nothing to do with what happens.
struct Bystander {
    socket: Socket,
    map: Mapping,
    cookie: u64,
}

impl Bystander {
    fn new() -> Result<Self, End> {
        let (socket, map) = (bound()?, site::memory(PAGE)?);
        let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
        Ok(Bystander {
            socket,
            map,
            cookie,
        })
    }

    /// Its key is alive, and it can get another one.
    fn is_well(&self, when: &str) -> Outcome {
        alive(&self.socket, self.cookie, 0, format!("a bystander {when}"))?;
        let again = self.socket.get_mr(self.map.at(0), PAGE, 0);
        let again = again.must(format!("GET_MR by a bystander {when}"))?;
        self.socket.free_mr(again, 0).must("FREE_MR by a bystander")
    }
}

/// Who has the keys that end.
enum Victim {
    Socket(Socket),
    Process(Child),
}

fn victim(way: Way, map: &Mapping) -> Result<(Victim, Vec<u64>), End> {
    if way == Way::Kill {
        let child = helper("victim", |link| {
            let (socket, map) = (bound()?, site::memory(KEYS * PAGE)?);
            link.tell(&keys(&socket, &map)?).must("telling the test")?;
            link.hear().must("the test's word").map(drop)
        })?;
        let cookies = child.link().hear().must("the victim's cookies")?;
        return Ok((Victim::Process(child), cookies));
    }
    let socket = if way == Way::Unplug {
        second_device()?
    } else {
        bound()?
    };
    let cookies = keys(&socket, map)?;
    Ok((Victim::Socket(socket), cookies))
}

fn end(way: Way, victim: Victim, cookies: &[u64]) -> Result<Option<Unplugged>, End> {
    match victim {
        Victim::Process(mut child) => {
            child.kill().must("kill -9")?;
        }
        Victim::Socket(socket) => match way {
            Way::Free => {
                for cookie in cookies {
                    // EIO: not proven yet, the key can be freed once more.
                    match socket.free_mr(*cookie, 0) {
                        Err(error) if error.raw_os_error() != Some(EIO) => {
                            Err::<(), _>(error).must("FREE_MR, or EIO")?;
                        }
                        _ => {}
                    }
                }
                // What was not freed ends with the socket.
                drop(socket);
            }
            Way::Unplug => {
                let unplugged = Unplugged::new()?;
                drop(socket);
                return Ok(Some(unplugged));
            }
            Way::Close | Way::Kill => drop(socket),
        },
    }
    Ok(None)
}

fn at_end(way: Way) -> Outcome {
    needs_faults()?;
    reload::with_params(PARAMS)?;
    let map = site::memory(KEYS * PAGE)?;
    let bystander = Bystander::new()?;
    let invalidates = site::param("proof")? == "inv";
    let wrongs = if invalidates {
        AT_INVALIDATION
    } else {
        AT_DEREG
    };
    for wrong in wrongs {
        let when = format!("{way:?} with {wrong:?}");
        let pins = site::pins()?;
        let (victim, cookies) = victim(way, &map)?;
        bystander.is_well(&format!("before {when}"))?;
        let armed = arm(*wrong)?;
        let unplugged = end(way, victim, &cookies)?;
        let struck = armed.struck().must("how often it went wrong")?;
        drop(armed);
        holds(format!("something went wrong: {when}"), struck > 0)?;
        site::eventually(format!("pinned pages are back after {when}"), || {
            Ok(site::pins()? == pins)
        })?;
        if way != Way::Unplug {
            for cookie in &cookies {
                refused(&bystander.socket, *cookie, 0, format!("a key after {when}"))?;
            }
        }
        same(format!("leaked after {when}"), 0, counter("leaked")?)?;
        same(
            format!("quarantined after {when}"),
            0,
            counter("quarantined")?,
        )?;
        bystander.is_well(&format!("after {when}"))?;
        if let Some(unplugged) = unplugged {
            unplugged.replug()?;
        }
    }
    Ok(())
}

pub fn counter(name: &str) -> Result<u64, End> {
    stat::counter(name).must(format!("reading {name}"))
}

/// What goes wrong in GET_MR, and what it then says. EIO is the HCA's fault.
const AT_GET: &[(Wrong, i32)] = &[
    ((Fault::MapShort, 1, 0), EIO),
    ((Fault::DmaMap, 1, 0), EIO),
    ((Fault::PostCut, ALWAYS, 0), EIO),
    // rxe can also say "flushed", and then it is tried again.
    ((Fault::RegWrong, ALWAYS, 0), EIO),
    ((Fault::PostLost, 1, 0), EIO),
    ((Fault::PollBlind, ALWAYS, 0), EIO),
];

fn at_get() -> Outcome {
    needs_faults()?;
    reload::with_params(PARAMS)?;
    let map = site::memory(KEYS * PAGE)?;
    let (socket, bystander) = (bound()?, Bystander::new()?);
    for (wrong, errno) in AT_GET {
        let when = format!("GET_MR with {wrong:?}");
        let pins = site::pins()?;
        let armed = arm(*wrong)?;
        let got = socket.get_mr(map.at(0), PAGE, 0);
        drop(armed);
        got.must_fail(*errno, &when)?;
        // A REG_MR that is silent may still run: its page waits for a proof.
        bystander.is_well(&format!("after {when}"))?;
        site::eventually(format!("pinned pages are back after {when}"), || {
            Ok(site::pins()? == pins)
        })?;
        let cookie = socket
            .get_mr(map.at(0), PAGE, 0)
            .must(format!("GET_MR after {when}"))?;
        alive(&socket, cookie, 0, format!("a key after {when}"))?;
        socket.free_mr(cookie, 0).must("FREE_MR")?;
    }
    no_mr_without_one(&socket, &map)
}

/// With idle MRs at hand the fault is not met at once.
fn no_mr_without_one(socket: &Socket, map: &Mapping) -> Outcome {
    let armed = arm((Fault::AllocMr, ALWAYS, 0))?;
    let mut cookies = Vec::new();
    let refusal = loop {
        match socket.get_mr(map.at(0), PAGE, 0) {
            Ok(cookie) => cookies.push(cookie),
            Err(error) => break Err::<(), _>(error),
        }
    };
    refusal.must_fail(ENOMEM, "GET_MR when no MR can be allocated")?;
    for cookie in cookies {
        socket.free_mr(cookie, 0).must("FREE_MR")?;
    }
    drop(armed);
    let cookie = socket
        .get_mr(map.at(0), PAGE, 0)
        .must("GET_MR when MRs are there again")?;
    socket.free_mr(cookie, 0).must("FREE_MR")
}

/// No slot of a queue, no MR and no charge is lost by a failure.
fn thousands() -> Outcome {
    // Those that cost an MR are slow.
    // Those that use a WR break up to three queues each, and are slow.
    const FAILURES: [(Fault, usize); 4] = [
        (Fault::DmaMap, 9_600),
        (Fault::MapShort, 200),
        (Fault::RegWrong, 100),
        (Fault::PostCut, 100),
    ];
    const BUDGET: u32 = 100;
    needs_faults()?;
    reload::with_params(PARAMS)?;
    let map = site::memory(u64::from(BUDGET) * PAGE)?;
    let socket = bound()?;
    socket
        .set_quota(BUDGET, u64::from(BUDGET))
        .must("setting a quota")?;
    let pins = site::pins()?;
    for (fault, times) in FAILURES {
        let armed = arm((fault, ALWAYS, 0))?;
        for _ in 0..times {
            let got = socket.get_mr(map.at(0), PAGE, 0);
            got.must_fail(EIO, format!("GET_MR with {fault:?}"))?;
        }
        drop(armed);
    }
    same("pages pinned after the failures", pins, site::pins()?)?;
    let get = |n| socket.get_mr(map.at(n * PAGE), PAGE, 0);
    let cookies: Result<Vec<u64>, End> = (0..u64::from(BUDGET))
        .map(|n| get(n).must(format!("key {n} of the whole budget")))
        .collect();
    get(0).must_fail(EAGAIN, "a key more than the budget")?;
    cookies?
        .into_iter()
        .try_for_each(|cookie| socket.free_mr(cookie, 0).must("FREE_MR"))
}

fn quarantine() -> Outcome {
    needs_faults()?;
    reload::with_params(PARAMS)?;
    let (prober, map, pins) = (bound()?, site::memory(KEYS * PAGE)?, site::pins()?);
    let socket = bound()?;
    let cookies = keys(&socket, &map)?;
    alive(&prober, cookies[0], 0, "a key")?;
    // proof=inv comes to a deregistration only when the invalidation fails.
    let cut = arm((Fault::PostCut, ALWAYS, 0))?;
    let refuse = arm((Fault::Dereg, ALWAYS, 0))?;
    for cookie in &cookies {
        socket
            .free_mr(*cookie, 0)
            .must_fail(EIO, "FREE_MR without proof")?;
    }
    same("pages that stay pinned", pins + KEYS as i64, site::pins()?)?;
    same("quarantined", KEYS, counter("quarantined")?)?;
    let list = std::fs::read_to_string("/sys/kernel/debug/rds_mr/quarantine");
    let list = list.must("reading rds_mr/quarantine")?;
    same(
        "lines in rds_mr/quarantine",
        KEYS as usize,
        list.lines().count(),
    )?;
    let module = site::module()?;
    let unload = rdsmr::kmod::try_remove(module);
    holds(
        "the module cannot be unloaded",
        unload.as_ref().is_err_and(rdsmr::kmod::is_in_use),
    )?;
    drop((cut, refuse));
    site::eventually("the pins come back", || Ok(site::pins()? == pins))?;
    same("quarantined then", 0, counter("quarantined")?)?;
    for cookie in &cookies {
        refused(&prober, *cookie, 0, "a key that was quarantined")?;
        socket.free_mr(*cookie, 0).must("FREE_MR of it")?;
    }
    Ok(())
}

/// The process gets away, and its keys go on being ended.
fn long_dereg() -> Outcome {
    // Shorter than what rxe takes for a failure, longer than any deadline.
    const TAKES_MS: u32 = 15_000;
    needs_faults()?;
    reload::with_params(PARAMS)?;
    if site::param("proof")? == "inv" {
        return skip("ib_dereg_mr is not the proof here");
    }
    let (prober, pins) = (bound()?, site::pins()?);
    let (victim, cookies) = victim(Way::Kill, &site::memory(PAGE)?)?;
    alive(&prober, cookies[0], 0, "a key of the victim")?;
    let armed = arm((Fault::DeregSlow, KEYS as u32, TAKES_MS))?;
    end(Way::Kill, victim, &cookies)?;
    same(
        "pages pinned when wait() is back",
        pins + KEYS as i64,
        site::pins()?,
    )?;
    site::eventually("the pins come back", || Ok(site::pins()? == pins))?;
    drop(armed);
    for cookie in &cookies {
        refused(&prober, *cookie, 0, "a key of the dead")?;
    }
    Ok(())
}
