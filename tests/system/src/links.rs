// SPDX-License-Identifier: GPL-2.0
//! Links and addresses go away under sockets that are in use.
//!
//! What a key says while its link is down, or its address is gone, is the HCA's
//! affair: alive, or an error. What these tests hold the module to is that it
//! neither hangs nor leaks, that FREE_MR works, and that new sockets find what
//! is there now.

use crate::check::{in_threads, same, skip, Check, End, Outcome};
use crate::device::{rdma, second_device};
use crate::plug::{dead_and_free, deadline, eventually, get, get_and_free, run, SLACK};
use crate::runner::Test;
use crate::site::{self, alive, Holdings};
use rdsmr::errno::*;
use rdsmr::{Mapping, Socket, PAGE};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

pub const TESTS: &[Test] = &[
    Test::new("links.down_and_up", link_down),
    Test::new("links.netdev_removed", netdev_removed),
    Test::new("links.address_removed", address_removed),
    Test::new("links.address_moved", address_moved),
    Test::new("links.events_harm_nobody", events),
];

fn ip(args: &str) -> Outcome {
    run(&format!("ip {args}"), SLACK)
}

/// A third device, on a network interface of its own.
struct Extra;

const NETDEV: &str = "rdsmr-plug";
const IBDEV: &str = "rdsmr_plug";

impl Extra {
    fn new() -> Result<(Self, Socket), End> {
        drop(second_device()?);
        let _ = Command::new("modprobe").arg("dummy").output();
        if ip(&format!("link add {NETDEV} type dummy")).is_err() {
            return skip("the kernel has no dummy network devices");
        }
        let extra = Extra;
        ip(&format!("link set {NETDEV} up"))?;
        ip(&format!("addr add {}/24 dev {NETDEV}", Self::addr().ip()))?;
        // Who was there before may not be gone yet: a worker takes it away.
        eventually(|| rdma(&["link", "add", IBDEV, "type", "rxe", "netdev", NETDEV]))?;
        Ok((extra, Self::socket()?))
    }

    fn addr() -> SocketAddr {
        SocketAddr::from(([10, 78, 0, 1], 0))
    }

    fn socket() -> Result<Socket, End> {
        eventually(|| Socket::bound(Self::addr()).must("bind to a third device"))
    }
}

impl Drop for Extra {
    fn drop(&mut self) {
        // Also when it is gone already, with its device.
        let _ = ip(&format!("link del {NETDEV}"));
    }
}

/// Free them, whatever has become of them; a probe may say anything in time.
fn all_end(socket: &Socket, keys: &[u64], before: &Holdings, when: &str) -> Outcome {
    for key in keys {
        let _ = socket.probe(*key, 0);
        let freed = socket.free_mr(*key, 0);
        freed.must(format!("FREE_MR {when}"))?;
    }
    before.are(format!("after FREE_MR {when}"))
}

fn some_keys(socket: &Socket, map: &Mapping) -> Result<Vec<u64>, End> {
    (0..4).map(|_| get(socket, map)).collect()
}

fn link_down() -> Outcome {
    let (_extra, socket) = Extra::new()?;
    let (map, before) = (site::memory(PAGE)?, Holdings::now()?);
    for round in 0..3 {
        let keys = some_keys(&socket, &map)?;
        alive(&socket, keys[0], 0, "a key before the link goes down")?;
        ip(&format!("link set {NETDEV} down"))?;
        // The queue that is there may go on, a new one needs a port.
        if let Err(error) = get_and_free(&socket, &map) {
            let errno = error.raw_os_error();
            same("GET_MR while the link is down", Some(ENODEV), errno)?;
        }
        let (now, later) = keys.split_at(2);
        for key in now {
            socket
                .free_mr(*key, 0)
                .must("FREE_MR while the link is down")?;
        }
        ip(&format!("link set {NETDEV} up"))?;
        all_end(&socket, later, &before, "after the link was down")?;
        let what = format!("GET_MR when the link is up again, round {round}");
        eventually(|| get_and_free(&socket, &map).must(&what))?;
    }
    Ok(())
}

/// Takes the device with it.
fn netdev_removed() -> Outcome {
    let (extra, socket) = Extra::new()?;
    let (map, before) = (site::memory(PAGE)?, Holdings::now()?);
    let keys = some_keys(&socket, &map)?;
    run(&format!("ip link del {NETDEV}"), deadline()? + SLACK)?;
    // The device goes in a worker, which nobody waits for.
    eventually(|| before.are("when the network device is gone"))?;
    dead_and_free(&socket, &keys, &map)?;
    let lost = Socket::bound(Extra::addr());
    lost.must_fail(EADDRNOTAVAIL, "bind to the address that is gone")?;
    std::mem::forget(extra);
    let (_extra, again) = Extra::new()?;
    let cookie = get(&again, &map)?;
    alive(&again, cookie, 0, "a key on the device of the same name")?;
    let got = socket.get_mr(map.at(0), PAGE, 0);
    got.must_fail(ENODEV, "GET_MR on the old one")
}

fn address_removed() -> Outcome {
    let (_extra, socket) = Extra::new()?;
    let (map, before) = (site::memory(PAGE)?, Holdings::now()?);
    let keys = some_keys(&socket, &map)?;
    let addr = Extra::addr().ip();
    ip(&format!("addr del {addr}/24 dev {NETDEV}"))?;
    let lost = Socket::bound(Extra::addr());
    lost.must_fail(EADDRNOTAVAIL, "bind to the address that is gone")?;
    all_end(&socket, &keys, &before, "when the address is gone")?;
    ip(&format!("addr add {addr}/24 dev {NETDEV}"))?;
    let again = Extra::socket()?;
    let cookie = get(&again, &map)?;
    alive(&again, cookie, 0, "a key when the address is back")?;
    let what = "GET_MR on the socket that was there all the time";
    eventually(|| get_and_free(&socket, &map).must(what))
}

/// From a device to another: old sockets stay with the one, new ones go to the
/// other.
fn address_moved() -> Outcome {
    let (_extra, old) = Extra::new()?;
    let (map, before) = (site::memory(PAGE)?, Holdings::now()?);
    let (addr, peer) = (Extra::addr().ip(), site::peer_netdev());
    let keys = some_keys(&old, &map)?;
    ip(&format!("addr del {addr}/24 dev {NETDEV}"))?;
    ip(&format!("addr add {addr}/24 dev {peer}"))?;
    let moved = on_the_second_device(&map);
    ip(&format!("addr del {addr}/24 dev {peer}"))?;
    let new = moved?;
    all_end(
        &old,
        &keys,
        &before,
        "on the device that has lost its address",
    )?;
    drop(new);
    before.are("after the close")
}

fn on_the_second_device(map: &Mapping) -> Result<Socket, End> {
    let (new, peer) = (Extra::socket()?, second_device()?);
    let cookie = get(&new, map)?;
    alive(
        &peer,
        cookie,
        0,
        "a key of the moved address, from the device that has it now",
    )?;
    new.free_mr(cookie, 0).must("FREE_MR")?;
    Ok(new)
}

/// Addresses come and go, and the MTU changes, beside the one that is in use.
fn events() -> Outcome {
    let (_extra, socket) = Extra::new()?;
    let (map, before) = (site::memory(PAGE)?, Holdings::now()?);
    let keep = get(&socket, &map)?;
    let (turn, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    in_threads(3, || {
        if turn.fetch_add(1, Relaxed) == 0 {
            let all = (2..12).try_for_each(|n| {
                ip(&format!("addr add 10.78.0.{n}/24 dev {NETDEV}"))?;
                ip(&format!("addr add fd78::{n}/64 dev {NETDEV} nodad"))?;
                ip(&format!("link set {NETDEV} mtu {}", 1500 + n * 100))?;
                ip(&format!("addr del 10.78.0.{n}/24 dev {NETDEV}"))?;
                ip(&format!("addr del fd78::{n}/64 dev {NETDEV}"))
            });
            over.store(true, Relaxed);
            return all;
        }
        while !over.load(Relaxed) {
            get_and_free(&socket, &map).must("GET_MR and FREE_MR beside events")?;
            let fresh = Socket::bound(Extra::addr()).must("bind beside events")?;
            alive(&fresh, keep, 0, "a key beside events")?;
        }
        Ok(())
    })?;
    all_end(&socket, &[keep], &before, "after all events")
}
