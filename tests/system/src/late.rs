// SPDX-License-Identifier: GPL-2.0
//! What cannot be promised, each limit with a test that shows it: somebody else
//! holds the memory of the dead, or is told of the death before its memory goes.
//!
//! These tests state that a key is alive, and still safe, when a death can be
//! seen. One that fails has found a limit that is none any more: change the docs.

use crate::check::{helper, holds, same, skip, Check, End, Outcome};
use crate::observers::Observers;
use crate::order::{hold_back, locks_at_exec};
use crate::runner::Test;
use crate::site::{self, alive, bound, refused};
use rdsmr::abi::*;
use rdsmr::{death, fd, process, stat, Armed, Child, Fault, Faults, Hammer, Mapping, Socket, PAGE};
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

pub const TESTS: &[Test] = &[
    Test::new("late.memory_is_held_the_close_ends_the_keys", memory_held),
    Test::new("late.memory_and_socket_are_held", memory_and_socket_held),
    Test::new("late.memory_is_read_the_close_ends_the_keys", || {
        memory_read(false)
    }),
    Test::new("late.memory_is_read_and_socket_is_held", || {
        memory_read(true)
    }),
    Test::new("late.end_of_a_sharer_harms_nothing", sharer_ends),
    Test::new("late.vfork_and_exec_harm_nothing", vfork),
    Test::new("late.exec_lets_locks_go_first", locks_at_exec),
    Test::new("late.ptrace_exit_stop_comes_first", ptrace),
    Test::new("late.core_dump_comes_first", core_dump),
    Test::new("late.robust_futex_comes_first", robust_futex),
];

const KEYS: u64 = 3;

fn keys(socket: &Socket, map: &Mapping) -> Result<Vec<u64>, End> {
    let get = |n| socket.get_mr(map.at(n * PAGE), PAGE, RDS_RDMA_READWRITE);
    (0..KEYS).map(|n| get(n).must("GET_MR")).collect()
}

/// A process with keys whose memory a second process shares (CLONE_VM). The
/// second one keeps the socket, too, unless told to close it. The words are
/// `[pid of the second, cookies...]`.
fn sharing_victim(sharer_has_socket: bool) -> Result<Child, End> {
    helper("victim", |link| {
        let (socket, map) = (bound()?, site::memory(KEYS * PAGE)?);
        let cookies = keys(&socket, &map)?;
        let close = (!sharer_has_socket).then_some(socket.as_raw_fd());
        let pid = death::share_memory(close).must("clone(CLONE_VM)")?;
        let words = [&[pid as u64][..], &cookies].concat();
        link.tell(&words).must("telling the test")?;
        link.hear().must("the test's word").map(drop)
    })
}

/// Whether the second process is there and has closed what it had to.
fn sharer_is_ready(pid: i32, fds: usize) -> Outcome {
    site::eventually("the sharer of the memory is ready", || {
        let open = fs::read_dir(format!("/proc/{pid}/fd"));
        Ok(open.is_ok_and(|open| open.count() <= fds))
    })
}

fn late_releases() -> Result<u64, End> {
    stat::counter("late_release").must("reading late_release")
}

/// The socket is closed in exit as well, and before anybody is told.
fn memory_held() -> Outcome {
    let (prober, pins, late) = (bound()?, site::pins()?, late_releases()?);
    let mut victim = sharing_victim(false)?;
    let words = victim.link().hear().must("the victim's words")?;
    let victims = fs::read_dir(format!("/proc/{}/fd", victim.pid())).must("listing its files")?;
    sharer_is_ready(words[0] as i32, victims.count() - 1)?;
    for cookie in &words[1..] {
        alive(&prober, *cookie, 0, "a key of the victim")?;
    }
    // An end that nobody waits for would be seen to come late.
    let _held = hold_back()?;
    victim.kill().must("kill -9")?;
    same("pages pinned when wait() is back", pins, site::pins()?)?;
    for cookie in &words[1..] {
        refused(&prober, *cookie, 0, "a key of the dead")?;
    }
    same("late_release", late, late_releases()?)?;
    process::kill(words[0] as i32).must("kill -9 of the sharer")
}

/// Nothing is left that could tell the module of the death: the keys live on
/// with the memory, pinned and safe, and that is counted.
fn memory_and_socket_held() -> Outcome {
    let (prober, pins, late) = (bound()?, site::pins()?, late_releases()?);
    let mut victim = sharing_victim(true)?;
    let words = victim.link().hear().must("the victim's words")?;
    victim.kill().must("kill -9")?;
    same("pages that stay pinned", pins + KEYS as i64, site::pins()?)?;
    for cookie in &words[1..] {
        alive(&prober, *cookie, 0, "a key whose memory lives on")?;
    }
    process::kill(words[0] as i32).must("kill -9 of the sharer")?;
    site::eventually("the pins of the last sharer", || Ok(site::pins()? == pins))?;
    for cookie in &words[1..] {
        refused(&prober, *cookie, 0, "a key whose memory has gone")?;
    }
    same("late_release", late + KEYS, late_releases()?)
}

/// Somebody reads the memory of the dead (process_vm_readv), and waits for a page
/// that does not come: any process of the same user can do that, for ever.
fn memory_read(socket_is_held: bool) -> Outcome {
    let (prober, pins, late) = (bound()?, site::pins()?, late_releases()?);
    let mut victim = helper("victim", |link| {
        let (socket, map) = (bound()?, site::memory(KEYS * PAGE)?);
        let (never, faults) = (site::memory(PAGE)?, Faults::new().must("userfaultfd")?);
        faults.watch(never.at(0), PAGE).must("UFFDIO_REGISTER")?;
        let words = [
            faults.as_raw_fd() as u64,
            socket.as_raw_fd() as u64,
            never.at(0),
        ];
        let words = [&words[..], &keys(&socket, &map)?].concat();
        link.tell(&words).must("telling the test")?;
        link.hear().must("the test's word").map(drop)
    })?;
    let words = victim.link().hear().must("the victim's words")?;
    let cookies = &words[3..];
    let pidfd = victim.pidfd().must("pidfd_open")?;
    let take = |number: u64| fd::steal(pidfd.as_fd(), number as i32).must("pidfd_getfd");
    // Ours, or the page would come to nobody when the victim dies.
    let faults = Faults::from(take(words[0])?);
    let held = if socket_is_held {
        Some(take(words[1])?)
    } else {
        None
    };
    let (pid, at) = (victim.pid(), words[2]);
    let mut reader = helper("reader", |_| {
        let read = death::read_memory_of(pid, at);
        read.must("process_vm_readv that nobody answers").map(drop)
    })?;
    let waits = faults
        .wait(site::PATIENCE)
        .must("reading the userfaultfd")?;
    same("the page that somebody waits for", Some(at), waits)?;

    let _held = hold_back()?;
    victim.kill().must("kill -9")?;
    let kept = if socket_is_held { KEYS } else { 0 };
    same("pages that are pinned", pins + kept as i64, site::pins()?)?;
    for cookie in cookies {
        let check = if socket_is_held { alive } else { refused };
        check(&prober, *cookie, 0, "a key of the dead".to_string())?;
    }
    reader.kill().must("kill -9 of the reader")?;
    site::eventually("the pins of the memory", || Ok(site::pins()? == pins))?;
    for cookie in cookies {
        refused(&prober, *cookie, 0, "a key whose memory has gone")?;
    }
    drop(held);
    same("late_release", late + kept, late_releases()?)
}

/// The end of one who shares the memory is not the end of the memory.
fn sharer_ends() -> Outcome {
    let prober = bound()?;
    let mut victim = sharing_victim(true)?;
    let words = victim.link().hear().must("the victim's words")?;
    let sharer = process::pidfd(words[0] as i32).must("pidfd_open")?;
    process::kill(words[0] as i32).must("kill -9 of the sharer")?;
    let gone = fd::ready(&[sharer.as_raw_fd()], site::PATIENCE).must("poll of its pidfd")?;
    holds("the sharer is gone", !gone.is_empty())?;
    for cookie in &words[1..] {
        alive(&prober, *cookie, 0, "a key of the one that lives")?;
    }
    victim.kill().must("kill -9").map(drop)
}

/// posix_spawn is vfork and exec: the child has our memory until it execs.
fn vfork() -> Outcome {
    let (socket, map) = (bound()?, site::memory(KEYS * PAGE)?);
    let cookies = keys(&socket, &map)?;
    let ended = Command::new("/bin/true").status().must("posix_spawn")?;
    holds("it ended well", ended.success())?;
    for cookie in &cookies {
        alive(&socket, *cookie, 0, "a key of the one that lives")?;
    }
    Ok(())
}

/// A tracer sees PTRACE_EVENT_EXIT before the memory goes.
fn ptrace() -> Outcome {
    let (prober, pins) = (bound()?, site::pins()?);
    let mut victim = helper("victim", |link| {
        let (socket, map) = (bound()?, site::memory(KEYS * PAGE)?);
        link.tell(&keys(&socket, &map)?).must("telling the test")?;
        link.hear().must("the test's word")?;
        process::exit(0)
    })?;
    let cookies = victim.link().hear().must("the victim's cookies")?;
    death::trace_exit(&victim).must("PTRACE_SEIZE")?;
    victim.link().tell(&[]).must("telling it to exit")?;
    death::wait_for_exit_stop(&victim).must("waiting for PTRACE_EVENT_EXIT")?;
    for cookie in &cookies {
        alive(&prober, *cookie, 0, "a key in the exit stop")?;
    }
    death::go_on(&victim).must("PTRACE_CONT")?;
    victim.wait().must("wait")?;
    same("pages pinned when wait() is back", pins, site::pins()?)?;
    for cookie in &cookies {
        refused(&prober, *cookie, 0, "a key of the dead")?;
    }
    Ok(())
}

/// What takes the core dump runs before the memory goes, for as long as it likes.
fn core_dump() -> Outcome {
    let (prober, pins) = (bound()?, site::pins()?);
    let catcher = CoreCatcher::install()?;
    let mut victim = helper("victim", |link| {
        let (socket, map) = (bound()?, site::memory(KEYS * PAGE)?);
        link.tell(&keys(&socket, &map)?).must("telling the test")?;
        link.hear().must("the test's word").map(drop)
    })?;
    let cookies = victim.link().hear().must("the victim's cookies")?;
    death::allow_core(victim.pid()).must("prlimit(RLIMIT_CORE)")?;
    victim.signal(death::SIGQUIT).must("kill -QUIT")?;
    site::eventually("the core dump begins", || Ok(CoreCatcher::has_begun()))?;
    for cookie in &cookies {
        alive(&prober, *cookie, 0, "a key while the core is dumped")?;
    }
    catcher.let_go()?;
    victim.wait().must("wait")?;
    same("pages pinned when wait() is back", pins, site::pins()?)?;
    for cookie in &cookies {
        refused(&prober, *cookie, 0, "a key of the dead")?;
    }
    Ok(())
}

/// A program that takes a core dump and does not come to its end.
struct CoreCatcher {
    pattern: String,
}

impl CoreCatcher {
    const PATTERN: &'static str = "/proc/sys/kernel/core_pattern";
    const PROGRAM: &'static str = "/tmp/rdsmr-core";
    const BEGUN: &'static str = "/tmp/rdsmr-core-begun";
    const GO: &'static str = "/tmp/rdsmr-core-go";

    fn install() -> Result<Self, End> {
        let pattern = fs::read_to_string(Self::PATTERN).must("reading core_pattern")?;
        for file in [Self::BEGUN, Self::GO] {
            let _ = fs::remove_file(file);
        }
        let script = format!(
            "#!/bin/sh\n: >{}\nuntil [ -e {} ]; do sleep 0.05; done\n",
            Self::BEGUN,
            Self::GO
        );
        fs::write(Self::PROGRAM, script).must("writing a script")?;
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(Self::PROGRAM, executable).must("chmod")?;
        fs::write(Self::PATTERN, format!("|{}", Self::PROGRAM)).must("setting core_pattern")?;
        Ok(CoreCatcher { pattern })
    }

    fn has_begun() -> bool {
        std::path::Path::new(Self::BEGUN).exists()
    }

    fn let_go(&self) -> Outcome {
        fs::write(Self::GO, "").must("writing a file")
    }
}

impl Drop for CoreCatcher {
    fn drop(&mut self) {
        let _ = self.let_go();
        let _ = fs::write(Self::PATTERN, &self.pattern);
    }
}

/// Robust futexes are let go of in exit_mm, before the memory is.
fn robust_futex() -> Outcome {
    if !Hammer::is_there() {
        return skip("needs rds_mr_kunit.ko, which can hold the end of a key back");
    }
    let (prober, pins) = (bound()?, site::pins()?);
    let shared = Mapping::shared(PAGE).must("mmap")?;
    let mut victim = helper("victim", |link| {
        let (socket, map) = (bound()?, site::memory(KEYS * PAGE)?);
        death::hold_robust_futex(&shared).must("set_robust_list")?;
        link.tell(&keys(&socket, &map)?).must("telling the test")?;
        link.hear().must("the test's word").map(drop)
    })?;
    let cookies = victim.link().hear().must("the victim's cookies")?;
    alive(&prober, cookies[0], 0, "a key of the victim")?;
    let (fault, times) = if site::param("proof")? == "inv" {
        (Fault::PostSlow, 1)
    } else {
        (Fault::DeregSlow, KEYS as u32)
    };
    let held = Armed::new(fault, times, 2000).must("arming a fault")?;
    let mut observers = Observers::new();
    observers.death_of(&victim)?;
    process::kill(victim.pid()).must("kill -9")?;
    death::wait_for_owner_died(&shared).must("waiting for the futex")?;
    same(
        "pages pinned when the futex is free",
        pins + KEYS as i64,
        site::pins()?,
    )?;
    observers.watch(|_| same("pages pinned when the pidfd tells", pins, site::pins()?))?;
    drop(held);
    victim.wait().must("wait").map(drop)
}
