// SPDX-License-Identifier: GPL-2.0
//! Devices go away under load, and modules in every order.

use crate::check::{fail, in_threads, same, skip, Check, End, Outcome};
use crate::device::{rdma, second_device, there, Unplugged};
use crate::reload;
use crate::runner::Test;
use crate::site::{self, alive, bound, pins, Holdings};
use rdsmr::errno::*;
use rdsmr::{kmod, Mapping, Socket, PAGE};
use std::io;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    Test::new("plug.delete_with_1000_keys_under_load", thousand_keys),
    Test::reloading("plug.unload_rds_mr_first", unload_ours_first),
    Test::reloading("plug.unload_rdma_rxe_first", unload_driver_first),
];

/// Beyond the module's own deadline a machine that emulates another may need so
/// long; it is no statement on speed, but a hang is longer.
pub const SLACK: Duration = Duration::from_secs(60);
/// For links and addresses to come up.
const COMES_UP: Duration = Duration::from_secs(30);

pub fn deadline() -> Result<Duration, End> {
    let text = site::param("revoke_timeout_ms")?;
    let millis = text.parse();
    millis.map_or_else(
        |_| skip(format!("revoke_timeout_ms is \"{text}\"")),
        |millis| Ok(Duration::from_millis(millis)),
    )
}

/// A command that must be back in time.
pub fn run(command: &str, limit: Duration) -> Outcome {
    let mut words = command.split_whitespace();
    let mut program = Command::new(words.next().unwrap_or_default());
    program.args(words).stdout(Stdio::null());
    let mut child = program.spawn().must(format!("running {command}"))?;
    let end = Instant::now() + limit;
    loop {
        match child.try_wait().must("wait")? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return fail(command, "exit status 0", status),
            None if Instant::now() > end => {
                return fail(command, format!("back within {limit:?}"), "it is not")
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// As long as it takes, in bounds.
pub fn eventually<T>(mut attempt: impl FnMut() -> Result<T, End>) -> Result<T, End> {
    let end = Instant::now() + COMES_UP;
    loop {
        match attempt() {
            Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(50)),
            result => return result,
        }
    }
}

pub fn get(socket: &Socket, map: &Mapping) -> Result<u64, End> {
    socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")
}

pub fn get_and_free(socket: &Socket, map: &Mapping) -> io::Result<()> {
    let cookie = socket.get_mr(map.at(0), PAGE, 0)?;
    socket.free_mr(cookie, 0)
}

/// On the device that goes until it is gone, on the one that stays until all
/// others are done.
fn thousand_keys() -> Outcome {
    const SOCKETS: usize = 10;
    const KEYS: usize = 100;
    let limit = deadline()? + SLACK;
    let (map, stays) = (site::memory(PAGE)?, bound()?);
    drop(second_device()?);
    let before = Holdings::now()?;
    let bind = || Socket::bound(there()).must("bind");
    let sockets: Vec<Socket> = (0..SOCKETS).map(|_| bind()).collect::<Result<_, _>>()?;
    let keys = |socket| (0..KEYS).map(|_| get(socket, &map)).collect();
    let keys: Vec<Vec<u64>> = sockets.iter().map(keys).collect::<Result<_, End>>()?;
    before.plus((SOCKETS * KEYS) as u64).are("with all keys")?;

    let (turn, rounds, over) = (
        AtomicUsize::new(0),
        AtomicU64::new(0),
        AtomicBool::new(false),
    );
    let all = in_threads(5, || match turn.fetch_add(1, Relaxed) {
        0 => {
            while rounds.load(Relaxed) < 10 {
                std::thread::yield_now();
            }
            let deleted = run(&format!("rdma link delete {}", site::peer_ibdev()), limit);
            over.store(true, Relaxed);
            deleted
        }
        1 => {
            while !over.load(Relaxed) {
                let cookie = stays.get_mr(map.at(0), PAGE, 0);
                let cookie = cookie.must("GET_MR on the device that stays")?;
                let freed = stays.free_mr(cookie, 0);
                freed.must("FREE_MR on the device that stays")?;
            }
            Ok(())
        }
        n => loop {
            rounds.fetch_add(1, Relaxed);
            match get_and_free(&sockets[n], &map).map_err(|error| error.raw_os_error()) {
                Ok(()) if over.load(Relaxed) => {
                    return fail("GET_MR when the device is gone", "ENODEV", "success")
                }
                Ok(()) => {}
                Err(Some(ENODEV)) => return Ok(()),
                other => return same("GET_MR and FREE_MR under removal", Ok(()), other),
            }
        },
    });
    let unplugged = Unplugged;
    all?;
    before.are("when the removal is back")?;
    for (socket, keys) in sockets.iter().zip(&keys) {
        dead_and_free(socket, keys, &map)?;
    }
    unplugged.replug().map(drop)
}

/// A socket that has lost its device, and its keys.
pub fn dead_and_free(socket: &Socket, keys: &[u64], map: &Mapping) -> Outcome {
    let got = socket.get_mr(map.at(0), PAGE, 0);
    got.must_fail(ENODEV, "GET_MR without the device")?;
    for key in keys {
        let freed = socket.free_mr(*key, 0);
        freed.must("FREE_MR of a key that died with its device")?;
        let again = socket.free_mr(*key, 0);
        again.must_fail(EINVAL, "FREE_MR of it once more")?;
    }
    Ok(())
}

const DRIVER: &str = "rdma_rxe";

fn links() -> [(String, String); 2] {
    let setting = |name: &str, default: &str| std::env::var(name).unwrap_or(default.to_string());
    let first = ("RDS_MR_IBDEV", "rxe0", "RDS_MR_NETDEV", "veth0");
    [
        (setting(first.0, first.1), setting(first.2, first.3)),
        (site::peer_ibdev(), site::peer_netdev()),
    ]
}

/// Both devices and their driver are gone for as long as this lives.
struct NoDriver;

impl NoDriver {
    fn new() -> Result<Self, End> {
        drop(second_device()?);
        if !kmod::is_loaded(DRIVER) {
            return skip(format!("{DRIVER} is not a module here"));
        }
        let gone = NoDriver;
        for (ibdev, _) in links() {
            run(&format!("rdma link delete {ibdev}"), deadline()? + SLACK)?;
        }
        run(&format!("rmmod {DRIVER}"), SLACK).map(|()| gone)
    }

    fn undo() -> Outcome {
        run(&format!("modprobe {DRIVER}"), SLACK)?;
        for (ibdev, netdev) in links() {
            rdma(&["link", "add", &ibdev, "type", "rxe", "netdev", &netdev])?;
        }
        Ok(())
    }

    fn back(self) -> Result<[Socket; 2], End> {
        std::mem::forget(self);
        Self::undo()?;
        let ready = |addr| {
            let socket = eventually(|| Socket::bound(addr).must("bind"))?;
            let map = site::memory(PAGE)?;
            eventually(|| get_and_free(&socket, &map).must("GET_MR")).map(|()| socket)
        };
        Ok([ready(site::here())?, ready(there())?])
    }
}

impl Drop for NoDriver {
    fn drop(&mut self) {
        let _ = Self::undo();
    }
}

fn unload_ours_first() -> Outcome {
    drop(second_device()?);
    let (before, map) = (pins()?, site::memory(PAGE)?);
    for socket in [bound()?, Socket::bound(there()).must("bind")?] {
        get(&socket, &map)?;
    }
    let name = site::module()?;
    let path = reload::file_of(name)?;
    let params = kmod::params(name).must("reading the parameters")?;
    // NoDriver wants to know the deadline of the module.
    let limit = deadline()? + SLACK;
    reload::unload()?;
    same("pinned pages without the module", before, pins()?)?;
    if !kmod::is_loaded(DRIVER) {
        return skip(format!("{DRIVER} is not a module here"));
    }
    let gone = NoDriver;
    for (ibdev, _) in links() {
        run(&format!("rdma link delete {ibdev}"), limit)?;
    }
    run(&format!("rmmod {DRIVER}"), SLACK)?;
    // Loaded without any device to serve.
    kmod::insert(&path, &params).must("insmod without a device")?;
    let lost = Socket::bound(site::here());
    lost.must_fail(EADDRNOTAVAIL, "bind without any device")?;
    let [socket, _] = gone.back()?;
    let cookie = get(&socket, &map)?;
    alive(&socket, cookie, 0, "a key on a device that came later")
}

/// Sockets that hold keys do not hold the driver; and they can be closed when
/// nothing is left of it.
fn unload_driver_first() -> Outcome {
    let (before, map) = (pins()?, site::memory(PAGE)?);
    let open = [bound()?, second_device()?];
    let (first, second) = (get(&open[0], &map)?, get(&open[1], &map)?);
    let gone = NoDriver::new()?;
    same("pinned pages without the driver", before, pins()?)?;
    dead_and_free(&open[0], &[first], &map)?;
    let name = site::module()?;
    let refused = kmod::try_remove(name);
    refused.must_fail(EAGAIN, format!("rmmod {name} with sockets of lost devices"))?;
    let [here, _] = gone.back()?;
    let cookie = get(&here, &map)?;
    alive(&here, cookie, 0, "a key with the driver that is back")?;
    dead_and_free(&open[1], &[second], &map)?;
    drop(open);
    alive(&here, cookie, 0, "it, after the close of the lost sockets")?;
    drop(here);
    reload::with_params("")
}
