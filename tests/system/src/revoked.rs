// SPDX-License-Identifier: GPL-2.0
//! Keys that ended without their socket having asked for it: what the socket is
//! told, and what it keeps. `order` has more, for the death of an owner.

use crate::check::{helper, holds, same, Check, End, Outcome};
use crate::device::{second_device, Unplugged};
use crate::runner::Test;
use crate::site::{self, bound};
use rdsmr::abi::*;
use rdsmr::errno::*;
use rdsmr::socket::POLLPRI;
use rdsmr::{fd, Socket, PAGE};
use std::os::fd::AsRawFd;

pub const TESTS: &[Test] = &[
    Test::new("revoked.arguments", arguments),
    Test::new("revoked.by_unplug", by_unplug),
    Test::new("revoked.freeing_takes_the_news_back", freed_first),
    Test::new("revoked.keeps_its_place_in_the_quota", keeps_its_place),
    Test::new("revoked.wakes_who_polls", wakes),
    Test::new("revoked.not_what_the_application_ended", not_by_us),
];

const KEYS: u64 = 3;

/// A socket of ours with keys of a child that has died.
pub fn orphaned(keys: u64) -> Result<(Socket, Vec<u64>), End> {
    let socket = bound()?;
    let mut child = helper("owner", |link| {
        let map = site::memory(keys * PAGE)?;
        let get = |n| socket.get_mr(map.at(n * PAGE), PAGE, 0).must("GET_MR");
        let cookies: Result<Vec<u64>, End> = (0..keys).map(get).collect();
        link.tell(&cookies?).must("telling the test")?;
        link.hear().must("the test's word").map(drop)
    })?;
    let cookies = child.link().hear().must("the owner's cookies")?;
    child.kill().must("kill -9")?;
    Ok((socket, cookies))
}

fn news(socket: &Socket, count: usize) -> Result<Vec<Revoked>, End> {
    let next = |_| socket.revoked().must("SIOCRDSMRREVOKED");
    let all: Result<Vec<Revoked>, End> = (0..count).map(next).collect();
    no_news(socket)?;
    all
}

fn no_news(socket: &Socket) -> Outcome {
    socket
        .revoked()
        .must_fail(EAGAIN, "SIOCRDSMRREVOKED with nothing to tell")?;
    same("poll(POLLPRI) then", 0, socket.poll(POLLPRI).must("poll")?)
}

fn sorted(mut cookies: Vec<u64>) -> Vec<u64> {
    cookies.sort_unstable();
    cookies
}

fn arguments() -> Outcome {
    let unbound = site::fresh()?;
    no_news(&unbound)?;
    let (socket, cookies) = orphaned(1)?;
    let mut flagged = Revoked {
        flags: 2,
        ..Default::default()
    };
    socket
        .ioctl(SIOCRDSMRREVOKED, &mut flagged)
        .must_fail(EINVAL, "SIOCRDSMRREVOKED with a flag")?;
    let map = site::memory(PAGE)?;
    for (addr, what) in [(0, "NULL"), (map.at(PAGE), "no memory")] {
        let result = socket.ioctl_at(SIOCRDSMRREVOKED, addr);
        result.must_fail(EFAULT, format!("SIOCRDSMRREVOKED with {what}"))?;
    }
    map.protect(0, PAGE, rdsmr::mem::READ).must("mprotect")?;
    socket
        .ioctl_at(SIOCRDSMRREVOKED, map.at(0))
        .must_fail(EFAULT, "SIOCRDSMRREVOKED with read-only memory")?;
    // What could not be told is told now.
    let told = news(&socket, 1)?;
    same("the key that was told", cookies[0], told[0].cookie)
}

fn by_unplug() -> Outcome {
    let (socket, map) = (second_device()?, site::memory(KEYS * PAGE)?);
    let get = |n| socket.get_mr(map.at(n * PAGE), PAGE, 0).must("GET_MR");
    let cookies: Result<Vec<u64>, End> = (0..KEYS).map(get).collect();
    let cookies = cookies?;
    no_news(&socket)?;
    let unplugged = Unplugged::new()?;
    same("poll(POLLPRI)", POLLPRI, socket.poll(POLLPRI).must("poll")?)?;
    let told = news(&socket, cookies.len())?;
    let why = |news: &Revoked| (news.reason, news.flags) == (RDS_MR_REVOKED_DEVICE, 0);
    holds(
        "each is told to have ended with its HCA, proven",
        told.iter().all(why),
    )?;
    let told = told.iter().map(|news| news.cookie).collect();
    same(
        "the keys that were told",
        sorted(cookies.clone()),
        sorted(told),
    )?;
    for cookie in &cookies {
        socket
            .free_mr(*cookie, 0)
            .must("FREE_MR of a revoked key")?;
    }
    unplugged.replug().map(drop)
}

fn freed_first() -> Outcome {
    let (socket, cookies) = orphaned(KEYS)?;
    socket
        .free_mr(cookies[1], 0)
        .must("FREE_MR of a revoked key")?;
    let told = news(&socket, cookies.len() - 1)?;
    let told = told.iter().map(|news| news.cookie).collect();
    same(
        "the keys that were told",
        sorted(vec![cookies[0], cookies[2]]),
        sorted(told),
    )
}

fn keeps_its_place() -> Outcome {
    let (socket, cookies) = orphaned(KEYS)?;
    socket.set_quota(KEYS as u32, 0).must("setting a quota")?;
    let map = site::memory(PAGE)?;
    let get = || socket.get_mr(map.at(0), PAGE, 0);
    get().must_fail(EAGAIN, "GET_MR when revoked keys fill the quota")?;
    socket
        .free_mr(cookies[0], 0)
        .must("FREE_MR of a revoked key")?;
    let cookie = get().must("GET_MR in its place")?;
    get().must_fail(EAGAIN, "one more")?;
    socket.free_mr(cookie, 0).must("FREE_MR").map(drop)
}

/// Somebody who sleeps in poll() is woken by the death.
fn wakes() -> Outcome {
    let socket = bound()?;
    let mut owner = helper("owner", |link| {
        let map = site::memory(PAGE)?;
        let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
        link.tell(&[cookie]).must("telling the test")?;
        link.hear().must("the test's word").map(drop)
    })?;
    owner.link().hear().must("the owner's cookie")?;
    let poller = helper("poller", |link| {
        link.tell(&[]).must("telling the test")?;
        let woken = fd::has_news(socket.as_raw_fd(), site::PATIENCE).must("poll")?;
        holds("poll() is woken", woken)
    })?;
    poller.link().hear().must("the poller's word")?;
    owner.kill().must("kill -9")?;
    crate::check::join("poller", poller)
}

fn not_by_us() -> Outcome {
    let (socket, map) = (bound()?, site::memory(PAGE)?);
    let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
    socket.free_mr(cookie, 0).must("FREE_MR")?;
    no_news(&socket)
}
