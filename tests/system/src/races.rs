// SPDX-License-Identifier: GPL-2.0
//! Calls that meet each other. What each returns is checked where only one
//! answer is right; that nothing is left is checked always.

use crate::check::{fail, helper, in_threads, same, Check, Outcome};
use crate::runner::Test;
use crate::site::{self, bound, Holdings};
use rdsmr::errno::*;
use rdsmr::socket::Bare;
use rdsmr::{mem, Socket, Status, PAGE};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub const TESTS: &[Test] = &[
    Test::new("races.get_free_and_close", get_free_close),
    Test::new("races.two_free_one", two_free_one),
    Test::new("races.close_under_get", close_under_get),
    Test::new("races.get_and_munmap", get_and_munmap),
    Test::new("races.kill_at_any_moment", kill_at_any_moment),
    Test::new("races.bind_to_one_port", bind_to_one_port),
];

/// Not random for anybody but a race: a sequence without a pattern that matters.
fn next(state: &mut u32) -> u32 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    *state >> 16
}

fn get_free_close() -> Outcome {
    const ROUNDS: usize = 300;
    let map = site::memory(64 * PAGE)?;
    let before = Holdings::now()?;
    let shared = bound()?;
    let keys = Mutex::new(Vec::new());
    let locked = || keys.lock().unwrap_or_else(PoisonError::into_inner);
    let seed = AtomicUsize::new(1);
    let get = |socket: &Socket, n: u32| {
        let pages = u64::from(n % 32 + 1);
        socket
            .get_mr(map.at(u64::from(n % 4096)), pages * PAGE, 0)
            .must("GET_MR")
    };
    in_threads(4, || {
        let mut state = seed.fetch_add(1, Relaxed) as u32;
        for _ in 0..ROUNDS {
            match next(&mut state) % 5 {
                0 | 1 => {
                    let cookie = get(&shared, next(&mut state))?;
                    locked().push(cookie);
                }
                2 | 3 => {
                    // Whoever takes it off the list is the only one who frees it.
                    let cookie = locked().pop();
                    cookie.map_or(Ok(()), |key| shared.free_mr(key, 0).must("FREE_MR"))?;
                }
                _ => {
                    let own = bound()?;
                    for _ in 0..3 {
                        get(&own, next(&mut state))?;
                    }
                }
            }
        }
        Ok(())
    })?;
    drop(shared);
    before.are("after four threads have got, freed and closed")
}

fn two_free_one() -> Outcome {
    let socket = bound()?;
    let map = site::memory(PAGE)?;
    let before = Holdings::now()?;
    for round in 0..200 {
        let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
        let freed = AtomicUsize::new(0);
        in_threads(4, || match socket.free_mr(cookie, 0) {
            Ok(()) => {
                freed.fetch_add(1, Relaxed);
                Ok(())
            }
            refused => refused.must_fail(EINVAL, "FREE_MR of a key that another has freed"),
        })?;
        same(
            format!("successful FREE_MRs of one key, round {round}"),
            1,
            freed.load(Relaxed),
        )?;
    }
    before.are("after 200 keys")
}

/// Either answer, and nothing else.
fn either<T>(
    result: io::Result<T>,
    errno: i32,
    what: &str,
) -> Result<Option<T>, crate::check::End> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.raw_os_error() == Some(errno) => Ok(None),
        Err(error) => fail(
            what,
            format!("success or {}", name(errno)),
            describe(&error),
        ),
    }
}

/// The close is the last one for the file table, but a call that runs keeps the
/// socket: then its end is the socket's end.
fn close_under_get() -> Outcome {
    let map = site::memory(16 * PAGE)?;
    let before = Holdings::now()?;
    for round in 0..100 {
        let socket = Bare::new(bound()?);
        let threads = AtomicUsize::new(0);
        in_threads(4, || {
            if threads.fetch_add(1, Relaxed) == 3 {
                std::thread::sleep(Duration::from_micros(round * 50));
                return socket.close().must("close");
            }
            loop {
                let got = socket.with(|socket| socket.get_mr(map.at(0), 16 * PAGE, 0));
                let Some(cookie) = either(got, EBADF, "GET_MR while close runs")? else {
                    return Ok(());
                };
                let freed = socket.with(|socket| socket.free_mr(cookie, 0));
                either(freed, EBADF, "FREE_MR while close runs")?;
            }
        })?;
        before.are(format!("after round {round}"))?;
    }
    Ok(())
}

fn get_and_munmap() -> Outcome {
    const PAGES: u64 = 16;
    let socket = bound()?;
    let map = site::memory(PAGES * PAGE)?;
    let before = Holdings::now()?;
    let (threads, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    in_threads(2, || {
        if threads.fetch_add(1, Relaxed) == 0 {
            while !over.load(Relaxed) {
                map.renew(0, PAGES * PAGE, mem::NONE).must("munmap")?;
                map.renew(0, PAGES * PAGE, mem::READ_WRITE).must("mmap")?;
            }
            return Ok(());
        }
        let all = (0..500).try_for_each(|_| {
            let got = socket.get_mr(map.at(0), PAGES * PAGE, 0);
            match either(got, EFAULT, "GET_MR of memory that comes and goes")? {
                Some(cookie) => socket.free_mr(cookie, 0).must("FREE_MR"),
                None => Ok(()),
            }
        });
        over.store(true, Relaxed);
        all
    })?;
    before.are("after 500 registrations of memory that came and went")
}

fn kill_at_any_moment() -> Outcome {
    let before = site::pins()?;
    for round in 0..30 {
        let mut victim = helper("victim", |link| {
            let (socket, map) = (bound()?, site::memory(300 * PAGE)?);
            link.tell(&[]).must("telling the parent")?;
            let mut state = round;
            loop {
                let pages = u64::from(next(&mut state) % 257 + 1);
                let cookie = socket.get_mr(map.at(0), pages * PAGE, 0).must("GET_MR")?;
                // Some keys stay, so that the exit has some of each kind to end.
                if next(&mut state) % 4 != 0 {
                    socket.free_mr(cookie, 0).must("FREE_MR")?;
                }
            }
        })?;
        victim.link().hear().must("the victim's word")?;
        std::thread::sleep(Duration::from_micros(u64::from(round) * 700));
        same(
            "how the victim ended",
            Status::Signal(9),
            victim.kill().must("kill -9")?,
        )?;
        same(
            format!("pages pinned after round {round}"),
            before,
            site::pins()?,
        )?;
    }
    Ok(())
}

fn bind_to_one_port() -> Outcome {
    for port in 6000..6050 {
        let addr = std::net::SocketAddr::new(site::v4(), port);
        let holder = Mutex::new(Vec::new());
        in_threads(4, || {
            let socket = site::fresh()?;
            if either(
                socket.bind(addr),
                EADDRINUSE,
                "bind to a port that all want",
            )?
            .is_some()
            {
                holder
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(socket);
            }
            Ok(())
        })?;
        let holders = holder.lock().unwrap_or_else(PoisonError::into_inner).len();
        same(format!("sockets bound to port {port}"), 1, holders)?;
    }
    Ok(())
}
