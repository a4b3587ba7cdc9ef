// SPDX-License-Identifier: GPL-2.0
//! The last close, in all its forms, ends every key before anybody can tell.

use crate::check::{apart, helper, join, same, Check, End, Outcome};
use crate::runner::Test;
use crate::site::{self, alive, bound, refused};
use rdsmr::abi::*;
use rdsmr::{Child, Link, Mapping, Socket, Status, PAGE};

pub const TESTS: &[Test] = &[
    Test::new("death.close", close),
    Test::new("death.close_without_keys", close_without_keys),
    Test::new("death.close_with_512_keys", close_with_512),
    Test::new("death.kill_9_with_64_keys", kill_9),
    Test::new("death.exit_with_64_keys", exit),
    Test::new("death.kill_9_with_many_sockets", many_sockets),
    Test::new("death.last_of_two_descriptors", two_descriptors),
    Test::new("death.last_of_two_processes", two_processes),
    Test::new("death.one_of_two_sockets", one_of_two),
    Test::new("death.of_a_child_harms_nothing", child_harms_nothing),
];

/// Lengths and alignments by turns, up to 257 pages.
fn shape(n: u64) -> (u64, u64) {
    let offset = [0, 1, 4095][n as usize % 3];
    (offset, [1, 4096, 4097, MAX_BYTES][n as usize / 3 % 4])
}

fn register(socket: &Socket, map: &Mapping, keys: u64) -> Result<Vec<u64>, End> {
    let get = |n: u64| {
        let (offset, bytes) = shape(n);
        let flags = n % 2 * RDS_RDMA_READWRITE;
        socket
            .get_mr(map.at(offset), bytes, flags)
            .must(format!("GET_MR number {n}"))
    };
    (0..keys).map(get).collect()
}

fn all_alive(prober: &Socket, cookies: &[u64]) -> Outcome {
    each(cookies, |n, cookie| {
        alive(prober, cookie, shape(n).1 - 1, format!("key {n}"))
    })
}

fn all_dead(prober: &Socket, cookies: &[u64]) -> Outcome {
    each(cookies, |n, cookie| {
        refused(prober, cookie, 0, format!("key {n}"))
    })
}

fn each(cookies: &[u64], check: impl Fn(u64, u64) -> Outcome) -> Outcome {
    (0..)
        .zip(cookies)
        .try_for_each(|(n, cookie)| check(n, *cookie))
}

fn room() -> Result<Mapping, End> {
    site::memory(MAX_BYTES + 2 * PAGE)
}

fn close() -> Outcome {
    let (prober, map) = (bound()?, room()?);
    for keys in [1, 12] {
        let socket = bound()?;
        let before = site::Holdings::now()?;
        let cookies = register(&socket, &map, keys)?;
        all_alive(&prober, &cookies)?;
        drop(socket);
        before.are(format!("when close with {keys} keys is back"))?;
        all_dead(&prober, &cookies)?;
    }
    Ok(())
}

fn close_without_keys() -> Outcome {
    let map = room()?;
    for _ in 0..50 {
        drop(site::fresh()?);
        drop(bound()?);
        let socket = bound()?;
        let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
        socket.free_mr(cookie, 0).must("FREE_MR")?;
    }
    Ok(())
}

fn close_with_512() -> Outcome {
    let (prober, map) = (bound()?, room()?);
    let before = site::Holdings::now()?;
    let socket = bound()?;
    let get = |n| {
        socket
            .get_mr(map.at(n), PAGE, 0)
            .must(format!("GET_MR number {n}"))
    };
    let cookies: Vec<u64> = (0..512).map(get).collect::<Result<_, _>>()?;
    drop(socket);
    before.are("when close with 512 keys is back")?;
    let sample = cookies.iter().step_by(31).chain(cookies.last());
    sample
        .into_iter()
        .try_for_each(|cookie| refused(&prober, *cookie, 0, "one of 512 keys"))
}

/// Hold keys, tell the parent, and wait for whatever comes.
fn hold(link: &Link, keys: u64) -> Outcome {
    let (socket, map) = (bound()?, room()?);
    let cookies = register(&socket, &map, keys)?;
    link.tell(&cookies).must("telling the parent")?;
    link.hear().must("the parent's word").map(drop)
}

fn kill_9() -> Outcome {
    let prober = bound()?;
    let before = site::pins()?;
    let mut victim = helper("victim", |link| hold(link, 64))?;
    let cookies = victim.link().hear().must("the victim's cookies")?;
    same("keys of the victim", 64, cookies.len())?;
    all_alive(&prober, &cookies)?;
    same(
        "how it died",
        Status::Signal(9),
        victim.kill().must("kill -9")?,
    )?;
    same("pages pinned when wait() is back", before, site::pins()?)?;
    all_dead(&prober, &cookies)
}

fn exit() -> Outcome {
    let prober = bound()?;
    let before = site::pins()?;
    // The socket is not closed by hand: the child ends in the middle of its work.
    let mut child = helper("child", |link| {
        let (socket, map) = (bound()?, room()?);
        link.tell(&register(&socket, &map, 64)?)
            .must("telling the parent")?;
        link.hear().must("the parent's word")?;
        rdsmr::process::exit(0)
    })?;
    let cookies = child.link().hear().must("the child's cookies")?;
    all_alive(&prober, &cookies)?;
    child.link().tell(&[]).must("telling the child to exit")?;
    same("how it ended", Status::Exit(0), child.wait().must("wait")?)?;
    same("pages pinned when wait() is back", before, site::pins()?)?;
    all_dead(&prober, &cookies)
}

fn many_sockets() -> Outcome {
    let prober = bound()?;
    let before = site::pins()?;
    let mut victim = helper("victim", |link| {
        let map = room()?;
        let sockets: Vec<Socket> = (0..20).map(|_| bound()).collect::<Result<_, _>>()?;
        let cookies = sockets.iter().map(|socket| register(socket, &map, 3));
        let cookies: Vec<Vec<u64>> = cookies.collect::<Result<_, _>>()?;
        link.tell(&cookies.concat()).must("telling the parent")?;
        link.hear().must("the parent's word").map(drop)
    })?;
    let cookies = victim.link().hear().must("the victim's cookies")?;
    victim.kill().must("kill -9")?;
    same("pages pinned when wait() is back", before, site::pins()?)?;
    all_dead(&prober, &cookies)
}

fn two_descriptors() -> Outcome {
    let (prober, map) = (bound()?, room()?);
    let before = site::Holdings::now()?;
    let socket = bound()?;
    let cookies = register(&socket, &map, 3)?;
    let other = socket.dup().must("dup")?;
    drop(socket);
    all_alive(&prober, &cookies)?;
    other
        .free_mr(cookies[0], 0)
        .must("FREE_MR through the second descriptor")?;
    refused(&prober, cookies[0], 0, "the key freed through it")?;
    drop(other);
    before.are("after the last close")?;
    all_dead(&prober, &cookies)
}

/// The owner closes, a child still has the socket; then the child ends, too.
fn two_processes() -> Outcome {
    let (prober, map) = (bound()?, room()?);
    let before = site::Holdings::now()?;
    let socket = bound()?;
    let cookies = register(&socket, &map, 3)?;
    let holder = |link: &Link| link.hear().must("the parent's word").map(drop);
    let mut child = helper("holder", holder)?;
    drop(socket);
    all_alive(&prober, &cookies)?;
    end(&mut child)?;
    before.are("when wait() for the last holder is back")?;
    all_dead(&prober, &cookies)
}

fn end(child: &mut Child) -> Outcome {
    child.link().tell(&[]).must("telling the child to end")?;
    same(
        "how the child ended",
        Status::Exit(0),
        child.wait().must("wait")?,
    )
}

fn one_of_two() -> Outcome {
    let (prober, map) = (bound()?, room()?);
    let (first, second) = (bound()?, bound()?);
    let (ones, twos) = (register(&first, &map, 6)?, register(&second, &map, 6)?);
    let before = site::pins()?;
    drop(first);
    all_dead(&prober, &ones)?;
    all_alive(&prober, &twos)?;
    drop(second);
    all_dead(&prober, &twos)?;
    let pages = |n| (shape(n).0 + shape(n).1 - 1) / PAGE + 1;
    let both = 2 * (0..6).map(pages).sum::<u64>() as i64;
    same("pages pinned at the end", before - both, site::pins()?)
}

/// What a program starts and what ends again has no say over its keys.
fn child_harms_nothing() -> Outcome {
    let (prober, map) = (bound()?, room()?);
    let socket = bound()?;
    let cookies = register(&socket, &map, 6)?;
    apart("a child that just exits", |_| Ok(()))?;
    all_alive(&prober, &cookies)?;
    let mut child = helper("a child to kill", |link| link.hear().must("word").map(drop))?;
    child.kill().must("kill -9")?;
    all_alive(&prober, &cookies)?;
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", "exit 0"])
        .status();
    status.must("running /bin/sh")?;
    all_alive(&prober, &cookies)?;
    // A child can use what it inherited, though: the key is the socket's.
    let freed = helper("a child that frees", |_| {
        socket.free_mr(cookies[0], 0).must("FREE_MR")
    })?;
    join("a child that frees", freed)?;
    refused(&prober, cookies[0], 0, "the key that the child freed")?;
    each(&cookies[1..], |n, cookie| {
        alive(&prober, cookie, 0, format!("key {}", n + 1))
    })
}
