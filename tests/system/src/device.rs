// SPDX-License-Identifier: GPL-2.0
//! The second device goes away and comes back.

use crate::check::{fail, holds, in_threads, same, skip, Check, End, Outcome};
use crate::runner::Test;
use crate::site::{self, alive, bound, Holdings};
use rdsmr::errno::*;
use rdsmr::{Socket, PAGE};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    Test::new("device.unplug_with_live_keys", unplug),
    Test::new("device.unplug_without_keys", unplug_without_keys),
    Test::new("device.unplug_under_load", unplug_under_load),
    Test::new("device.again_and_again", again_and_again),
];

/// A port and its addresses need a moment to come up; no measure of anything.
const COMES_UP: Duration = Duration::from_secs(30);

pub fn rdma(args: &[&str]) -> Outcome {
    let output = Command::new("rdma")
        .args(args)
        .output()
        .must("running rdma(8)")?;
    let text = String::from_utf8_lossy(&output.stderr).trim().to_string();
    if output.status.success() {
        Ok(())
    } else {
        fail(format!("rdma {}", args.join(" ")), "exit status 0", text)
    }
}

pub fn there() -> SocketAddr {
    SocketAddr::new(site::peer(), 0)
}

pub fn is_there(ibdev: &str) -> bool {
    Path::new("/sys/class/infiniband").join(ibdev).exists()
}

/// The device is gone for as long as this lives.
pub struct Unplugged;

impl Unplugged {
    /// Somebody else has deleted it.
    pub fn found() -> Self {
        Unplugged
    }

    pub fn new() -> Result<Self, End> {
        rdma(&["link", "delete", &site::peer_ibdev()])?;
        Ok(Unplugged)
    }

    pub fn replug(self) -> Result<Socket, End> {
        std::mem::forget(self);
        replug()
    }
}

/// Also when a test fails half-way: those after it want the device back.
impl Drop for Unplugged {
    fn drop(&mut self) {
        let _ = replug();
    }
}

/// A socket on the device, once it is back and ready.
fn replug() -> Result<Socket, End> {
    let (ibdev, netdev) = (site::peer_ibdev(), site::peer_netdev());
    rdma(&["link", "add", &ibdev, "type", "rxe", "netdev", &netdev])?;
    let end = Instant::now() + COMES_UP;
    loop {
        match Socket::bound(there()) {
            Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(50)),
            result => return result.must("bind to the device that is back"),
        }
    }
}

pub fn second_device() -> Result<Socket, End> {
    if Command::new("rdma").arg("-V").output().is_err() {
        return skip("no rdma(8)");
    }
    Socket::bound(there()).or_else(|error| {
        skip(format!(
            "no second device at {}: {}",
            site::peer(),
            describe(&error)
        ))
    })
}

fn unplug() -> Outcome {
    let stays = bound()?;
    let goes = second_device()?;
    let map = site::memory(64 * PAGE)?;
    let cookie = stays
        .get_mr(map.at(0), PAGE, 0)
        .must("a key on the device that stays")?;
    let before = Holdings::now()?;
    let get = |n: u64| goes.get_mr(map.at(n), (n + 1) * PAGE, 0).must("GET_MR");
    let cookies: Vec<u64> = (0..20).map(get).collect::<Result<_, _>>()?;
    alive(&goes, cookies[19], 0, "a key on the device that goes")?;

    let unplugged = Unplugged::new()?;
    before.are("when the removal of the device is back")?;
    alive(&stays, cookie, 0, "a key on the device that stayed")?;
    gone(&goes, map.at(0), &cookies)?;
    let back = unplugged.replug()?;
    gone(&goes, map.at(0), &cookies)?;
    freed(&goes, &cookies)?;
    let cookie = back
        .get_mr(map.at(0), PAGE, 0)
        .must("GET_MR on the device that is back")?;
    alive(&back, cookie, 0, "a key on the device that is back")?;
    drop(goes);
    alive(
        &back,
        cookie,
        0,
        "it, after the close of a socket of the lost device",
    )
}

/// A socket whose device is gone stays so, and can only be closed.
fn gone(socket: &Socket, addr: u64, cookies: &[u64]) -> Outcome {
    socket
        .get_mr(addr, PAGE, 0)
        .must_fail(ENODEV, "GET_MR without the device")?;
    socket
        .probe(cookies[0], 0)
        .must_fail(ENODEV, "probe without the device")?;
    socket
        .local()
        .must("getsockname without the device")
        .map(drop)
}

/// Its keys died with the device, proven; their slots are the application's.
fn freed(socket: &Socket, cookies: &[u64]) -> Outcome {
    for cookie in cookies {
        socket
            .free_mr(*cookie, 0)
            .must("FREE_MR of a key that died with its device")?;
        socket
            .free_mr(*cookie, 0)
            .must_fail(EINVAL, "FREE_MR of it once more")?;
    }
    Ok(())
}

fn unplug_without_keys() -> Outcome {
    let unbound = site::fresh()?;
    let goes = second_device()?;
    let map = site::memory(PAGE)?;
    let unplugged = Unplugged::new()?;
    goes.get_mr(map.at(0), PAGE, 0)
        .must_fail(ENODEV, "GET_MR without the device")?;
    unbound
        .bind(there())
        .must_fail(EADDRNOTAVAIL, "bind to an address without a device")?;
    let back = unplugged.replug()?;
    back.get_mr(map.at(0), PAGE, 0)
        .must("GET_MR on the device that is back")
        .map(drop)
}

/// One thread pulls the plug, three register and free until they notice.
fn unplug_under_load() -> Outcome {
    let sockets = [second_device()?, second_device()?, second_device()?];
    let map = site::memory(16 * PAGE)?;
    let before = Holdings::now()?;
    let threads = AtomicUsize::new(0);
    in_threads(4, || {
        let me = threads.fetch_add(1, Relaxed);
        let Some(socket) = sockets.get(me) else {
            std::thread::sleep(Duration::from_millis(50));
            return Unplugged::new().map(std::mem::forget);
        };
        loop {
            let got = socket.get_mr(map.at(0), 16 * PAGE, 0);
            let freed = got.and_then(|cookie| socket.free_mr(cookie, 0));
            match freed.map_err(|error| error.raw_os_error()) {
                Ok(()) => {}
                Err(Some(ENODEV)) => return Ok(()),
                // The key was freed by the removal between the two calls.
                Err(Some(EINVAL)) => {}
                other => return same("GET_MR and FREE_MR under removal", Ok(()), other),
            }
        }
    })?;
    let unplugged = Unplugged;
    before.are("when the removal is back and all threads noticed it")?;
    unplugged.replug().map(drop)
}

fn again_and_again() -> Outcome {
    let mut socket = second_device()?;
    let map = site::memory(PAGE)?;
    let before = Holdings::now()?;
    for round in 0..5 {
        let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
        holds("a cookie names a key", cookie as u32 != 0)?;
        let unplugged = Unplugged::new()?;
        before.are(format!("after removal {round}"))?;
        socket = unplugged.replug()?;
    }
    Ok(())
}
