// SPDX-License-Identifier: GPL-2.0
//! RLIMIT_MEMLOCK, to the page.

use crate::check::{apart, in_threads, same, skip, Check, Outcome};
use crate::runner::Test;
use crate::site;
use rdsmr::errno::*;
use rdsmr::process::{become_user, limit_memlock, new_user_namespace};
use rdsmr::{stat, Socket, PAGE};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub const TESTS: &[Test] = &[
    Test::new("memlock.by_one_page", by_one_page),
    Test::new("memlock.parts_of_a_page_do_not_count", parts_of_a_page),
    Test::new("memlock.nothing_at_all", nothing),
    Test::new("memlock.root_is_exempt", root),
    Test::new("memlock.root_of_a_user_namespace_is_not", namespace_root),
    Test::new("memlock.shared_by_the_sockets_of_a_process", sockets_share),
    Test::new("memlock.each_process_has_its_own", processes_do_not),
    Test::new("memlock.what_fits_never_fails", fits_never_fails),
];

/// In a process of a user who may lock so much.
fn as_user(limit: u64, body: impl FnOnce() -> Outcome) -> Outcome {
    apart(&format!("a user with RLIMIT_MEMLOCK {limit}"), |_| {
        limit_memlock(limit).must("setrlimit")?;
        become_user(site::USER).must("setuid")?;
        body()
    })
}

fn vm_pin_must_be(pages: u64, what: &str) -> Outcome {
    same(
        format!("VmPin {what}"),
        pages * 4,
        stat::own_vm_pin_kib().must("VmPin")?,
    )
}

/// Four pages and no more.
fn exactly_four(socket: &Socket) -> Outcome {
    let map = site::memory(8 * PAGE)?;
    let get = |offset: u64, bytes: u64| socket.get_mr(map.at(offset), bytes, 0);
    get(0, 4 * PAGE + 1).must_fail(ENOMEM, "5 pages at once")?;
    get(1, 4 * PAGE).must_fail(ENOMEM, "5 pages at once, since they are not aligned")?;
    vm_pin_must_be(0, "after what was refused")?;
    let three = get(0, 3 * PAGE).must("3 pages")?;
    get(PAGE - 1, 2).must_fail(ENOMEM, "2 more pages, with one byte each")?;
    vm_pin_must_be(3, "with 3 pages")?;
    let one = get(0, 1).must("the 4th page, although it is pinned already")?;
    for _ in 0..3 {
        get(0, 1).must_fail(ENOMEM, "the 5th page")?;
    }
    vm_pin_must_be(4, "with 4 pages")?;
    for cookie in [three, one] {
        socket.free_mr(cookie, 0).must("FREE_MR")?;
    }
    vm_pin_must_be(0, "after FREE_MR")?;
    let four = get(0, 4 * PAGE).must("4 pages at once")?;
    socket.free_mr(four, 0).must("FREE_MR")
}

fn by_one_page() -> Outcome {
    as_user(4 * PAGE, || exactly_four(&site::bound()?))
}

fn parts_of_a_page() -> Outcome {
    as_user(5 * PAGE - 1, || exactly_four(&site::bound()?))
}

fn nothing() -> Outcome {
    as_user(0, || {
        let (socket, map) = (site::bound()?, site::memory(PAGE)?);
        socket
            .get_mr(map.at(0), 1, 0)
            .must_fail(EPERM, "one byte with RLIMIT_MEMLOCK 0")
    })?;
    // Less than a page is a right, but one that nothing fits into.
    as_user(PAGE - 1, || {
        let (socket, map) = (site::bound()?, site::memory(PAGE)?);
        socket
            .get_mr(map.at(0), 1, 0)
            .must_fail(ENOMEM, "one byte with less than a page")
    })
}

fn root() -> Outcome {
    for limit in [0, PAGE] {
        apart("root", |_| {
            limit_memlock(limit).must("setrlimit")?;
            let (socket, map) = (site::bound()?, site::memory(4 * PAGE)?);
            socket
                .get_mr(map.at(0), 4 * PAGE, 0)
                .must(format!("4 pages over a limit of {limit}"))?;
            vm_pin_must_be(
                4,
                "of root, who is exempt from the limit, not from the count",
            )
        })?;
    }
    Ok(())
}

fn namespace_root() -> Outcome {
    as_user(4 * PAGE, || {
        if new_user_namespace().is_err() {
            return skip("unshare(CLONE_NEWUSER) is not possible here");
        }
        exactly_four(&site::bound()?)
    })
}

fn sockets_share() -> Outcome {
    as_user(4 * PAGE, || {
        let map = site::memory(4 * PAGE)?;
        let first = site::bound()?;
        first
            .get_mr(map.at(0), 3 * PAGE, 0)
            .must("3 pages on one socket")?;
        let second = site::bound()?;
        second
            .get_mr(map.at(0), 2 * PAGE, 0)
            .must_fail(ENOMEM, "2 on another")?;
        second.get_mr(map.at(0), PAGE, 0).must("1 on another")?;
        drop(first);
        vm_pin_must_be(1, "after the close of one socket")?;
        exactly_one_left_of_four(&second, map.at(0))
    })
}

fn exactly_one_left_of_four(socket: &Socket, addr: u64) -> Outcome {
    socket
        .get_mr(addr, 4 * PAGE, 0)
        .must_fail(ENOMEM, "4 pages with 1 in use")?;
    socket
        .get_mr(addr, 3 * PAGE, 0)
        .must("3 pages with 1 in use")
        .map(drop)
}

fn processes_do_not() -> Outcome {
    as_user(4 * PAGE, || {
        let map = site::memory(4 * PAGE)?;
        let socket = site::bound()?;
        socket.get_mr(map.at(0), 4 * PAGE, 0).must("4 pages")?;
        apart("a child", |_| {
            vm_pin_must_be(0, "of a child, whose memory is another")?;
            exactly_four(&site::bound()?)
        })?;
        socket
            .get_mr(map.at(0), 1, 0)
            .must_fail(ENOMEM, "one more in the parent")
    })
}

/// A request too large, over and over, must not make one fail that fits: adding
/// first and looking at the limit afterwards would.
fn fits_never_fails() -> Outcome {
    const ROUNDS: usize = 400;
    as_user(4 * PAGE, || {
        let socket = site::bound()?;
        let map = site::memory(8 * PAGE)?;
        let ended = AtomicUsize::new(0);
        let turn = AtomicUsize::new(0);
        in_threads(4, || {
            let fitting = turn.fetch_add(1, Relaxed) % 2 == 0;
            while !fitting && ended.load(Relaxed) < 2 {
                socket
                    .get_mr(map.at(0), 5 * PAGE, 0)
                    .must_fail(ENOMEM, "5 pages of 4")?;
            }
            for _ in 0..if fitting { ROUNDS } else { 0 } {
                // Two threads with two pages each always fit into four.
                let got = socket.get_mr(map.at(0), 2 * PAGE, 0).must("2 of 4 pages");
                let freed = got.and_then(|cookie| socket.free_mr(cookie, 0).must("FREE_MR"));
                freed.inspect_err(|_| ended.store(2, Relaxed))?;
            }
            ended.fetch_add(usize::from(fitting), Relaxed);
            Ok(())
        })?;
        vm_pin_must_be(0, "at the end")
    })
}
