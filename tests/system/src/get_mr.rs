// SPDX-License-Identifier: GPL-2.0
//! RDS_GET_MR and RDS_GET_MR_FOR_DEST that work: what the key covers, to the
//! byte, and what it costs.

use crate::check::{holds, same, skip, Check, Outcome};
use crate::runner::Test;
use crate::site::{self, alive, byte_before, refused, Holdings};
use rdsmr::abi::*;
use rdsmr::errno::*;
use rdsmr::{mem, stat, Mapping, Socket, PAGE};
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

pub const TESTS: &[Test] = &[
    Test::new("get_mr.exact_bytes_aligned", aligned),
    Test::new("get_mr.exact_bytes_at_1", at_1),
    Test::new("get_mr.exact_bytes_at_4095", at_4095),
    Test::new("get_mr.largest", largest),
    Test::new("get_mr.untouched_memory", untouched),
    Test::new("get_mr.read_only_memory", read_only),
    Test::new("get_mr.shared_memory", shared),
    Test::new("get_mr.flags", flags),
    Test::new("get_mr.same_memory_twice", twice),
    Test::new("get_mr.cookie_places", cookie_places),
    Test::new("get_mr.without_a_cookie", without_cookie),
    Test::new("get_mr.over_ipv6", over_ipv6),
    Test::new("get_mr.for_dest", for_dest),
    Test::new("get_mr.survives_munmap", survives_munmap),
];

const LENGTHS: [u64; 5] = [1, 4095, 4096, 4097, MAX_BYTES];

/// The pages that a buffer touches.
fn pages(offset: u64, bytes: u64) -> u64 {
    (offset + bytes - 1) / PAGE + 1
}

/// Both edges: the first and the last byte are in, their neighbours are out.
fn exact(prober: &Socket, cookie: u64, bytes: u64, what: &str) -> Outcome {
    alive(prober, cookie, 0, what)?;
    alive(prober, cookie, bytes - 1, what)?;
    refused(
        prober,
        byte_before(cookie),
        0,
        format!("the byte before {what}"),
    )?;
    refused(prober, cookie, bytes, what)
}

fn aligned() -> Outcome {
    all_lengths(0)
}

fn at_1() -> Outcome {
    all_lengths(1)
}

fn at_4095() -> Outcome {
    all_lengths(4095)
}

fn all_lengths(offset: u64) -> Outcome {
    let (socket, prober) = (site::bound()?, site::bound()?);
    let map = site::memory(MAX_BYTES + 2 * PAGE)?;
    for bytes in LENGTHS {
        for flags in [0, RDS_RDMA_READWRITE] {
            let what = format!("{bytes} bytes at {offset}, flags {flags}");
            let before = Holdings::now()?;
            let cookie = socket.get_mr(map.at(offset), bytes, flags).must(&what)?;
            same(
                format!("offset in the cookie of {what}"),
                offset,
                cookie_offset(cookie),
            )?;
            before
                .plus(pages(offset, bytes))
                .are(format!("while {what} is registered"))?;
            exact(&prober, cookie, bytes, &what)?;
            socket
                .free_mr(cookie, 0)
                .must(format!("FREE_MR of {what}"))?;
            before.are(format!("after FREE_MR of {what}"))?;
            refused(&prober, cookie, 0, format!("the freed {what}"))?;
            refused(&prober, cookie, bytes - 1, format!("the freed {what}"))?;
        }
    }
    Ok(())
}

/// Only pages are limited, as in RDS: 257 of them, wherever the buffer starts.
fn largest() -> Outcome {
    let (socket, prober) = (site::bound()?, site::bound()?);
    let map = site::memory((MAX_PAGES + 2) * PAGE)?;
    for offset in [0, 1, 4095] {
        let fits = MAX_PAGES * PAGE - offset;
        let what = format!("{fits} bytes at {offset}");
        let cookie = socket.get_mr(map.at(offset), fits, 0).must(&what)?;
        exact(&prober, cookie, fits, &what)?;
        let result = socket.get_mr(map.at(offset), fits + 1, 0);
        result.must_fail(EMSGSIZE, format!("{} bytes at {offset}", fits + 1))?;
        socket.free_mr(cookie, 0).must("FREE_MR")?;
    }
    Ok(())
}

fn untouched() -> Outcome {
    let (socket, prober) = (site::bound()?, site::bound()?);
    for flags in [0, RDS_RDMA_READWRITE] {
        let map = site::memory(MAX_BYTES)?;
        let what = format!("memory that nobody has touched, flags {flags}");
        let cookie = socket.get_mr(map.at(0), MAX_BYTES, flags).must(&what)?;
        exact(&prober, cookie, MAX_BYTES, &what)?;
        // What the HCA sees is the process's page, not a copy that the first
        // write parts from it.
        let frame = || stat::frame(map.at(PAGE)).must("reading /proc/self/pagemap");
        let registered = frame()?;
        map.fill(0x5a);
        same(
            "page frame before and after the first write",
            registered,
            frame()?,
        )?;
        alive(&prober, cookie, PAGE, &what)?;
        socket.free_mr(cookie, 0).must("FREE_MR")?;
    }
    Ok(())
}

fn read_only() -> Outcome {
    if site::param("strict_access")? != "Y" {
        return skip("strict_access=0: every key is for writing, as in in-tree RDS");
    }
    let (socket, prober) = (site::bound()?, site::bound()?);
    let map = Mapping::read_only(2 * PAGE).must("mmap")?;
    let result = socket.get_mr(map.at(0), 2 * PAGE, RDS_RDMA_READWRITE);
    result.must_fail(EFAULT, "a writable key to PROT_READ memory")?;
    let cookie = socket
        .get_mr(map.at(0), 2 * PAGE, 0)
        .must("a readable key to it")?;
    exact(&prober, cookie, 2 * PAGE, "PROT_READ memory")?;

    let mixed = site::memory(2 * PAGE)?;
    mixed.protect(PAGE, PAGE, mem::READ).must("mprotect")?;
    let result = socket.get_mr(mixed.at(0), 2 * PAGE, RDS_RDMA_READWRITE);
    result.must_fail(EFAULT, "a writable key to half-writable memory")?;
    mixed.protect(PAGE, PAGE, mem::NONE).must("mprotect")?;
    let result = socket.get_mr(mixed.at(0), 2 * PAGE, 0);
    result.must_fail(EFAULT, "a readable key to half-readable memory")
}

fn shared() -> Outcome {
    let (socket, prober) = (site::bound()?, site::bound()?);
    let map = Mapping::shared(MAX_BYTES).must("memfd")?;
    for flags in [0, RDS_RDMA_READWRITE] {
        let cookie = socket
            .get_mr(map.at(1), MAX_BYTES - 1, flags)
            .must("a shared memfd")?;
        exact(&prober, cookie, MAX_BYTES - 1, "a shared memfd")?;
    }
    Ok(())
}

fn flags() -> Outcome {
    let (socket, prober) = (site::bound()?, site::bound()?);
    let map = site::memory(PAGE)?;
    let known = [
        RDS_RDMA_FENCE,
        RDS_RDMA_INVALIDATE,
        RDS_RDMA_USE_ONCE,
        RDS_RDMA_DONTWAIT,
        RDS_RDMA_NOTIFY_ME,
        RDS_RDMA_SILENT,
    ];
    let unknown = [0x80, 0x100, 1 << 31, 1 << 32, 1 << 63, u64::MAX];
    for flags in known.into_iter().chain(unknown) {
        let what = format!("flags {flags:#x}");
        let cookie = socket.get_mr(map.at(0), PAGE, flags).must(&what)?;
        alive(&prober, cookie, 0, &what)?;
        socket
            .free_mr(cookie, flags)
            .must(format!("FREE_MR with {what}"))?;
        refused(&prober, cookie, 0, format!("the freed key with {what}"))?;
    }
    Ok(())
}

fn twice() -> Outcome {
    let (socket, prober) = (site::bound()?, site::bound()?);
    let map = site::memory(PAGE)?;
    let before = Holdings::now()?;
    let first = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
    let second = socket
        .get_mr(map.at(0), PAGE, 0)
        .must("GET_MR of the same")?;
    holds("two keys are not one", first as u32 != second as u32)?;
    before.plus(2).are("with two keys to one page")?;
    socket.free_mr(first, 0).must("FREE_MR")?;
    refused(&prober, first, 0, "the freed one")?;
    alive(&prober, second, 0, "the other one")?;
    before.plus(1).are("with one of them left")
}

fn args(map: &Mapping, cookie_addr: u64) -> GetMrArgs {
    GetMrArgs {
        addr: map.at(0),
        bytes: PAGE,
        cookie_addr,
        flags: 0,
    }
}

/// Where the kernel put a cookie: eight bytes at any address.
fn cookie_in(map: &Mapping, offset: u64) -> u64 {
    let offset = offset as usize;
    let mut bytes = [0; 8];
    bytes
        .iter_mut()
        .zip(&map.bytes()[offset..])
        .for_each(|(b, m)| *b = m.load(Relaxed));
    u64::from_ne_bytes(bytes)
}

fn cookie_places() -> Outcome {
    let (socket, prober) = (site::bound()?, site::bound()?);
    let (map, place) = (site::memory(PAGE)?, site::memory(2 * PAGE)?);
    // Unaligned, across two pages, up to the very end.
    for offset in [0, 1, PAGE - 4, 2 * PAGE - 8] {
        let what = format!("cookie_addr {offset}");
        socket
            .get_mr_args(&args(&map, place.at(offset)))
            .must(&what)?;
        alive(&prober, cookie_in(&place, offset), 0, &what)?;
    }
    // Into the registered buffer itself.
    socket
        .get_mr_args(&args(&map, map.at(16)))
        .must("cookie_addr in the buffer")?;
    alive(
        &prober,
        cookie_in(&map, 16),
        0,
        "a key whose cookie is in its buffer",
    )
}

/// Legal, if of little use: nobody can name the key, and close ends it.
fn without_cookie() -> Outcome {
    let map = site::memory(PAGE)?;
    let before = Holdings::now()?;
    let socket = site::bound()?;
    socket.set_quota(1, 0).must("quota")?;
    socket
        .get_mr_args(&args(&map, 0))
        .must("GET_MR with cookie_addr 0")?;
    before.plus(1).are("with a key that nobody knows")?;
    let result = socket.get_mr(map.at(0), PAGE, 0);
    result.must_fail(EAGAIN, "a second key when the quota is one")?;
    drop(socket);
    before.are("after close")
}

fn over_ipv6() -> Outcome {
    let (socket, prober) = (
        site::bound_to(SocketAddr::new(site::v6(), 0))?,
        site::bound()?,
    );
    let map = site::memory(PAGE)?;
    let cookie = socket
        .get_mr(map.at(7), 100, 0)
        .must("GET_MR on an IPv6 socket")?;
    exact(
        &prober,
        cookie,
        100,
        "a key of an IPv6 socket, asked by an IPv4 one",
    )?;
    exact(
        &socket,
        cookie,
        100,
        "a key of an IPv6 socket, asked by itself",
    )
}

fn for_dest() -> Outcome {
    let (socket, prober) = (site::bound()?, site::bound()?);
    let map = site::memory(2 * PAGE)?;
    let dest = SocketAddr::new(site::peer(), 9);
    let cookie = socket
        .get_mr_for_dest(dest, map.at(4095), 2, 0)
        .must("GET_MR_FOR_DEST")?;
    same("offset in the cookie", 4095, cookie_offset(cookie))?;
    exact(&prober, cookie, 2, "a key for a destination")?;

    let place = site::memory(PAGE)?;
    for byte in [0, 0xff] {
        let mr = args(&map, place.at(0));
        let value = GetMrForDestArgs {
            dest: [byte; 128],
            mr,
        };
        let result = socket.setsockopt(SOL_RDS, RDS_GET_MR_FOR_DEST, value.as_bytes());
        result.must(format!("destination of {byte}s"))?;
        alive(
            &prober,
            cookie_in(&place, 0),
            0,
            "a key for no destination in particular",
        )?;
    }
    Ok(())
}

/// The key keeps the pages; the addresses may go.
fn survives_munmap() -> Outcome {
    let (socket, prober) = (site::bound()?, site::bound()?);
    let map = site::memory(4 * PAGE)?;
    let before = site::pins()?;
    let cookie = socket.get_mr(map.at(0), 4 * PAGE, 0).must("GET_MR")?;
    drop(map);
    alive(
        &prober,
        cookie,
        4 * PAGE - 1,
        "a key whose memory was unmapped",
    )?;
    same("pages pinned after munmap", before + 4, site::pins()?)?;
    socket.free_mr(cookie, 0).must("FREE_MR")?;
    same("pages pinned after FREE_MR", before, site::pins()?)?;
    refused(&prober, cookie, 0, "the freed key")
}
