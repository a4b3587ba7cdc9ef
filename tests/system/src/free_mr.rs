// SPDX-License-Identifier: GPL-2.0
//! RDS_FREE_MR: dead means dead, and only the owner's key.

use crate::check::{holds, same, Check, Outcome};
use crate::runner::Test;
use crate::site::{self, alive, refused, Holdings};
use rdsmr::abi::*;
use rdsmr::errno::*;
use rdsmr::PAGE;
use std::collections::HashSet;

pub const TESTS: &[Test] = &[
    Test::new("free_mr.ends_the_key", ends_the_key),
    Test::new("free_mr.twice", twice),
    Test::new("free_mr.lengths", lengths),
    Test::new("free_mr.cookie_0", cookie_0),
    Test::new("free_mr.unbound", unbound),
    Test::new("free_mr.foreign_cookies", foreign),
    Test::new("free_mr.offset_is_not_compared", offset_ignored),
    Test::new("free_mr.any_order", any_order),
    Test::new("free_mr.a_key_is_not_soon_issued_again", not_reissued),
];

/// Nothing is ever mapped there.
const NOWHERE: u64 = 8;

fn ends_the_key() -> Outcome {
    let (socket, prober) = (site::bound()?, site::bound()?);
    let map = site::memory(MAX_BYTES)?;
    let before = Holdings::now()?;
    for get in [0, RDS_RDMA_INVALIDATE] {
        for free in [0, RDS_RDMA_INVALIDATE, u64::MAX] {
            let what = format!("a key got with flags {get}, freed with {free:#x}");
            let flags = get | RDS_RDMA_READWRITE;
            let cookie = socket.get_mr(map.at(0), MAX_BYTES, flags).must(&what)?;
            alive(&prober, cookie, MAX_BYTES - 1, &what)?;
            socket.free_mr(cookie, free).must(&what)?;
            before.are(format!("after {what}"))?;
            for offset in [0, MAX_BYTES / 2, MAX_BYTES - 1] {
                refused(&prober, cookie, offset, &what)?;
            }
        }
    }
    Ok(())
}

fn twice() -> Outcome {
    let socket = site::bound()?;
    let map = site::memory(PAGE)?;
    let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
    socket.free_mr(cookie, 0).must("FREE_MR")?;
    for flags in [0, RDS_RDMA_INVALIDATE] {
        socket
            .free_mr(cookie, flags)
            .must_fail(EINVAL, "FREE_MR of a freed key")?;
    }
    Ok(())
}

fn lengths() -> Outcome {
    let socket = site::bound()?;
    let map = site::memory(PAGE)?;
    let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
    for socket in [&socket, &site::fresh()?] {
        for len in [0, 8, 15, 17, 32] {
            let mut bytes = FreeMrArgs { cookie, flags: 0 }.as_bytes().to_vec();
            bytes.resize(len, 0);
            let result = socket.setsockopt(SOL_RDS, RDS_FREE_MR, &bytes);
            result.must_fail(EINVAL, format!("FREE_MR, {len} bytes"))?;
            let result = socket.setsockopt_at(SOL_RDS, RDS_FREE_MR, NOWHERE, len as i32);
            result.must_fail(EINVAL, format!("FREE_MR, {len} bytes from nowhere"))?;
        }
        let result = socket.setsockopt_at(SOL_RDS, RDS_FREE_MR, NOWHERE, 16);
        result.must_fail(EFAULT, "FREE_MR from nowhere")?;
    }
    alive(&site::bound()?, cookie, 0, "the key after all that")
}

/// A barrier for keys that are already freed. rds-stress asks it whether RDMA
/// works here at all.
fn cookie_0() -> Outcome {
    let (socket, prober) = (site::bound()?, site::bound()?);
    let map = site::memory(PAGE)?;
    for flags in [0, RDS_RDMA_INVALIDATE, u64::MAX] {
        socket
            .free_mr(0, flags)
            .must("FREE_MR of cookie 0, no key there")?;
    }
    let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
    let before = Holdings::now()?;
    socket
        .free_mr(0, RDS_RDMA_INVALIDATE)
        .must("FREE_MR of cookie 0")?;
    alive(&prober, cookie, 0, "a key that was not named")?;
    before.are("after FREE_MR of cookie 0")
}

fn unbound() -> Outcome {
    let socket = site::fresh()?;
    socket
        .free_mr(0, 0)
        .must_fail(EINVAL, "FREE_MR of cookie 0 without a transport")?;
    socket
        .free_mr(1, 0)
        .must_fail(EINVAL, "FREE_MR of cookie 1 without a transport")?;
    socket
        .set_int(SOL_RDS, SO_RDS_TRANSPORT, RDS_TRANS_IB)
        .must("choosing IB")?;
    socket
        .free_mr(0, 0)
        .must("FREE_MR of cookie 0 with a transport, unbound")?;
    socket
        .free_mr(1, 0)
        .must_fail(EINVAL, "FREE_MR of cookie 1, unbound")
}

fn foreign() -> Outcome {
    let (owner, other) = (site::bound()?, site::bound()?);
    let map = site::memory(PAGE)?;
    let cookie = owner.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
    let mine = other
        .get_mr(map.at(0), PAGE, 0)
        .must("GET_MR of the other socket")?;
    other
        .free_mr(cookie, 0)
        .must_fail(EINVAL, "FREE_MR of another socket's key")?;
    site::fresh()?
        .free_mr(cookie, 0)
        .must_fail(EINVAL, "the same, by an unbound socket")?;
    // The key byte alone is wrong, or the index alone, or everything.
    let wrong = [
        cookie ^ 1,
        cookie ^ 0xff,
        cookie ^ 0x100,
        cookie ^ 0x8000_0000,
        !cookie,
        1 << 32,
    ];
    for guess in wrong {
        owner
            .free_mr(guess, 0)
            .must_fail(EINVAL, format!("FREE_MR of {guess:#x}"))?;
    }
    alive(&other, cookie, 0, "the key that others tried to free")?;
    alive(&owner, mine, 0, "the other socket's key")?;
    let before = site::pins()?;
    owner.free_mr(cookie, 0).must("FREE_MR by the owner")?;
    same(
        "pages pinned after the owner's FREE_MR",
        before - 1,
        site::pins()?,
    )
}

fn offset_ignored() -> Outcome {
    let (socket, prober) = (site::bound()?, site::bound()?);
    let map = site::memory(PAGE)?;
    for change in [1 << 32, 0xdead << 32, u64::MAX << 32] {
        let cookie = socket.get_mr(map.at(5), 10, 0).must("GET_MR")?;
        let what = format!("FREE_MR with offset bits {change:#x} wrong");
        socket.free_mr(cookie ^ change, 0).must(&what)?;
        refused(&prober, cookie, 0, &what)?;
        socket
            .free_mr(cookie, 0)
            .must_fail(EINVAL, "FREE_MR of it again")?;
    }
    Ok(())
}

fn any_order() -> Outcome {
    const KEYS: u64 = 64;
    let (socket, prober) = (site::bound()?, site::bound()?);
    let map = site::memory(KEYS * PAGE)?;
    let before = Holdings::now()?;
    let get = |n: u64| socket.get_mr(map.at(n * PAGE), PAGE, 0).must("GET_MR");
    let cookies: Vec<u64> = (0..KEYS).map(get).collect::<Result<_, _>>()?;
    // 37 and 64 have no common factor, so this names each once.
    for step in 0..KEYS {
        let now = (step * 37 % KEYS) as usize;
        socket
            .free_mr(cookies[now], 0)
            .must(format!("FREE_MR of key {now}"))?;
        before
            .plus(KEYS - 1 - step)
            .are(format!("after {} frees", step + 1))?;
        refused(&prober, cookies[now], 0, format!("freed key {now}"))?;
        if step + 1 < KEYS {
            let next = ((step + 1) * 37 % KEYS) as usize;
            alive(
                &prober,
                cookies[next],
                0,
                format!("key {next}, to be freed next"),
            )?;
        }
    }
    Ok(())
}

/// Whoever remembers a freed key must not hit the next one by it.
fn not_reissued() -> Outcome {
    const ROUNDS: usize = 200;
    let (socket, prober) = (site::bound()?, site::bound()?);
    let map = site::memory(PAGE)?;
    let mut seen = HashSet::new();
    let mut last = None;
    for round in 0..ROUNDS {
        let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
        let new = seen.insert(cookie as u32);
        holds(format!("the key of round {round} was not used before"), new)?;
        if let (Some(old), 0) = (last, round % 20) {
            refused(&prober, old, 0, "the key of the round before")?;
            alive(&prober, cookie, 0, "this round's key")?;
        }
        socket.free_mr(cookie, 0).must("FREE_MR")?;
        last = Some(cookie);
    }
    same("different keys", ROUNDS, seen.len())
}
