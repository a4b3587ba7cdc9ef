// SPDX-License-Identifier: GPL-2.0
//! The quota of a socket, and the ceilings on users and devices above it.

use crate::check::{apart, in_threads, same, skip, Check, End, Outcome};
use crate::runner::Test;
use crate::site::{self, alive, bound, Holdings};
use rdsmr::abi::*;
use rdsmr::errno::*;
use rdsmr::process::{become_user, new_user_namespace};
use rdsmr::{Socket, PAGE};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub const TESTS: &[Test] = &[
    Test::new("quota.default", default),
    Test::new("quota.set_and_get", set_and_get),
    Test::new("quota.arguments", arguments),
    Test::new("quota.by_one_key", by_one_key),
    Test::new("quota.by_one_page", by_one_page),
    Test::new("quota.below_use", below_use),
    Test::new("quota.raising_needs_rights", raising),
    Test::new("quota.raising_in_a_user_namespace", raising_in_namespace),
    Test::new("quota.exact_with_4_threads", exact_with_threads),
];

/// Nothing is ever mapped there.
const NOWHERE: u64 = 8;

fn ceiling() -> Result<Quota, End> {
    let number = |name: &str| {
        let text = site::param(name)?;
        text.parse::<u64>()
            .or_else(|_| skip(format!("parameter {name} is \"{text}\"")))
    };
    let max_keys = number("max_keys_per_socket")? as u32;
    Ok(Quota {
        max_keys,
        flags: 0,
        max_pages: number("max_pages_per_socket")?,
    })
}

fn by_ioctl(socket: &Socket) -> Result<Quota, End> {
    let mut quota = Quota {
        max_keys: 1,
        flags: 1,
        max_pages: 1,
    };
    socket
        .ioctl(SIOCRDSMRGQUOTA, &mut quota)
        .must("SIOCRDSMRGQUOTA")?;
    Ok(quota)
}

fn must_be(socket: &Socket, max_keys: u32, max_pages: u64, what: &str) -> Outcome {
    let want = Quota {
        max_keys,
        flags: 0,
        max_pages,
    };
    same(
        format!("option, {what}"),
        want,
        socket.quota().must("getsockopt(RDS_MR_QUOTA)")?,
    )?;
    same(format!("ioctl, {what}"), want, by_ioctl(socket)?)
}

fn default() -> Outcome {
    let ceiling = ceiling()?;
    for socket in [site::fresh()?, bound()?] {
        must_be(&socket, ceiling.max_keys, ceiling.max_pages, "at first")?;
    }
    Ok(())
}

fn set_and_get() -> Outcome {
    let top = ceiling()?;
    for socket in [site::fresh()?, bound()?] {
        socket.set_quota(5, 100).must("setsockopt(RDS_MR_QUOTA)")?;
        must_be(&socket, 5, 100, "after the option")?;
        let mut quota = Quota {
            max_keys: 6,
            flags: 0,
            max_pages: 200,
        };
        socket
            .ioctl(SIOCRDSMRSQUOTA, &mut quota)
            .must("SIOCRDSMRSQUOTA")?;
        must_be(&socket, 6, 200, "after the ioctl")?;
        socket.set_quota(0, 300).must("keys 0")?;
        must_be(&socket, top.max_keys, 300, "keys 0 is the default")?;
        socket.set_quota(7, 0).must("pages 0")?;
        must_be(&socket, 7, top.max_pages, "pages 0 is the default")?;
        socket.set_quota(0, 0).must("both 0")?;
        must_be(
            &socket,
            top.max_keys,
            top.max_pages,
            "both 0 are the default",
        )?;
        socket
            .set_quota(top.max_keys, top.max_pages)
            .must("the ceiling itself")?;
    }
    Ok(())
}

fn arguments() -> Outcome {
    let socket = bound()?;
    socket.set_quota(5, 100).must("quota")?;
    for flags in [1, 1 << 31, u32::MAX] {
        let mut quota = Quota {
            max_keys: 1,
            flags,
            max_pages: 1,
        };
        let result = socket.setsockopt(SOL_RDS, RDS_MR_QUOTA, quota.as_bytes());
        result.must_fail(EINVAL, format!("option with flags {flags:#x}"))?;
        let result = socket.ioctl(SIOCRDSMRSQUOTA, &mut quota);
        result.must_fail(EINVAL, format!("ioctl with flags {flags:#x}"))?;
    }
    for len in [0, 4, 15, 17, 32] {
        let result = socket.setsockopt(SOL_RDS, RDS_MR_QUOTA, &vec![0; len]);
        result.must_fail(EINVAL, format!("set, {len} bytes"))?;
    }
    for len in [0, 4, 15] {
        let result = socket.getsockopt(SOL_RDS, RDS_MR_QUOTA, &mut vec![0; len]);
        result.must_fail(EINVAL, format!("get, {len} bytes"))?;
    }
    let mut wide = [0xaa; 20];
    let len = socket
        .getsockopt(SOL_RDS, RDS_MR_QUOTA, &mut wide)
        .must("get, 20 bytes")?;
    same(
        "length that it gives, and what is behind",
        (16, [0xaa; 4]),
        (len, wide_tail(&wide)),
    )?;
    for addr in [0, NOWHERE, 0xffff_8880_0000_0000] {
        let result = socket.setsockopt_at(SOL_RDS, RDS_MR_QUOTA, addr, 16);
        result.must_fail(EFAULT, format!("set from {addr:#x}"))?;
        for command in [SIOCRDSMRGQUOTA, SIOCRDSMRSQUOTA] {
            let result = socket.ioctl_at(command, addr);
            result.must_fail(EFAULT, format!("ioctl {command:#x} at {addr:#x}"))?;
        }
    }
    must_be(&socket, 5, 100, "after all that was refused")
}

fn wide_tail(wide: &[u8; 20]) -> [u8; 4] {
    [wide[16], wide[17], wide[18], wide[19]]
}

fn by_one_key() -> Outcome {
    let socket = bound()?;
    let map = site::memory(PAGE)?;
    let get = || socket.get_mr(map.at(0), PAGE, 0);
    let before = Holdings::now()?;
    socket.set_quota(3, 0).must("quota of 3 keys")?;
    let first = get().must("key 1 of 3")?;
    get().must("key 2 of 3")?;
    get().must("key 3 of 3")?;
    for _ in 0..3 {
        get().must_fail(EAGAIN, "key 4 of 3")?;
        before.plus(3).are("after the key too many")?;
    }
    socket.free_mr(first, 0).must("FREE_MR")?;
    get().must("key 3 again, after a free")?;
    get().must_fail(EAGAIN, "key 4 again")?;
    // A quota is a socket's own.
    bound()?
        .get_mr(map.at(0), PAGE, 0)
        .must("a key of another socket")
        .map(drop)
}

fn by_one_page() -> Outcome {
    let socket = bound()?;
    let map = site::memory(8 * PAGE)?;
    let get = |offset: u64, bytes: u64| socket.get_mr(map.at(offset), bytes, 0);
    let free = |cookie| socket.free_mr(cookie, 0).must("FREE_MR");
    let before = Holdings::now()?;
    socket.set_quota(0, 4).must("quota of 4 pages")?;
    get(0, 4 * PAGE + 1).must_fail(EAGAIN, "5 pages of 4 at once")?;
    get(1, 4 * PAGE).must_fail(EAGAIN, "5 pages of 4, since they are not aligned")?;
    let whole = get(0, 4 * PAGE).must("4 pages of 4 at once")?;
    get(0, 1).must_fail(EAGAIN, "one byte more")?;
    before.plus(4).are("with all 4 pages in use")?;
    free(whole)?;
    let three = get(PAGE - 1, PAGE + 2).must("3 pages, of which 2 with one byte")?;
    get(PAGE - 1, 2).must_fail(EAGAIN, "2 more pages, with one byte each")?;
    get(0, 1).must("the 4th page")?;
    get(0, 1).must_fail(EAGAIN, "a 5th page, although it is pinned already")?;
    free(three)?;
    get(0, 3 * PAGE).must("3 pages again").map(drop)
}

fn below_use() -> Outcome {
    let socket = bound()?;
    let map = site::memory(PAGE)?;
    let get = || socket.get_mr(map.at(0), PAGE, 0);
    let keys: Vec<u64> = (0..3)
        .map(|_| get().must("GET_MR"))
        .collect::<Result<_, _>>()?;
    socket
        .set_quota(1, 1)
        .must("a quota below what is in use")?;
    must_be(&socket, 1, 1, "below use")?;
    for (left, key) in keys.iter().enumerate() {
        alive(
            &socket,
            *key,
            0,
            format!("key {left} under the lowered quota"),
        )?;
        get().must_fail(EAGAIN, format!("a new key with {} in use of 1", 3 - left))?;
        socket.free_mr(*key, 0).must("FREE_MR")?;
    }
    get().must("a key when none is in use").map(drop)
}

fn raising() -> Outcome {
    let top = ceiling()?;
    let map = site::memory(PAGE)?;
    let socket = bound()?;
    socket
        .set_quota(top.max_keys + 1, top.max_pages + 1)
        .must("root above the ceiling")?;
    must_be(
        &socket,
        top.max_keys + 1,
        top.max_pages + 1,
        "above the ceiling",
    )?;
    socket
        .get_mr(map.at(0), PAGE, 0)
        .must("a key above the ceiling")?;
    apart("a user", |_| {
        become_user(site::USER).must("setuid")?;
        user_cannot_raise(&bound()?, top)
    })
}

fn user_cannot_raise(socket: &Socket, top: Quota) -> Outcome {
    socket.set_quota(1, 1).must("lowering")?;
    for (keys, pages) in [
        (top.max_keys + 1, 0),
        (0, top.max_pages + 1),
        (u32::MAX, u64::MAX),
        (top.max_keys + 1, 1),
        (1, top.max_pages + 1),
    ] {
        let mut quota = Quota {
            max_keys: keys,
            flags: 0,
            max_pages: pages,
        };
        let what = format!("{keys} keys and {pages} pages");
        socket
            .set_quota(keys, pages)
            .must_fail(EPERM, format!("option: {what}"))?;
        let result = socket.ioctl(SIOCRDSMRSQUOTA, &mut quota);
        result.must_fail(EPERM, format!("ioctl: {what}"))?;
    }
    must_be(socket, 1, 1, "after all that was refused")?;
    socket
        .set_quota(top.max_keys, top.max_pages)
        .must("back up to the ceiling")
}

/// Root in a container is nobody special.
fn raising_in_namespace() -> Outcome {
    let top = ceiling()?;
    apart("root of a user namespace", |_| {
        become_user(site::USER).must("setuid")?;
        if new_user_namespace().is_err() {
            return skip("unshare(CLONE_NEWUSER) is not possible here");
        }
        user_cannot_raise(&bound()?, top)
    })
}

fn exact_with_threads() -> Outcome {
    const QUOTA: usize = 10;
    let socket = bound()?;
    let map = site::memory(PAGE)?;
    socket.set_quota(QUOTA as u32, 0).must("quota")?;
    for round in 0..20 {
        let (got, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let one_thread = || -> Outcome {
            for _ in 0..QUOTA {
                match socket.get_mr(map.at(0), PAGE, 0) {
                    Ok(_) => got.fetch_add(1, Relaxed),
                    Err(error) if error.raw_os_error() == Some(EAGAIN) => {
                        refused.fetch_add(1, Relaxed)
                    }
                    Err(error) => return Err(error).must("GET_MR"),
                };
            }
            Ok(())
        };
        in_threads(4, one_thread)?;
        same(
            format!("keys got in round {round}"),
            QUOTA,
            got.load(Relaxed),
        )?;
        same("keys refused", 3 * QUOTA, refused.load(Relaxed))?;
        socket
            .set_quota(QUOTA as u32 * (round + 2), 0)
            .must("room for as many again")?;
    }
    Ok(())
}
