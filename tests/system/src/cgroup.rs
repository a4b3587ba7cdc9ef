// SPDX-License-Identifier: GPL-2.0
//! The rdma cgroup: each key is one hca_object of the cgroup whose task asked
//! for it, until it is gone. What the controller itself counts is what is looked
//! at.

use crate::check::{apart, helper, in_threads, join, same, skip, Check, End, Outcome};
use crate::device::{second_device, there, Unplugged};
use crate::reload;
use crate::runner::Test;
use crate::site::{self, Holdings};
use rdsmr::errno::*;
use rdsmr::{Child, Socket, PAGE};
use std::fs;
use std::path::{Path, PathBuf};

pub const TESTS: &[Test] = &[
    Test::new("cgroup.by_one_key", by_one_key),
    Test::new("cgroup.exact_with_16_processes", exact),
    Test::new("cgroup.given_back_by_close", || given_back(Way::Close)),
    Test::new("cgroup.given_back_by_kill_9", || given_back(Way::Kill)),
    Test::new("cgroup.given_back_by_unplug", || given_back(Way::Unplug)),
    Test::new("cgroup.parent_is_the_limit", parent_is_the_limit),
    Test::new(
        "cgroup.refused_requests_leave_nothing",
        refused_leave_nothing,
    ),
    Test::reloading("cgroup.too_much_for_it_harms_nobody", harms_nobody),
];

const ROOT: &str = "/sys/fs/cgroup";

/// A cgroup for as long as this lives; its tasks have ended by then.
pub struct Group(PathBuf);

impl Group {
    pub fn new(name: &str) -> Result<Self, End> {
        let there = fs::read_to_string(Path::new(ROOT).join("cgroup.controllers"));
        if !there.is_ok_and(|list| list.split_whitespace().any(|one| one == "rdma")) {
            return skip(format!("no rdma controller in {ROOT}"));
        }
        Self::with("rdma", name)
    }

    /// A group that one controller can limit.
    pub fn with(controller: &str, name: &str) -> Result<Self, End> {
        Self::below(Path::new(ROOT), controller, name)
    }

    fn below(parent: &Path, controller: &str, name: &str) -> Result<Self, End> {
        let control = parent.join("cgroup.subtree_control");
        let enabled = fs::write(control, format!("+{controller}"));
        enabled.must(format!("enabling {controller} in {parent:?}"))?;
        let dir = parent.join(name);
        fs::create_dir_all(&dir).must(format!("mkdir {dir:?}"))?;
        Ok(Group(dir))
    }

    pub fn set(&self, file: &str, text: &str) -> Outcome {
        let written = fs::write(self.0.join(file), text);
        written.must(format!("writing \"{text}\" to {file}"))
    }

    /// At most so many keys on the second device.
    fn limit(&self, objects: u32) -> Outcome {
        let text = format!("{} hca_object={objects}", site::peer_ibdev());
        self.set("rdma.max", &text)
    }

    pub fn enter(&self) -> Outcome {
        self.set("cgroup.procs", "0")
    }

    /// What the controller has counted on the second device.
    fn objects(&self) -> Result<u32, End> {
        let text = fs::read_to_string(self.0.join("rdma.current")).must("rdma.current")?;
        let prefix = format!("{} ", site::peer_ibdev());
        let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
        let count = line.and_then(|line| {
            let field = |word: &str| word.strip_prefix("hca_object=")?.parse().ok();
            line.split_whitespace().find_map(field)
        });
        // No line: nothing is charged there, and no limit set.
        Ok(count.unwrap_or(0))
    }

    fn has(&self, objects: u32, when: &str) -> Outcome {
        same(format!("hca_object {when}"), objects, self.objects()?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Get keys until one is refused, and say how many; then do what is said.
fn member(group: &Group, tries: u32) -> Result<Child, End> {
    helper("a member of a cgroup", |link| {
        group.enter()?;
        link.meet().must("meeting the parent")?;
        let socket = Socket::bound(there()).must("bind")?;
        let map = site::memory(PAGE)?;
        let mut got = 0;
        for n in 0..tries {
            match socket.get_mr(map.at(0), PAGE, 0) {
                Ok(_) => got += 1,
                refused => refused.must_fail(EAGAIN, format!("GET_MR number {n}"))?,
            }
        }
        link.tell(&[got]).must("telling the parent")?;
        link.hear().must("the parent's word")?;
        drop(socket);
        link.tell(&[]).must("telling the parent")?;
        link.hear().must("the parent's word").map(drop)
    })
}

fn got(member: &Child) -> Result<u64, End> {
    Ok(member.link().hear().must("a member's word")?[0])
}

fn by_one_key() -> Outcome {
    drop(second_device()?);
    let group = Group::new("rds-mr-one")?;
    group.limit(3)?;
    let child = helper("a member of a cgroup", |_| {
        group.enter()?;
        let (socket, map) = (Socket::bound(there()).must("bind")?, site::memory(PAGE)?);
        let get = || socket.get_mr(map.at(0), PAGE, 0);
        group.has(0, "at first")?;
        let first = get().must("key 1 of 3")?;
        group.has(1, "with one key")?;
        get().must("key 2 of 3")?;
        get().must("key 3 of 3")?;
        for _ in 0..3 {
            get().must_fail(EAGAIN, "key 4 of 3")?;
            group.has(3, "after the key too many")?;
        }
        socket.free_mr(first, 0).must("FREE_MR")?;
        group.has(2, "after FREE_MR")?;
        get().must("key 3 again")?;
        get().must_fail(EAGAIN, "key 4 again")?;
        // Another device has its own limits.
        let other = site::bound()?;
        other
            .get_mr(map.at(0), PAGE, 0)
            .must("a key of another device")?;
        group.has(3, "with a key of another device")?;
        drop(socket);
        group.has(0, "after the close")
    })?;
    join("a member of a cgroup", child)
}

fn exact() -> Outcome {
    drop(second_device()?);
    let group = Group::new("rds-mr-exact")?;
    group.limit(20)?;
    let members: Vec<Child> = (0..16)
        .map(|_| member(&group, 5))
        .collect::<Result<_, _>>()?;
    for member in &members {
        member.link().meet().must("meeting a member")?;
    }
    let sum = members.iter().map(got).sum::<Result<u64, End>>()?;
    same("keys of 16 processes", 20, sum)?;
    group.has(20, "with all keys")?;
    drop(members);
    group.has(0, "when all have been killed")
}

enum Way {
    Close,
    Kill,
    Unplug,
}

fn given_back(way: Way) -> Outcome {
    drop(second_device()?);
    let group = Group::new("rds-mr-back")?;
    let mut member = member(&group, 10)?;
    member.link().meet().must("meeting a member")?;
    same("keys without a limit", 10, got(&member)?)?;
    group.has(10, "with 10 keys")?;
    match way {
        Way::Close => {
            member.link().meet().must("meeting a member")?;
            group.has(0, "after the close")
        }
        Way::Kill => {
            member.kill().must("kill -9")?;
            group.has(0, "when wait() is back")
        }
        Way::Unplug => {
            // The controller forgets the device, and complains of who does not.
            let unplugged = Unplugged::new()?;
            group.has(0, "without the device")?;
            let _back = unplugged.replug()?;
            member.link().meet().must("meeting a member")?;
            group.has(0, "after the close of a socket that lost its device")
        }
    }
}

/// The charge goes up to the root, and the tightest limit holds.
fn parent_is_the_limit() -> Outcome {
    drop(second_device()?);
    let outer = Group::new("rds-mr-outer")?;
    let inner = [
        Group::below(&outer.0, "rdma", "a")?,
        Group::below(&outer.0, "rdma", "b")?,
    ];
    outer.limit(3)?;
    inner[0].limit(2)?;
    let members = [member(&inner[0], 5)?, member(&inner[1], 5)?];
    for (member, keys) in members.iter().zip([2, 1]) {
        member.link().meet().must("meeting a member")?;
        same("keys of a member", keys, got(member)?)?;
    }
    inner[0].has(2, "of the first")?;
    inner[1].has(1, "of the second")?;
    outer.has(3, "of both")?;
    drop(members);
    outer.has(0, "when both have been killed")
}

/// Whatever refuses a key later on.
fn refused_leave_nothing() -> Outcome {
    drop(second_device()?);
    let group = Group::new("rds-mr-refused")?;
    let child = helper("a member of a cgroup", |_| {
        group.enter()?;
        let (socket, map) = (Socket::bound(there()).must("bind")?, site::memory(PAGE)?);
        let before = Holdings::now()?;
        let nowhere = socket.get_mr(8, PAGE, 0);
        nowhere.must_fail(EFAULT, "memory that is nowhere")?;
        group.has(0, "after EFAULT")?;
        let args = rdsmr::abi::GetMrArgs {
            addr: map.at(0),
            bytes: PAGE,
            cookie_addr: 8,
            flags: 0,
        };
        let nowhere = socket.get_mr_args(&args);
        nowhere.must_fail(EFAULT, "a cookie that goes nowhere")?;
        group.has(0, "after EFAULT for the cookie")?;
        socket.set_quota(1, 1).must("setting the quota")?;
        socket.get_mr(map.at(0), PAGE, 0).must("the only key")?;
        let over = socket.get_mr(map.at(0), PAGE, 0);
        over.must_fail(EAGAIN, "a key over the quota")?;
        group.has(1, "after EAGAIN of the quota")?;
        group.limit(1)?;
        socket.set_quota(0, 0).must("setting the quota")?;
        let over = socket.get_mr(map.at(0), PAGE, 0);
        over.must_fail(EAGAIN, "a key over the cgroup's limit")?;
        before.plus(1).are("after EAGAIN of the cgroup")
    })?;
    join("a member of a cgroup", child)
}

/// Requests over the limit of their cgroup must not use up, not even for a
/// moment, what tasks of another one may have.
fn harms_nobody() -> Outcome {
    const FITTING: usize = 8;
    const ROUNDS: usize = 200;
    drop(second_device()?);
    reload::with_params(&format!("max_keys_per_device={FITTING}"))?;
    let group = Group::new("rds-mr-narrow")?;
    group.limit(0)?;
    let narrow: Vec<Child> = (0..FITTING)
        .map(|_| {
            helper("a member of a cgroup that may have no key", |link| {
                group.enter()?;
                let (socket, map) = (Socket::bound(there()).must("bind")?, site::memory(PAGE)?);
                link.meet().must("meeting the parent")?;
                loop {
                    let never = socket.get_mr(map.at(0), PAGE, 0);
                    never.must_fail(EAGAIN, "a key over the cgroup's limit")?;
                }
            })
        })
        .collect::<Result<_, _>>()?;
    for member in &narrow {
        member.link().meet().must("meeting a member")?;
    }
    // Its threads end before the members do, which are killed then.
    apart("somebody else, for whom there is room", |_| {
        let (socket, map) = (Socket::bound(there()).must("bind")?, site::memory(PAGE)?);
        in_threads(FITTING, || {
            (0..ROUNDS).try_for_each(|_| {
                let cookie = socket.get_mr(map.at(0), PAGE, 0);
                let cookie = cookie.must("a key that fits")?;
                socket.free_mr(cookie, 0).must("FREE_MR")
            })
        })
    })?;
    drop(narrow);
    group.has(0, "in the end")
}
