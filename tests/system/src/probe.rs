// SPDX-License-Identifier: GPL-2.0
//! The probe: who may ask, and that its answers are the HCA's.

use crate::check::{apart, same, skip, Check, Outcome};
use crate::runner::Test;
use crate::site::{self, alive, bound, refused, Holdings};
use rdsmr::abi::*;
use rdsmr::errno::*;
use rdsmr::process::{become_user, new_user_namespace};
use rdsmr::{Socket, PAGE};
use std::net::SocketAddr;

pub const TESTS: &[Test] = &[
    Test::new("probe.arguments", arguments),
    Test::new("probe.rights", rights),
    Test::new("probe.rights_in_a_user_namespace", rights_in_namespace),
    Test::new("probe.wrong_cookies", wrong_cookies),
    Test::new("probe.keys_of_other_sockets", other_sockets),
    Test::new("probe.leaves_nothing", leaves_nothing),
];

/// Nothing is ever mapped there.
const NOWHERE: u64 = 8;

fn arguments() -> Outcome {
    let result = site::fresh()?.probe(1, 0);
    result.must_fail(ENOTCONN, "probe on an unbound socket")?;
    let socket = bound()?;
    let map = site::memory(PAGE)?;
    let cookie = socket.get_mr(map.at(3), 10, 0).must("GET_MR")?;
    for flags in [1, 1 << 31, u32::MAX] {
        let mut probe = Probe {
            cookie,
            flags,
            ..Default::default()
        };
        let result = socket.ioctl(SIOCRDSMRPROBE, &mut probe);
        result.must_fail(EINVAL, format!("probe with flags {flags:#x}"))?;
    }
    for addr in [0, NOWHERE, 0xffff_8880_0000_0000] {
        let result = socket.ioctl_at(SIOCRDSMRPROBE, addr);
        result.must_fail(EFAULT, format!("probe at {addr:#x}"))?;
    }
    // What was in the result before does not matter, and the rest stays.
    for (offset, result) in [(9, 0), (10, 1)] {
        let mut probe = Probe {
            cookie,
            offset,
            result: 77,
            flags: 0,
        };
        socket.ioctl(SIOCRDSMRPROBE, &mut probe).must("probe")?;
        same(
            "the whole answer",
            Probe {
                cookie,
                offset,
                result,
                flags: 0,
            },
            probe,
        )?;
    }
    Ok(())
}

fn must_not(socket: &Socket, cookie: u64) -> Outcome {
    for guess in [cookie, 0, 1] {
        socket
            .probe(guess, 0)
            .must_fail(EPERM, format!("probe of {guess:#x}"))?;
    }
    Ok(())
}

fn rights() -> Outcome {
    apart("a user", |_| {
        // The right is the asker's, not that of who made the socket.
        let made_by_root = bound()?;
        let map = site::memory(PAGE)?;
        let cookie = made_by_root.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
        alive(&made_by_root, cookie, 0, "a key, asked by root")?;
        become_user(site::USER).must("setuid")?;
        must_not(&made_by_root, cookie)?;
        must_not(&bound()?, cookie)
    })
}

fn rights_in_namespace() -> Outcome {
    apart("root of a user namespace", |_| {
        become_user(site::USER).must("setuid")?;
        if new_user_namespace().is_err() {
            return skip("unshare(CLONE_NEWUSER) is not possible here");
        }
        let socket = bound()?;
        let map = site::memory(PAGE)?;
        let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
        must_not(&socket, cookie)
    })
}

fn wrong_cookies() -> Outcome {
    let socket = bound()?;
    let map = site::memory(PAGE)?;
    let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
    // The key byte, the index, both; what no HCA ever gave out; far outside.
    let wrong = [
        cookie ^ 1,
        cookie ^ 0x80,
        cookie ^ 0xff,
        cookie ^ 0x4000_0000,
        0,
        u64::MAX,
    ];
    for guess in wrong {
        refused(
            &socket,
            guess,
            0,
            format!("cookie {guess:#x} (the right one is {cookie:#x})"),
        )?;
    }
    for offset in [
        PAGE,
        2 * PAGE,
        1 << 20,
        u64::from(u32::MAX),
        1 << 40,
        (1 << 63) - 1,
    ] {
        refused(&socket, cookie, offset, "a key of one page")?;
    }
    alive(&socket, cookie, 0, "the right cookie")
}

fn other_sockets() -> Outcome {
    let owner = bound()?;
    let map = site::memory(PAGE)?;
    let cookie = owner.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
    alive(&bound()?, cookie, 0, "another socket's key")?;
    let v6 = site::bound_to(SocketAddr::new(site::v6(), 0))?;
    alive(&v6, cookie, 0, "another socket's key, asked over IPv6")?;
    apart("another process", |_| {
        alive(&bound()?, cookie, 0, "another process's key")
    })
}

fn leaves_nothing() -> Outcome {
    let socket = bound()?;
    let map = site::memory(PAGE)?;
    let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
    let before = Holdings::now()?;
    // Either answer costs a pair of queue pairs; a device has only so many.
    for _ in 0..100 {
        alive(&socket, cookie, 0, "a key")?;
        refused(&socket, cookie, PAGE, "a key")?;
    }
    before.are("after 200 probes")?;
    socket.free_mr(cookie, 0).must("FREE_MR after 200 probes")
}
