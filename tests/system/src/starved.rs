// SPDX-License-Identifier: GPL-2.0
//! With no memory at all: ending keys needs none, so it succeeds.

use crate::check::{fail, helper, same, Check, End, Outcome};
use crate::device::{is_there, second_device, Unplugged};
use crate::inject::Faults;
use crate::runner::Test;
use crate::site::{self, bound, refused, Holdings};
use rdsmr::abi::*;
use rdsmr::link::Request;
use rdsmr::{Link, Mapping, Socket, Status, PAGE};

pub const TESTS: &[Test] = &[
    Test::new("alloc.none_for_free_mr", none_for_free_mr),
    Test::new("alloc.none_for_close", none_for_close),
    Test::new("alloc.none_for_kill_9", none_for_kill_9),
    Test::new("alloc.none_for_exit", none_for_exit),
    Test::new("alloc.none_for_unplug", none_for_unplug),
];

/// What the first allocations of a netlink message need, and no more: what
/// comes behind it gets nothing.
const MESSAGE: u32 = 4096;

const KEYS: u64 = 13;

fn register(socket: &Socket, map: &Mapping) -> Result<Vec<u64>, End> {
    let bytes = |n| [1, PAGE, 4097, MAX_BYTES][n as usize % 4];
    let get = |n| socket.get_mr(map.at(n), bytes(n), 0).must("GET_MR");
    (0..KEYS).map(get).collect()
}

fn all_dead(prober: &Socket, cookies: &[u64]) -> Outcome {
    same("keys to look at", KEYS as usize, cookies.len())?;
    let mut keys = cookies.iter();
    keys.try_for_each(|cookie| refused(prober, *cookie, 0, "a key after its end"))
}

fn room() -> Result<Mapping, End> {
    site::memory(MAX_BYTES + 2 * PAGE)
}

fn none_for_free_mr() -> Outcome {
    let faults = Faults::new()?;
    let (prober, socket, map) = (bound()?, bound()?, room()?);
    let before = Holdings::now()?;
    for everybody in [false, true] {
        let cookies = register(&socket, &map)?;
        let free = || {
            cookies
                .iter()
                .try_for_each(|cookie| socket.free_mr(*cookie, 0))
        };
        faults
            .all(everybody, 0, free)?
            .must("FREE_MR without memory")?;
        before.are("after FREE_MR without memory")?;
        all_dead(&prober, &cookies)?;
    }
    Ok(())
}

fn none_for_close() -> Outcome {
    let faults = Faults::new()?;
    let (prober, map) = (bound()?, room()?);
    for everybody in [false, true] {
        let socket = bound()?;
        let before = Holdings::now()?;
        let cookies = register(&socket, &map)?;
        faults.all(everybody, 0, || drop(socket))?;
        before.are("after a close without memory")?;
        all_dead(&prober, &cookies)?;
    }
    Ok(())
}

fn none_for_kill_9() -> Outcome {
    let faults = Faults::new()?;
    let prober = bound()?;
    for everybody in [false, true] {
        let before = site::pins()?;
        let mut victim = helper("victim", |link: &Link| {
            let (socket, map) = (bound()?, room()?);
            let cookies = register(&socket, &map)?;
            std::fs::write("/proc/self/make-it-fail", "1").must("make-it-fail")?;
            link.tell(&cookies).must("telling the parent")?;
            link.hear().must("the parent's word").map(drop)
        })?;
        let cookies = victim.link().hear().must("the victim's cookies")?;
        let status = faults.all(everybody, 0, || victim.kill())?;
        same("how it died", Status::Signal(9), status.must("kill -9")?)?;
        same("pages pinned after kill -9", before, site::pins()?)?;
        all_dead(&prober, &cookies)?;
    }
    Ok(())
}

fn none_for_exit() -> Outcome {
    let faults = Faults::new()?;
    let prober = bound()?;
    let before = site::pins()?;
    let mut child = helper("child", |link: &Link| {
        // Switched on by the one who exits, and off by its parent.
        let own = Faults::new()?;
        let (_socket, map) = (bound()?, room()?);
        let cookies = register(&_socket, &map)?;
        link.tell(&cookies).must("telling the parent")?;
        link.hear().must("the parent's word")?;
        own.all(false, 0, || rdsmr::process::exit(0))
    })?;
    let cookies = child.link().hear().must("the child's cookies")?;
    child.link().tell(&[]).must("telling the child to exit")?;
    let status = child.wait().must("wait")?;
    drop(faults);
    same("how it ended", Status::Exit(0), status)?;
    same("pages pinned when wait() is back", before, site::pins()?)?;
    all_dead(&prober, &cookies)
}

/// For this task only: with nothing for anybody the kernel's own checker of
/// objects (ODEBUG) gives up. An unload is not tried at all, since the kernel's
/// fprobe warns when it gets no memory then.
fn none_for_unplug() -> Outcome {
    let faults = Faults::new()?;
    let ibdev = site::peer_ibdev();
    let (socket, map) = (second_device()?, room()?);
    let before = Holdings::now()?;
    let cookies = register(&socket, &map)?;
    let delete = Request::delete(&ibdev).must("netlink")?;
    // The message may fail before it is understood; the removal may not.
    let mut answer = Ok(());
    for more in 0..6 {
        answer = faults.all(false, MESSAGE << more, || delete.send())?;
        if !is_there(&ibdev) {
            let unplugged = Unplugged::found();
            before.are("after a removal without memory")?;
            for cookie in cookies {
                socket
                    .free_mr(cookie, 0)
                    .must("FREE_MR of a key that died")?;
            }
            return unplugged.replug().map(drop);
        }
    }
    fail("deleting the device", "it goes", format!("{answer:?}"))
}
