// SPDX-License-Identifier: GPL-2.0
//! The HCA misbehaves, and what meets it is not a key in use: idle MRs, the
//! probe's own key, key numbers, the driver's word on a broken HCA. See `hca`.

use crate::check::{fail, helper, holds, same, Check, End, Outcome};
use crate::device::{second_device, Unplugged};
use crate::hca::{arm, counter, needs_faults, ALWAYS, PARAMS};
use crate::reload;
use crate::revoked::orphaned;
use crate::runner::Test;
use crate::site::{self, alive, bound, refused};
use rdsmr::abi::*;
use rdsmr::errno::*;
use rdsmr::{stat, Armed, Child, Fault, Socket, Status, PAGE};

const KEYS: u64 = 6;

pub const TESTS: &[Test] = &[
    Test::reloading("hca.death_waits_for_what_is_stuck", stuck),
    Test::reloading("hca.death_tries_again", again),
    Test::reloading("hca.one_that_hangs_holds_up_no_other", hanging),
    Test::reloading("hca.one_that_hangs_at_unplug", hanging_at_unplug),
    Test::reloading("hca.an_idle_mr_is_tried_again", idle),
    Test::reloading("hca.an_idle_mr_at_unplug", idle_at_unplug),
    Test::reloading("hca.the_key_of_the_probe", control),
    Test::reloading("hca.the_key_of_the_probe_at_unplug", control_at_unplug),
    Test::reloading("hca.a_broken_device_is_counted_apart", broken_device),
    Test::reloading("hca.a_revoked_number_is_not_issued_again", number),
];

/// A registration that had no answer: nobody knows whether its key is alive.
/// The process that asked for it does not go before that is known.
fn stuck() -> Outcome {
    needs_faults()?;
    reload::with_params(PARAMS)?;
    let pins = site::pins()?;
    let mut child = helper("victim", |link| {
        let (socket, map) = (bound()?, site::memory(PAGE)?);
        link.tell(&[1]).must("telling the test")?;
        link.hear().must("the test's word")?;
        let got = socket.get_mr(map.at(0), PAGE, RDS_RDMA_READWRITE);
        got.must_fail(EIO, "GET_MR whose registration has no answer")
    })?;
    child.link().hear().must("the victim's word")?;
    let lost = arm((Fault::PostLost, 1, 0))?;
    child.link().tell(&[1]).must("telling the victim")?;
    let status = child.wait().must("waiting for the victim")?;
    drop(lost);
    same("how the victim ended", Status::Exit(0), status)?;
    same("pages pinned when wait() is back", pins, site::pins()?)?;
    same("quarantined then", 0, counter("quarantined")?)
}

/// A deregistration that fails once is tried again before the process goes.
fn again() -> Outcome {
    needs_faults()?;
    reload::with_params(PARAMS)?;
    let prober = bound()?;
    for times in [1, KEYS as u32, 2 * KEYS as u32, ALWAYS] {
        let pins = site::pins()?;
        let (mut child, cookies) = victim_with(KEYS)?;
        // proof=inv comes to a deregistration only when the invalidation fails.
        let cut = arm((Fault::PostCut, 1, 0))?;
        let refuse = arm((Fault::Dereg, times, 0))?;
        child.kill().must("kill -9")?;
        let kept = if times == ALWAYS { KEYS } else { 0 };
        let what = format!("pages pinned when wait() is back, {times} refused");
        same(what, pins + kept as i64, site::pins()?)?;
        same("quarantined then", kept, counter("quarantined")?)?;
        if kept == 0 {
            are_refused(&prober, &cookies, "a key of the dead")?;
        }
        drop((cut, refuse));
        site::eventually("all pages are back", || Ok(site::pins()? == pins))?;
        are_refused(&prober, &cookies, "a key whose page is back")?;
    }
    Ok(())
}

/// One deregistration is refused once, and another one takes longer than any
/// deadline here.
fn one_hangs() -> Result<(Armed, Armed, Armed), End> {
    Ok((
        // proof=inv comes to a deregistration only when the invalidation fails.
        arm((Fault::PostCut, 1, 0))?,
        arm((Fault::Dereg, 1, 0))?,
        arm((Fault::DeregSlow, 1, 4000))?,
    ))
}

/// While one key hangs, the others are tried again.
fn hanging() -> Outcome {
    needs_faults()?;
    reload::with_params(PARAMS)?;
    let (prober, pins) = (bound()?, site::pins()?);
    let (mut child, cookies) = victim_with(KEYS)?;
    let wrong = one_hangs()?;
    child.kill().must("kill -9")?;
    same("pages pinned when wait() is back", pins + 1, site::pins()?)?;
    same("quarantined then", 0, counter("quarantined")?)?;
    drop(wrong);
    site::eventually("all pages are back", || Ok(site::pins()? == pins))?;
    are_refused(&prober, &cookies, "a key whose page is back")
}

fn hanging_at_unplug() -> Outcome {
    needs_faults()?;
    reload::with_params(PARAMS)?;
    let (socket, map) = (second_device()?, site::memory(KEYS * PAGE)?);
    let pins = site::pins()?;
    for n in 0..KEYS {
        let got = socket.get_mr(map.at(n * PAGE), PAGE, 0);
        got.must("GET_MR")?;
    }
    let wrong = one_hangs()?;
    let unplugged = Unplugged::new()?;
    drop(wrong);
    same("pages pinned when the HCA is gone", pins, site::pins()?)?;
    same("leaked", 0, counter("leaked")?)?;
    unplugged.replug().map(drop)
}

/// A process with so many keys, which is about to die.
fn victim_with(keys: u64) -> Result<(Child, Vec<u64>), End> {
    let child = helper("victim", |link| {
        let (socket, map) = (bound()?, site::memory(keys * PAGE)?);
        let get = |n| socket.get_mr(map.at(n * PAGE), PAGE, 0).must("GET_MR");
        let cookies: Result<Vec<u64>, End> = (0..keys).map(get).collect();
        link.tell(&cookies?).must("telling the test")?;
        link.hear().must("the test's word").map(drop)
    })?;
    let cookies = child.link().hear().must("the victim's cookies")?;
    Ok((child, cookies))
}

/// The HCA lets nobody in.
fn are_refused(prober: &Socket, cookies: &[u64], what: &str) -> Outcome {
    let mut cookies = cookies.iter();
    cookies.try_for_each(|cookie| refused(prober, *cookie, 0, what))
}

fn mrs() -> Result<u64, End> {
    stat::mrs().must("counting MRs")
}

/// A GET_MR that fails after its MR was taken: the MR is not used again.
fn spoil_one_mr(socket: &Socket) -> Outcome {
    let map = site::memory(PAGE)?;
    let short = arm((Fault::MapShort, 1, 0))?;
    let got = socket.get_mr(map.at(0), PAGE, 0);
    drop(short);
    got.must_fail(EIO, "GET_MR with a mapping that is short")
}

fn idle() -> Outcome {
    needs_faults()?;
    reload::with_params(&format!("{PARAMS} mr_pool=0"))?;
    let (socket, map) = (bound()?, site::memory(PAGE)?);
    // Makes the queue, and shows that the socket works.
    let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
    socket.free_mr(cookie, 0).must("FREE_MR")?;
    let before = mrs()?;
    let refuse = arm((Fault::Dereg, ALWAYS, 0))?;
    spoil_one_mr(&socket)?;
    same("MRs while the HCA keeps one", before + 1, mrs()?)?;
    drop(refuse);
    site::eventually("the MR goes", || Ok(mrs()? == before))
}

/// The core complains of an HCA that goes with an MR left.
fn idle_at_unplug() -> Outcome {
    needs_faults()?;
    reload::with_params(&format!("{PARAMS} mr_pool=0"))?;
    let socket = second_device()?;
    // Once by GET_MR, and twice by the removal.
    let refuse = arm((Fault::Dereg, 3, 0))?;
    spoil_one_mr(&socket)?;
    let unplugged = Unplugged::new()?;
    drop(refuse);
    let before = mrs()?;
    unplugged.replug()?;
    same("MRs when the HCA is back", before, mrs()?)
}

fn control() -> Outcome {
    needs_faults()?;
    reload::with_params(&format!("{PARAMS} mr_pool=0"))?;
    let (socket, map) = (bound()?, site::memory(PAGE)?);
    let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
    let before = mrs()?;
    for fault in [
        Fault::MapShort,
        Fault::DmaMap,
        Fault::PostCut,
        Fault::PostLost,
    ] {
        let armed = arm((fault, 1, 0))?;
        let got = socket.probe(cookie, 0);
        drop(armed);
        got.must_fail(EIO, format!("the first probe with {fault:?}"))?;
        site::eventually(format!("nothing is left of a probe with {fault:?}"), || {
            Ok(mrs()? == before && counter("quarantined")? == 0)
        })?;
    }
    alive(&socket, cookie, 0, "a key when the faults are over")?;
    same("MRs, with the probe's own", before + 1, mrs()?)?;
    same("leaked", 0, counter("leaked")?)?;
    socket.free_mr(cookie, 0).must("FREE_MR")
}

fn control_at_unplug() -> Outcome {
    needs_faults()?;
    reload::with_params(PARAMS)?;
    let (socket, map) = (second_device()?, site::memory(PAGE)?);
    let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
    alive(&socket, cookie, 0, "a key before the HCA goes")?;
    // proof=inv comes to a deregistration only when the invalidation fails.
    let cut = arm((Fault::PostCut, ALWAYS, 0))?;
    let refuse = arm((Fault::Dereg, 5, 0))?;
    let unplugged = Unplugged::new()?;
    drop((cut, refuse));
    same("leaked", 0, counter("leaked")?)?;
    same("quarantined", 0, counter("quarantined")?)?;
    // One was an application's.
    same("revoked_device", 1, counter("revoked_device")?)?;
    unplugged.replug().map(drop)
}

/// What a driver says of a broken HCA is accepted, and counted apart.
fn broken_device() -> Outcome {
    needs_faults()?;
    reload::with_params(&format!("{PARAMS} proof=dereg"))?;
    let (socket, map) = (second_device()?, site::memory(KEYS * PAGE)?);
    let get = |n| socket.get_mr(map.at(n * PAGE), PAGE, 0).must("GET_MR");
    let cookies: Result<Vec<u64>, End> = (0..KEYS).map(get).collect();
    let cookies = cookies?;
    socket.free_mr(cookies[0], 0).must("FREE_MR")?;
    same("trusted_dead before", 0, counter("trusted_dead")?)?;
    let broken = arm((Fault::DeregFatal, 1, 0))?;
    socket.free_mr(cookies[1], 0).must("FREE_MR")?;
    drop(broken);
    are_refused(&socket, &cookies[..2], "a key that was freed")?;
    same("trusted_dead at first", 1, counter("trusted_dead")?)?;
    drop(socket);
    same("trusted_dead", KEYS - 1, counter("trusted_dead")?)?;
    // Another HCA is none the worse for it, nor is the one that comes back.
    let (others, back) = (bound()?, Unplugged::new()?.replug()?);
    for socket in [others, back] {
        let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
        socket.free_mr(cookie, 0).must("FREE_MR")?;
    }
    // With the HCA went the probe's own key.
    same("trusted_dead then", KEYS, counter("trusted_dead")?)
}

/// An MR that is used again would get the number of a key that was revoked and
/// not freed: the socket could not tell the two apart.
fn number() -> Outcome {
    // Those that the pool may hold.
    const IDLE: u64 = 3;
    needs_faults()?;
    reload::with_params(&format!("{PARAMS} proof=inv mr_pool=1"))?;
    let (socket, revoked) = orphaned(1)?;
    let (revoked, map) = (revoked[0], site::memory(PAGE)?);
    let pins = site::pins()?;
    let byte = arm((Fault::KeyByte, ALWAYS, revoked as u32 & 0xff))?;
    let mut refused = false;
    let mut cookies = Vec::new();
    for _ in 0..IDLE {
        match socket.get_mr(map.at(0), PAGE, 0) {
            Ok(cookie) => cookies.push(cookie),
            Err(error) => {
                Err::<(), _>(error).must_fail(EIO, "GET_MR with a number that is taken")?;
                refused = true;
                break;
            }
        }
    }
    drop(byte);
    holds("the MR of the revoked key came up", refused)?;
    // Tried again, it gets another byte.
    let once = arm((Fault::KeyByte, 1, revoked as u32 & 0xff))?;
    cookies.push(socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?);
    drop(once);
    if cookies
        .iter()
        .any(|cookie| *cookie as u32 == revoked as u32)
    {
        return fail("numbers of new keys", "not that of the revoked one", "it");
    }
    same("pinned pages", pins + cookies.len() as i64, site::pins()?)?;
    socket
        .free_mr(revoked, 0)
        .must("FREE_MR of the revoked key")?;
    for cookie in cookies {
        alive(&socket, cookie, 0, "a key of another number")?;
        socket.free_mr(cookie, 0).must("FREE_MR")?;
    }
    socket
        .free_mr(revoked, 0)
        .must_fail(EINVAL, "FREE_MR again")
}
