// SPDX-License-Identifier: GPL-2.0
//! What is lost for good, since nothing proves that the HCA has let go. For a
//! guest of its own: run only when the filter names it.

use crate::check::{same, skip, Check, Outcome};
use crate::device::{second_device, Unplugged};
use crate::reload;
use crate::runner::Test;
use crate::site;
use rdsmr::abi::*;
use rdsmr::errno::*;
use rdsmr::socket::POLLPRI;
use rdsmr::{stat, Armed, Fault, Hammer, PAGE};

const KEYS: u64 = 5;

pub const TESTS: &[Test] = &[
    Test::leaking("leak.removal_without_any_proof", removal, KEYS as i64),
    Test::leaking("leak.a_late_yes_is_no_proof", late_yes, 1),
];

/// rxe gives up after 50 s and says yes: what it says then is not believed, and
/// there is nothing left to ask.
fn late_yes() -> Outcome {
    const LATE_MS: u32 = 46_000;
    if !Hammer::is_there() {
        return skip("needs rds_mr_kunit.ko, which can make verbs fail");
    }
    reload::with_params("proof=dereg")?;
    let (socket, map) = (site::bound()?, site::memory(PAGE)?);
    let before = site::pins()?;
    let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
    let slow = Armed::new(Fault::DeregSlow, 1, LATE_MS).must("arming a fault")?;
    socket
        .free_mr(cookie, 0)
        .must_fail(EIO, "FREE_MR that is done too late")?;
    drop(slow);
    same("pages that stay pinned", before + 1, site::pins()?)?;
    let counter = |name| stat::counter(name).must(format!("reading {name}"));
    same("leaked", 1, counter("leaked")?)?;
    same("quarantined", 0, counter("quarantined")?)?;
    // Nothing waits for what cannot come.
    drop(socket);
    same("pages that stay pinned", before + 1, site::pins()?)
}

/// The HCA goes while it refuses to deregister: the removal comes to its end,
/// the pages stay, and everybody who asks is told.
fn removal() -> Outcome {
    const ALWAYS: u32 = 1 << 30;
    if !Hammer::is_there() {
        return skip("needs rds_mr_kunit.ko, which can make verbs fail");
    }
    reload::with_params("revoke_timeout_ms=1000")?;
    let (socket, map) = (second_device()?, site::memory(KEYS * PAGE)?);
    map.fill(0x5a);
    let before = site::pins()?;
    let mut cookies = Vec::new();
    for n in 0..KEYS {
        let cookie = socket.get_mr(map.at(n * PAGE), PAGE, RDS_RDMA_READWRITE);
        cookies.push(cookie.must("GET_MR")?);
    }
    // proof=inv comes to a deregistration only when the invalidation fails.
    let cut = Armed::new(Fault::PostCut, ALWAYS, 0).must("arming a fault")?;
    let refuse = Armed::new(Fault::Dereg, ALWAYS, 0).must("arming a fault")?;
    let unplugged = Unplugged::new()?;
    drop((cut, refuse));
    same(
        "pages that stay pinned",
        before + KEYS as i64,
        site::pins()?,
    )?;
    let counter = |name| stat::counter(name).must(format!("reading {name}"));
    same("leaked", KEYS, counter("leaked")?)?;
    same("leaked_pages", KEYS, counter("leaked_pages")?)?;
    same("quarantined", 0, counter("quarantined")?)?;
    same("poll(POLLPRI)", POLLPRI, socket.poll(POLLPRI).must("poll")?)?;
    for _ in &cookies {
        let told = socket.revoked().must("SIOCRDSMRREVOKED")?;
        let why = (told.reason, told.flags);
        same("why", (RDS_MR_REVOKED_DEVICE, RDS_MR_REVOKED_UNPROVEN), why)?;
    }
    for cookie in &cookies {
        socket
            .free_mr(*cookie, 0)
            .must_fail(EIO, "FREE_MR of a key that was leaked")?;
    }
    drop(socket);
    // The HCA that comes back is another one.
    let back = unplugged.replug()?;
    let cookie = back.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
    back.free_mr(cookie, 0).must("FREE_MR")?;
    same(
        "pages that stay pinned",
        before + KEYS as i64,
        site::pins()?,
    )
}
