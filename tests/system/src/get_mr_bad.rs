// SPDX-License-Identifier: GPL-2.0
//! RDS_GET_MR that must fail: with which errno, in which order, and leaving
//! nothing behind.

use crate::check::{apart, same, skip, Check, End, Outcome};
use crate::runner::Test;
use crate::site::{self, Holdings};
use rdsmr::abi::*;
use rdsmr::errno::*;
use rdsmr::process::{become_user, limit_memlock};
use rdsmr::{mem, Mapping, Socket, PAGE};

pub const TESTS: &[Test] = &[
    Test::new("get_mr.lengths_of_the_option", option_lengths),
    Test::new("get_mr.order_when_unbound", order_unbound),
    Test::new("get_mr.order_when_the_quota_is_used_up", order_quota),
    Test::new("get_mr.order_without_the_right_to_lock", order_unprivileged),
    Test::new("get_mr.hostile_addresses", hostile_addresses),
    Test::new("get_mr.hostile_lengths", hostile_lengths),
    Test::new("get_mr.half_mapped", half_mapped),
    Test::new("get_mr.secret_memory", secret_memory),
    Test::new("get_mr.bad_cookie_addr", bad_cookie_addr),
    Test::new("get_mr.bad_cookie_addr_1000_times", bad_cookie_addr_often),
];

/// Nothing is ever mapped there.
const NOWHERE: u64 = 8;
/// Where user space ends with four levels of page tables.
const USER_END: u64 = 0x7fff_ffff_f000;

fn args(addr: u64, bytes: u64) -> GetMrArgs {
    GetMrArgs {
        addr,
        bytes,
        ..Default::default()
    }
}

/// A socket that may hold one key of one page's worth of keys: whatever a failed
/// call forgets to give back makes the next good call fail.
struct Narrow {
    socket: Socket,
    map: Mapping,
    before: Holdings,
}

impl Narrow {
    fn new() -> Result<Self, End> {
        let (socket, map) = (site::bound()?, site::memory(PAGE)?);
        map.fill(1);
        socket.set_quota(1, MAX_PAGES).must("quota of one key")?;
        Ok(Narrow {
            socket,
            map,
            before: Holdings::now()?,
        })
    }

    fn must_fail(&self, args: &GetMrArgs, errno: i32, what: &str) -> Outcome {
        self.socket.get_mr_args(args).must_fail(errno, what)?;
        self.nothing_left(what)
    }

    fn nothing_left(&self, what: &str) -> Outcome {
        self.before.are(format!("after {what}"))?;
        let good = self.socket.get_mr(self.map.at(0), PAGE, 0);
        let cookie = good.must(format!("the one key that the quota allows, after {what}"))?;
        self.socket.free_mr(cookie, 0).must("FREE_MR")
    }
}

fn option_lengths() -> Outcome {
    let map = site::memory(PAGE)?;
    let value = GetMrForDestArgs {
        dest: [0; 128],
        mr: args(map.at(0), PAGE),
    };
    for (name, right) in [(RDS_GET_MR, 32), (RDS_GET_MR_FOR_DEST, 160)] {
        for (socket, how) in [(site::fresh()?, "unbound"), (site::bound()?, "bound")] {
            for len in [0, 1, 16, 31, 32, 33, 64, 159, 160, 161] {
                if len == right {
                    continue;
                }
                let what = format!("option {name}, {len} bytes, {how}");
                let result = socket.setsockopt_at(SOL_RDS, name, NOWHERE, len);
                result.must_fail(EINVAL, format!("{what}, from nowhere"))?;
                let mut bytes = value.as_bytes().to_vec();
                bytes.resize(len as usize, 0);
                socket
                    .setsockopt(SOL_RDS, name, &bytes)
                    .must_fail(EINVAL, what)?;
            }
            let result = socket.setsockopt_at(SOL_RDS, name, NOWHERE, right);
            result.must_fail(EFAULT, format!("option {name} from nowhere, {how}"))?;
        }
    }
    Ok(())
}

/// Each call breaks two rules; the earlier one must be named.
fn order_unbound() -> Outcome {
    let map = site::memory(2 * MAX_BYTES)?;
    let wrapping = args(u64::MAX, 2);
    let unbound = site::fresh()?;
    for bad in [
        wrapping,
        args(map.at(0), 0),
        args(map.at(0), 2 * MAX_BYTES),
        args(NOWHERE, 1),
    ] {
        let result = unbound.get_mr_args(&bad);
        result.must_fail(ENOTCONN, format!("unbound before anything about {bad:?}"))?;
    }
    let chosen = site::fresh()?;
    chosen
        .set_int(SOL_RDS, SO_RDS_TRANSPORT, RDS_TRANS_IB)
        .must("choosing IB")?;
    let result = chosen.get_mr_args(&wrapping);
    result.must_fail(
        ENOTCONN,
        "with a transport but unbound, before the overflow",
    )
}

/// The quota comes after all that can be told from the numbers alone.
fn order_quota() -> Outcome {
    let map = site::memory(2 * MAX_BYTES)?;
    let wrapping = args(u64::MAX, 2);
    let full = Narrow::new()?;
    let cookie = full
        .socket
        .get_mr(full.map.at(0), PAGE, 0)
        .must("the only key")?;
    let fails = |args: GetMrArgs, errno: i32, what: &str| {
        full.socket.get_mr_args(&args).must_fail(errno, what)
    };
    fails(wrapping, EINVAL, "overflow before the quota")?;
    fails(args(map.at(0), 0), EINVAL, "no bytes before the quota")?;
    fails(
        args(map.at(0), 1 << 32),
        EINVAL,
        "4 GiB: no 32-bit length before too many pages",
    )?;
    fails(
        args(map.at(0), 2 * MAX_BYTES),
        EMSGSIZE,
        "too many pages before the quota",
    )?;
    fails(
        args(NOWHERE, 2 * MAX_BYTES),
        EMSGSIZE,
        "too many pages before unmapped ones",
    )?;
    fails(
        args(NOWHERE, PAGE),
        EAGAIN,
        "the quota before unmapped pages",
    )?;
    let bad_cookie = GetMrArgs {
        cookie_addr: NOWHERE,
        ..args(map.at(0), PAGE)
    };
    fails(bad_cookie, EAGAIN, "the quota before cookie_addr")?;
    full.socket.free_mr(cookie, 0).must("FREE_MR")?;
    full.nothing_left("all these")
}

/// The right to lock is asked for after the overflow and before the rest.
fn order_unprivileged() -> Outcome {
    let map = site::memory(2 * MAX_BYTES)?;
    apart("a user whose RLIMIT_MEMLOCK is 0", |_| {
        limit_memlock(0).must("setrlimit")?;
        become_user(site::USER).must("setuid")?;
        let unbound = site::fresh()?;
        let result = unbound.get_mr(map.at(0), PAGE, 0);
        result.must_fail(ENOTCONN, "unbound before the right to lock")?;
        let socket = site::bound()?;
        for (addr, bytes, errno, what) in [
            (u64::MAX, 2, EINVAL, "overflow before the right to lock"),
            (
                u64::MAX - 4094,
                4094,
                EINVAL,
                "overflow of the rounded end before it",
            ),
            (map.at(0), 0, EPERM, "the right to lock before no bytes"),
            (
                map.at(0),
                1 << 32,
                EPERM,
                "the right to lock before no 32-bit length",
            ),
            (
                map.at(0),
                2 * MAX_BYTES,
                EPERM,
                "the right to lock before too many pages",
            ),
            (NOWHERE, 1, EPERM, "the right to lock before unmapped pages"),
            (
                map.at(0),
                PAGE,
                EPERM,
                "the right to lock, nothing else wrong",
            ),
        ] {
            socket.get_mr(addr, bytes, 0).must_fail(errno, what)?;
        }
        Ok(())
    })
}

fn hostile_addresses() -> Outcome {
    let narrow = Narrow::new()?;
    let hostile = [
        ("NULL", 0),
        ("the first page", 4095),
        ("the end of user space", USER_END - PAGE),
        ("across the end of user space", USER_END - 1),
        ("behind the end of user space", USER_END),
        ("the first non-canonical address", 1 << 47),
        ("the middle of the non-canonical hole", 1 << 63),
        ("the last non-canonical address", 0xffff_7fff_ffff_f000),
        ("the kernel's direct map", 0xffff_8880_0000_0000),
        ("the kernel's text", 0xffff_ffff_8100_0000),
        ("the kernel's modules", 0xffff_ffff_c000_0000),
        ("the last page but one", 0xffff_ffff_ffff_e000),
    ];
    for (what, addr) in hostile {
        for flags in [0, RDS_RDMA_READWRITE] {
            for bytes in [1, PAGE] {
                let args = GetMrArgs {
                    flags,
                    ..args(addr, bytes)
                };
                narrow.must_fail(&args, EFAULT, &format!("{bytes} bytes at {what}"))?;
            }
        }
    }
    Ok(())
}

fn hostile_lengths() -> Outcome {
    let narrow = Narrow::new()?;
    let good = narrow.map.at(0);
    let cases = [
        (good, 0, EINVAL),
        (0, 0, EINVAL),
        // The end exceeds 64 bits.
        (u64::MAX, 1, EINVAL),
        (u64::MAX, 2, EINVAL),
        (u64::MAX - 4095, PAGE, EINVAL),
        (good, u64::MAX, EINVAL),
        (good, u64::MAX - good + 1, EINVAL),
        // The end fits, but not when it is rounded up to a page.
        (good, u64::MAX - good, EINVAL),
        (u64::MAX - 4095, 1, EINVAL),
        (u64::MAX - 4095, 4095, EINVAL),
        // Everything fits but the length into 32 bits; cut, it would be harmless.
        (good, 1 << 32, EINVAL),
        (good, (1 << 32) + 1, EINVAL),
        (good, (1 << 63) + 1, EINVAL),
        (good, 1 << 33, EINVAL),
        // Too many pages.
        (good, u64::from(u32::MAX), EMSGSIZE),
        (good, 1 << 31, EMSGSIZE),
        (good, MAX_PAGES * PAGE + 1, EMSGSIZE),
        (good + 4095, MAX_BYTES + 2, EMSGSIZE),
    ];
    for (addr, bytes, errno) in cases {
        let what = format!("{bytes:#x} bytes at {addr:#x}");
        narrow.must_fail(&args(addr, bytes), errno, &what)?;
    }
    Ok(())
}

fn half_mapped() -> Outcome {
    let narrow = Narrow::new()?;
    let mut map = site::memory(16 * PAGE)?;
    for flags in [0, RDS_RDMA_READWRITE] {
        let at = |addr, bytes| GetMrArgs {
            flags,
            ..args(addr, bytes)
        };
        let over = at(map.at(15 * PAGE), PAGE + 1);
        narrow.must_fail(&over, EFAULT, "one byte over the end")?;
        let under = at(map.at(0) - 1, PAGE);
        narrow.must_fail(&under, EFAULT, "one byte before the start")?;
        map.protect(7 * PAGE, PAGE, mem::NONE).must("mprotect")?;
        narrow.must_fail(&at(map.at(0), 16 * PAGE), EFAULT, "a hole in the middle")?;
        map.protect(7 * PAGE, PAGE, mem::READ_WRITE)
            .must("mprotect")?;
    }
    map.truncate(8 * PAGE).must("munmap")?;
    for flags in [0, RDS_RDMA_READWRITE] {
        let half = GetMrArgs {
            flags,
            ..args(map.at(0), 16 * PAGE)
        };
        narrow.must_fail(&half, EFAULT, "a second half that is not mapped")?;
    }
    Ok(())
}

fn secret_memory() -> Outcome {
    let map = match Mapping::secret(PAGE) {
        Ok(map) => map,
        Err(error) => return skip(format!("no memfd_secret: {}", describe(&error))),
    };
    let narrow = Narrow::new()?;
    narrow.must_fail(&args(map.at(0), PAGE), EFAULT, "secret memory, untouched")?;
    map.fill(1);
    narrow.must_fail(&args(map.at(0), PAGE), EFAULT, "secret memory")
}

fn bad_cookie_addrs(read_only: &Mapping, end: &Mapping) -> [(&'static str, u64); 7] {
    [
        ("nowhere", NOWHERE),
        ("the kernel", 0xffff_8880_0000_0000),
        ("a non-canonical address", 1 << 47),
        ("the end of all addresses", u64::MAX - 3),
        ("behind user space", USER_END),
        ("a read-only page", read_only.at(0)),
        ("the last four bytes of a mapping", end.at(PAGE - 4)),
    ]
}

fn bad_cookie_addr() -> Outcome {
    let narrow = Narrow::new()?;
    let read_only = Mapping::read_only(PAGE).must("mmap")?;
    let end = site::memory(PAGE)?;
    for (what, cookie_addr) in bad_cookie_addrs(&read_only, &end) {
        for (bytes, flags) in [(PAGE, 0), (1, RDS_RDMA_READWRITE)] {
            let args = GetMrArgs {
                cookie_addr,
                flags,
                ..args(narrow.map.at(0), bytes)
            };
            narrow.must_fail(&args, EFAULT, &format!("cookie_addr in {what}"))?;
        }
    }
    same(
        "bytes of the read-only page",
        0,
        read_only.snapshot().iter().sum::<u64>(),
    )
}

/// What a single failure forgets may hide; a thousand do not.
fn bad_cookie_addr_often() -> Outcome {
    let narrow = Narrow::new()?;
    let args = GetMrArgs {
        cookie_addr: NOWHERE,
        ..args(narrow.map.at(0), PAGE)
    };
    for round in 0..1000 {
        let result = narrow.socket.get_mr_args(&args);
        result.must_fail(EFAULT, format!("cookie_addr nowhere, round {round}"))?;
    }
    narrow.nothing_left("a thousand bad cookie_addrs")
}
