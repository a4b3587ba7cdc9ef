// SPDX-License-Identifier: GPL-2.0
//! Limits under concurrency: to one key and one page, and never at the expense
//! of somebody whose request fits.
//!
//! Adding first and looking at the limit afterwards would show here, and so
//! would charging one level for a request that another level refuses.

use crate::cgroup::Group;
use crate::check::{apart, fail, helper, in_threads, join, same, Check, End, Outcome};
use crate::reload;
use crate::runner::Test;
use crate::site::{self, alive, bound, pins};
use rdsmr::errno::*;
use rdsmr::process::{
    become_user, become_user_with, limit_memlock, set_capabilities, CAP_IPC_LOCK,
};
use rdsmr::{stat, Child, Mapping, Socket, PAGE};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

pub const TESTS: &[Test] = &[
    Test::new("exact.quota_of_keys", || quota(LIMIT as u32, 0)),
    Test::new("exact.quota_of_pages", || quota(0, LIMIT)),
    Test::reloading("exact.keys_of_a_user", || ceiling("max_keys_per_user")),
    Test::reloading("exact.pages_of_a_user", || ceiling("max_pages_per_user")),
    Test::reloading("exact.keys_of_a_device", || ceiling("max_keys_per_device")),
    Test::reloading("exact.pages_of_a_device", || {
        ceiling("max_pages_per_device")
    }),
    Test::new("exact.memlock", memlock),
    Test::new("exact.quota_lowered_meanwhile", lowered),
    Test::new(
        "exact.too_much_for_the_quota_harms_nobody",
        quota_harms_nobody,
    ),
    Test::new(
        "exact.too_much_for_memlock_harms_nobody",
        memlock_harms_nobody,
    ),
    Test::reloading("exact.too_much_for_a_user_harms_nobody", user_harms_nobody),
    Test::reloading("exact.room_for_one_key", one_key),
    Test::new("exact.cap_ipc_lock_without_root", cap_without_root),
    Test::new("exact.root_without_cap_ipc_lock", root_without_cap),
    Test::reloading("exact.charges_die_with_their_memory", die_with_memory),
];

const RACERS: usize = 16;
const LIMIT: u64 = 40;
/// Per racer, so that all together want far more than there is.
const TRIES: u64 = 10;

/// Words that all racers see, also those in processes of their own.
struct Score(Mapping);

impl Score {
    fn new() -> Result<Self, End> {
        Mapping::shared(PAGE).must("memfd").map(Score)
    }

    fn word(&self, n: usize) -> &AtomicU64 {
        &self.0.words()[n]
    }

    /// One attempt: it worked, or it was refused with this errno.
    fn count<T>(&self, result: io::Result<T>, errno: i32) -> Outcome {
        match result {
            Ok(_) => self.word(0).fetch_add(1, Relaxed),
            Err(error) if error.raw_os_error() == Some(errno) => self.word(1).fetch_add(1, Relaxed),
            Err(error) => {
                let expected = format!("success or {}", name(errno));
                return fail("GET_MR", expected, describe(&error));
            }
        };
        Ok(())
    }

    fn must_be(&self, got: u64, wanted: u64, who: &str) -> Outcome {
        let score = [self.word(0), self.word(1)].map(|word| word.load(Relaxed));
        let what = format!("successes and refusals of {RACERS} {who}");
        same(what, [got, wanted - got], score)
    }
}

/// A process for each racer: all are there before the first begins, and none ends
/// before the last is done.
fn in_processes(body: impl Fn() -> Outcome) -> Result<Vec<Child>, End> {
    let racer = |_| {
        helper("a racer", |link| {
            link.meet().must("meeting the parent")?;
            body()?;
            link.meet().must("meeting the parent")?;
            link.hear().must("the parent's word").map(drop)
        })
    };
    let racers: Vec<Child> = (0..RACERS).map(racer).collect::<Result<_, _>>()?;
    for _ in 0..2 {
        for racer in &racers {
            racer.link().tell(&[]).must("telling a racer")?;
        }
        for racer in &racers {
            racer.link().hear().must("a racer's word")?;
        }
    }
    Ok(racers)
}

fn dismiss(racers: Vec<Child>) -> Outcome {
    racers.into_iter().try_for_each(|racer| {
        racer.link().tell(&[]).must("telling a racer to end")?;
        join("a racer", racer)
    })
}

const WANTED: u64 = RACERS as u64 * TRIES;

/// Threads, then processes, at one socket. A key of one page uses up one of
/// either.
fn quota(keys: u32, pages: u64) -> Outcome {
    let map = site::memory(PAGE)?;
    for processes in [false, true] {
        let (socket, score) = (bound()?, Score::new()?);
        socket.set_quota(keys, pages).must("setting the quota")?;
        let race =
            || (0..TRIES).try_for_each(|_| score.count(socket.get_mr(map.at(0), PAGE, 0), EAGAIN));
        if processes {
            let racers = in_processes(race)?;
            score.must_be(LIMIT, WANTED, "processes")?;
            dismiss(racers)?;
        } else {
            in_threads(RACERS, race)?;
            score.must_be(LIMIT, WANTED, "threads")?;
        }
    }
    Ok(())
}

/// Each racer at a socket of its own; all are one user's.
fn ceiling(parameter: &str) -> Outcome {
    reload::with_params(&format!("{parameter}={LIMIT}"))?;
    let before = pins()?;
    for processes in [false, true] {
        let score = Score::new()?;
        // Also when all have been let go, nothing may be missing.
        apart("racers of one user", |_| {
            become_user(site::USER).must("setuid")?;
            let map = site::memory(PAGE)?;
            let race = || {
                let socket = bound()?;
                let get = |_| score.count(socket.get_mr(map.at(0), PAGE, 0), EAGAIN);
                (0..TRIES).try_for_each(get)?;
                std::mem::forget(socket);
                Ok(())
            };
            if processes {
                let racers = in_processes(race)?;
                score.must_be(LIMIT, WANTED, "processes")?;
                dismiss(racers)
            } else {
                in_threads(RACERS, race)?;
                score.must_be(LIMIT, WANTED, "threads")
            }
        })?;
        same("pages pinned when all have ended", before, pins()?)?;
    }
    Ok(())
}

fn memlock() -> Outcome {
    let score = Score::new()?;
    apart("a user", |_| {
        limit_memlock(LIMIT * PAGE).must("setrlimit")?;
        become_user(site::USER).must("setuid")?;
        let (socket, map) = (bound()?, site::memory(PAGE)?);
        let get = || score.count(socket.get_mr(map.at(0), PAGE, 0), ENOMEM);
        in_threads(RACERS, || (0..TRIES).try_for_each(|_| get()))?;
        score.must_be(LIMIT, WANTED, "threads")?;
        let kib = stat::own_vm_pin_kib().must("VmPin")?;
        same("VmPin at the limit", LIMIT * 4, kib)
    })
}

/// From when the call that lowers it is back, no key too many is given out.
fn lowered() -> Outcome {
    const ROUNDS: u32 = 20;
    let map = site::memory(PAGE)?;
    for _ in 0..ROUNDS {
        let (socket, turn) = (bound()?, AtomicUsize::new(0));
        let (got, low) = (AtomicU64::new(0), AtomicBool::new(false));
        in_threads(RACERS, || {
            if turn.fetch_add(1, Relaxed) == 0 {
                while got.load(Relaxed) < LIMIT {
                    std::thread::yield_now();
                }
                socket.set_quota(1, 1).must("a quota below use")?;
                low.store(true, std::sync::atomic::Ordering::SeqCst);
                return Ok(());
            }
            loop {
                let late = low.load(std::sync::atomic::Ordering::SeqCst);
                let result = socket.get_mr(map.at(0), PAGE, 0);
                match result.map_err(|error| error.raw_os_error()) {
                    Ok(_) if late => {
                        return fail("GET_MR under a lowered quota", "EAGAIN", "success")
                    }
                    Ok(_) => got.fetch_add(1, Relaxed),
                    Err(Some(EAGAIN)) => return Ok(()),
                    other => return same("GET_MR", Err(Some(EAGAIN)), other),
                };
            }
        })?;
    }
    Ok(())
}

/// Half of the racers ask for what never fits, until the others, for whom there
/// is room at any moment, have had theirs often enough.
fn side_by_side(
    fits: impl Fn() -> io::Result<()> + Sync,
    never: impl Fn() -> io::Result<()> + Sync,
    errnos: &[i32],
) -> Outcome {
    const ROUNDS: u32 = 100;
    let (turn, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    in_threads(RACERS, || {
        if turn.fetch_add(1, Relaxed) % 2 == 0 {
            while ended.load(Relaxed) < RACERS / 2 {
                let errno = never().map_err(|error| error.raw_os_error().unwrap_or(0));
                if !errno.is_err_and(|errno| errnos.contains(&errno)) {
                    let expected = errnos.iter().map(|errno| name(*errno));
                    let expected = expected.collect::<Vec<_>>().join(" or ");
                    return fail(
                        "a request that does not fit",
                        expected,
                        format!("{errno:?}"),
                    );
                }
            }
            return Ok(());
        }
        let all = (0..ROUNDS).try_for_each(|_| fits().must("a request that fits"));
        ended.fetch_add(if all.is_ok() { 1 } else { RACERS }, Relaxed);
        all
    })
}

fn cycle(socket: &Socket, map: &Mapping, pages: u64) -> io::Result<()> {
    let cookie = socket.get_mr(map.at(0), pages * PAGE, 0)?;
    socket.free_mr(cookie, 0)
}

const FITTING: u64 = RACERS as u64 / 2;

/// Refused for its pages, a request must not have used up a key meanwhile.
fn quota_harms_nobody() -> Outcome {
    let (socket, map) = (bound()?, site::memory((FITTING + 1) * PAGE)?);
    let quota = socket.set_quota(FITTING as u32, FITTING);
    quota.must("setting the quota")?;
    let fits = || cycle(&socket, &map, 1);
    side_by_side(fits, || cycle(&socket, &map, FITTING + 1), &[EAGAIN])
}

/// Refused by the one, it must not have used up the other: quota and memlock, in
/// both directions.
fn memlock_harms_nobody() -> Outcome {
    apart("a user", |_| {
        limit_memlock(FITTING * PAGE).must("setrlimit")?;
        become_user(site::USER).must("setuid")?;
        let map = site::memory((FITTING + 1) * PAGE)?;
        let exact = bound()?;
        let quota = exact.set_quota(FITTING as u32, 4 * FITTING);
        quota.must("setting the quota")?;
        let fits = || cycle(&exact, &map, 1);
        // Those that fit may have all keys of the quota at the moment.
        let never = || cycle(&exact, &map, FITTING + 1);
        side_by_side(fits, never, &[ENOMEM, EAGAIN])?;
        // Another socket, whose quota is too small for what memlock would allow.
        let narrow = bound()?;
        narrow.set_quota(0, 1).must("setting the quota")?;
        side_by_side(fits, || cycle(&narrow, &map, 2), &[EAGAIN])
    })
}

/// A user at his ceiling must not take anything from the device's. A user is a
/// process of his own.
fn user_harms_nobody() -> Outcome {
    const ROUNDS: u64 = 100;
    reload::with_params(&format!(
        "max_keys_per_user={FITTING} max_keys_per_device={}",
        2 * FITTING
    ))?;
    let score = Score::new()?;
    let full = helper("a user at the ceiling", |link| {
        become_user(site::OTHER_USER).must("setuid")?;
        let (socket, map) = (bound()?, site::memory(PAGE)?);
        let get = || socket.get_mr(map.at(0), PAGE, 0);
        (0..FITTING).try_for_each(|_| get().must("GET_MR").map(drop))?;
        link.meet().must("meeting the parent")?;
        while score.word(0).load(Relaxed) == 0 {
            get().must_fail(EAGAIN, "a key above the ceiling of the user")?;
        }
        Ok(())
    })?;
    full.link().meet().must("meeting the user at the ceiling")?;
    let fitting = apart("a user for whom there is room", |_| {
        become_user(site::USER).must("setuid")?;
        let (socket, map) = (bound()?, site::memory(PAGE)?);
        let one = || cycle(&socket, &map, 1).must("a key that fits");
        in_threads(FITTING as usize, || (0..ROUNDS).try_for_each(|_| one()))
    });
    score.word(0).store(1, Relaxed);
    join("a user at the ceiling", full)?;
    fitting
}

const CYCLES: u32 = 10_000;
/// With KASAN and lockdep a cycle takes 20 ms and more in an emulated machine, and
/// ten thousand of them longer than a test may.
const CYCLES_UNDER_CHECKERS: u32 = 1_000;

/// What one cycle forgets to give back is missing in the next.
fn one_key() -> Outcome {
    let cycles = if Path::new("/proc/lockdep").exists() {
        CYCLES_UNDER_CHECKERS
    } else {
        CYCLES
    };
    reload::with_params(
        "max_keys_per_user=1 max_pages_per_user=1 max_keys_per_device=1 max_pages_per_device=1",
    )?;
    // Not every kernel has the controller.
    let group = Group::new("rds-mr-one").ok();
    apart("a user who may have one key of one page", |_| {
        if let Some(group) = &group {
            let ibdev = site::ibdev();
            group.set("rdma.max", &format!("{ibdev} hca_object=1"))?;
            group.enter()?;
        }
        limit_memlock(PAGE).must("setrlimit")?;
        become_user(site::USER).must("setuid")?;
        let map = site::memory(PAGE)?;
        (0..cycles).try_for_each(|n| {
            let socket = bound()?;
            let got = socket.get_mr(map.at(0), PAGE, 0);
            got.must(format!("the only key, cycle {n}")).map(drop)
        })
    })
}

fn cap_without_root() -> Outcome {
    apart("a user with CAP_IPC_LOCK", |_| {
        limit_memlock(PAGE).must("setrlimit")?;
        become_user_with(site::USER, CAP_IPC_LOCK).must("keeping CAP_IPC_LOCK")?;
        let (socket, map) = (bound()?, site::memory(4 * PAGE)?);
        let got = socket.get_mr(map.at(0), 4 * PAGE, 0);
        got.must("4 pages over a limit of one")?;
        limit_memlock(0).must("setrlimit")?;
        let got = socket.get_mr(map.at(0), PAGE, 0);
        got.must("a page with a limit of 0")?;
        set_capabilities(0).must("giving CAP_IPC_LOCK up")?;
        let got = socket.get_mr(map.at(0), PAGE, 0);
        got.must_fail(EPERM, "a page without the right")
    })
}

fn root_without_cap() -> Outcome {
    apart("root without CAP_IPC_LOCK", |_| {
        limit_memlock(PAGE).must("setrlimit")?;
        set_capabilities(!CAP_IPC_LOCK & ((1 << 41) - 1)).must("giving CAP_IPC_LOCK up")?;
        let (socket, map) = (bound()?, site::memory(2 * PAGE)?);
        let got = socket.get_mr(map.at(0), 2 * PAGE, 0);
        got.must_fail(ENOMEM, "2 pages of 1")?;
        let cookie = socket.get_mr(map.at(0), PAGE, 0).must("1 page of 1")?;
        alive(&socket, cookie, 0, "the key of one page")?;
        let got = socket.get_mr(map.at(0), 1, 0);
        got.must_fail(ENOMEM, "a second page of 1")
    })
}

/// Whose memory it is, his is the charge, and with his memory it goes, whoever
/// else still has the socket. The key's slot stays, until it is freed.
fn die_with_memory() -> Outcome {
    const PAGES: u64 = 4;
    reload::with_params(&format!(
        "max_pages_per_user={PAGES} max_pages_per_device={PAGES}"
    ))?;
    let (socket, map) = (bound()?, site::memory(PAGES * PAGE)?);
    let all = || socket.get_mr(map.at(0), PAGES * PAGE, 0);
    socket.set_quota(2, PAGES).must("setting the quota")?;
    let before = site::Holdings::now()?;
    let child = helper("a child with the parent's socket", |link| {
        let cookie = all().must("GET_MR in the child")?;
        let kib = stat::own_vm_pin_kib().must("VmPin")?;
        same("VmPin of the child", PAGES * 4, kib)?;
        link.tell(&[cookie]).must("telling the parent")?;
        link.hear().must("the parent's word").map(drop)
    })?;
    let dead = child.link().hear().must("the child's cookie")?[0];
    alive(&socket, dead, 0, "the child's key")?;
    let kib = stat::own_vm_pin_kib().must("VmPin")?;
    same("VmPin of the parent", 0, kib)?;
    all().must_fail(EAGAIN, "the pages that the child has")?;
    child.link().tell(&[]).must("telling the child to end")?;
    join("a child with the parent's socket", child)?;
    before.are("when the child has ended")?;

    let cookie = all().must("all pages, when the child has ended")?;
    socket.free_mr(cookie, 0).must("FREE_MR")?;
    socket.set_quota(1, 0).must("room for one key")?;
    all().must_fail(EAGAIN, "a key while that of the dead has the only slot")?;
    socket
        .free_mr(dead, 0)
        .must("FREE_MR of the dead child's key")?;
    let again = socket.free_mr(dead, 0);
    again.must_fail(EINVAL, "FREE_MR of it once more")?;
    all().must("a key in its slot").map(drop)
}
