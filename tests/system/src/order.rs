// SPDX-License-Identifier: GPL-2.0
//! Nobody can tell that a process is dead while a key to its memory is alive,
//! whoever else holds the socket.
//!
//! A fault holds the end of the keys back for two seconds. If anything of the
//! death could be seen before the keys are dead, it is seen in that time. The
//! controls run the same without the module's watch over the memory (the hook is
//! made to say "not the end"), and must see it.

use crate::cgroup::Group;
use crate::check::{fail, helper, same, skip, Check, End, Outcome};
use crate::inject::Announced;
use crate::observers::{self, Ends, Observers};
use crate::runner::Test;
use crate::site::{self, bound};
use crate::victim::{self, Death, Holder, Stage, KEYS};
use rdsmr::abi::*;
use rdsmr::errno::{EAGAIN, EINVAL};
use rdsmr::inject::{self, Failing};
use rdsmr::socket::POLLPRI;
use rdsmr::{fd, process, Access, Armed, Child, Fault, Hammer, Socket, Status, PAGE};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

pub const TESTS: &[Test] = &[
    Test::new("order.kill_9", || seen_after(Death::Kill, Holder::Nobody)),
    Test::new("order.exit", || seen_after(Death::Exit, Holder::Nobody)),
    Test::new("order.exec", || seen_after(Death::Exec, Holder::Nobody)),
    Test::new("order.out_of_memory", || {
        seen_after(Death::Oom, Holder::Nobody)
    }),
    Test::new("order.kill_9_child_has_the_socket", || {
        seen_after(Death::Kill, Holder::Child)
    }),
    Test::new("order.kill_9_socket_was_passed", || {
        seen_after(Death::Kill, Holder::Passed)
    }),
    Test::new("order.kill_9_socket_was_taken", || {
        seen_after(Death::Kill, Holder::Taken)
    }),
    Test::new("order.kill_9_socket_in_io_uring", || {
        seen_after(Death::Kill, Holder::Ring)
    }),
    Test::new("order.exec_child_has_the_socket", || {
        seen_after(Death::Exec, Holder::Child)
    }),
    Test::new("order.control_files_tell_without_the_watch", || {
        seen_before(Death::Kill, Holder::Nobody)
    }),
    Test::new("order.control_kill_9_child_has_the_socket", || {
        seen_before(Death::Kill, Holder::Child)
    }),
    Test::new("order.control_kill_9_socket_was_passed", || {
        seen_before(Death::Kill, Holder::Passed)
    }),
    Test::new("order.control_kill_9_socket_was_taken", || {
        seen_before(Death::Kill, Holder::Taken)
    }),
    Test::new("order.control_exit_child_has_the_socket", || {
        seen_before(Death::Exit, Holder::Child)
    }),
    Test::new("order.control_exec_child_has_the_socket", || {
        seen_before(Death::Exec, Holder::Child)
    }),
];

const HOLD_MS: u32 = 2000;

/// Hold the end of the keys back.
pub fn hold_back() -> Result<Armed, End> {
    let (fault, times) = if site::param("proof")? == "inv" {
        (Fault::PostSlow, 1)
    } else {
        (Fault::DeregSlow, KEYS as u32)
    };
    Armed::new(fault, times, HOLD_MS).must("arming a fault")
}

/// A scene that is set: the victim is about to die.
struct Scene {
    victim: Child,
    cookies: Vec<u64>,
    pins: i64,
    prober: Socket,
    observers: Observers,
    /// Locked by the victim.
    file: File,
    /// The socket, if the test holds it, too.
    copy: Option<Socket>,
    holder: Option<i32>,
    /// The socket's descriptor in the victim.
    number: i32,
}

fn set(death: Death, holder: Holder, group: Option<&Group>) -> Result<Scene, End> {
    let prober = bound()?;
    let pins = site::pins()?;
    let ((ours_a, before), (ours_b, after)) = (Ends::pairs()?, Ends::pairs()?);
    let file = tempfile()?;
    let (line, theirs) = UnixStream::pair().must("socketpair")?;
    let stage = Stage {
        before,
        after,
        file: file.try_clone().must("dup")?,
        line: theirs,
    };
    let mut stage = Some(stage);
    let victim = helper("victim", |link| match stage.take() {
        Some(stage) => victim::run(link, stage, death, holder, group),
        None => fail("the stage", "there", "gone"),
    })?;
    // The victim's ends are the victim's only.
    drop(stage);
    let words = victim.link().hear().must("the victim's words")?;
    let cookies = words[2..].to_vec();
    let copy = match holder {
        Holder::Passed => fd::receive(&line).must("receiving the socket")?.1,
        Holder::Taken => {
            let pidfd = victim.pidfd().must("pidfd_open")?;
            Some(fd::steal(pidfd.as_fd(), words[0] as i32).must("pidfd_getfd")?)
        }
        _ => None,
    };
    let mut observers = Observers::new();
    observers.ends("before the socket", ours_a);
    observers.ends(observers::AFTER, ours_b);
    if death != Death::Exec {
        // exec lets locks of files that it closes go before it changes the memory.
        observers.lock_on(&file)?;
        observers.death_of(&victim)?;
    }
    for cookie in &cookies {
        site::alive(&prober, *cookie, 0, "a key of the victim")?;
    }
    let holder = (words[1] != 0).then_some(words[1] as i32);
    let copy = copy.map(Socket::from);
    Ok(Scene {
        victim,
        cookies,
        pins,
        prober,
        observers,
        file,
        copy,
        holder,
        number: words[0] as i32,
    })
}

fn tempfile() -> Result<File, End> {
    let path = format!("/tmp/rdsmr-order-{}", std::process::id());
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path);
    fs::remove_file(&path).must("removing a file")?;
    file.must("making a file")
}

impl Scene {
    /// Let it die. Returns who could tell while a key was alive or pages pinned.
    fn play(&mut self, death: Death) -> Result<Vec<String>, End> {
        let _held = hold_back()?;
        if death == Death::Kill {
            process::kill(self.victim.pid()).must("kill -9")?;
        } else {
            self.victim.link().tell(&[]).must("telling it to die")?;
        }
        let observers = std::mem::replace(&mut self.observers, Observers::new());
        let mut early = Vec::new();
        observers.watch(|who| {
            if site::pins()? != self.pins || !self.all_dead()? {
                early.push(who.to_string());
            }
            Ok(())
        })?;
        Ok(early)
    }

    fn all_dead(&self) -> Result<bool, End> {
        for cookie in &self.cookies {
            let said = site::verdict(&self.prober, *cookie, 0);
            let said = said.must("probe of a key of the victim")?;
            if said != Access::Refused {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whoever held the socket learns what happened and can go on with it.
    fn aftermath(&self, copy: &Socket) -> Outcome {
        same("poll(POLLPRI)", POLLPRI, copy.poll(POLLPRI).must("poll")?)?;
        let mut told = Vec::new();
        for _ in &self.cookies {
            let news = copy.revoked().must("SIOCRDSMRREVOKED")?;
            same(
                "why, and whether it is proven",
                (RDS_MR_REVOKED_OWNER, 0),
                (news.reason, news.flags),
            )?;
            told.push(news.cookie);
        }
        told.sort_unstable();
        let mut cookies = self.cookies.clone();
        cookies.sort_unstable();
        same("the keys that were told of", cookies, told)?;
        copy.revoked()
            .must_fail(EAGAIN, "SIOCRDSMRREVOKED when all is told")?;
        same("poll(POLLPRI) then", 0, copy.poll(POLLPRI).must("poll")?)?;
        for cookie in &self.cookies {
            copy.free_mr(*cookie, 0).must("FREE_MR of a revoked key")?;
            copy.free_mr(*cookie, 0)
                .must_fail(EINVAL, "FREE_MR of it once more")?;
        }
        let map = site::memory(PAGE)?;
        let cookie = copy
            .get_mr(map.at(0), PAGE, 0)
            .must("GET_MR by the holder")?;
        site::alive(&self.prober, cookie, 0, "a key of the holder")?;
        copy.free_mr(cookie, 0).must("FREE_MR of it")
    }

    /// Everybody off, and everything back.
    fn clear(mut self) -> Outcome {
        self.victim.kill().must("kill -9")?;
        self.copy = None;
        if let Some(pid) = self.holder {
            process::kill(pid).must("kill -9 of the holder")?;
        }
        site::eventually("pages pinned when all is over", || {
            Ok(site::pins()? == self.pins)
        })
    }
}

fn seen_after(death: Death, holder: Holder) -> Outcome {
    needs_faults()?;
    let group = if death == Death::Oom {
        let group = Group::with("memory", "rdsmr-order")?;
        group.set("memory.max", "32M")?;
        Some((group, Announced::now()?))
    } else {
        None
    };
    let mut scene = set(death, holder, group.as_ref().map(|(group, _)| group))?;
    let early = scene.play(death)?;
    same(
        "who could tell of the death too early",
        Vec::<String>::new(),
        early,
    )?;
    if death == Death::Oom {
        same(
            "how it died",
            Status::Signal(9),
            scene.victim.wait().must("wait")?,
        )?;
    }
    if let Some(pid) = scene.holder {
        // It has inherited the descriptor under the same number.
        let holder = process::pidfd(pid).must("pidfd_open of the holder")?;
        let copy = fd::steal(holder.as_fd(), scene.number);
        scene.copy = Some(copy.must("pidfd_getfd of the holder")?.into());
    }
    if let Some(copy) = &scene.copy {
        scene.aftermath(copy)?;
    }
    scene.clear()
}

/// Without the watch the death must be seen too early, or this file shows nothing:
/// by everybody if the socket lives on, and otherwise by those whose descriptors
/// are closed before the socket's, which ends the keys (the last ones first).
fn seen_before(death: Death, holder: Holder) -> Outcome {
    needs_faults()?;
    let mut scene = set(death, holder, None)?;
    let all = scene.observers.names();
    let blind = Failing::always("rds_mr_helper_mm_ends", 0).must("blinding the watch")?;
    let early = scene.play(death)?;
    drop(blind);
    let mut must = all;
    if holder == Holder::Nobody {
        must.retain(|who| who.ends_with(observers::AFTER));
    }
    must.retain(|who| !early.contains(who));
    same(
        "who could not tell of the death while keys were alive",
        Vec::<String>::new(),
        must,
    )?;
    scene.clear()
}

/// What exec closes loses its POSIX locks before the memory goes; a limit.
pub fn locks_at_exec() -> Outcome {
    needs_faults()?;
    let mut scene = set(Death::Exec, Holder::Nobody, None)?;
    scene.observers = Observers::new();
    scene.observers.lock_on(&scene.file)?;
    let all = scene.observers.names();
    let early = scene.play(Death::Exec)?;
    same("who got a lock while keys were alive", all, early)?;
    scene.clear()
}

fn needs_faults() -> Outcome {
    if !Hammer::is_there() {
        return skip("needs rds_mr_kunit.ko, which can hold the end of a key back");
    }
    if !inject::is_there() {
        return skip("needs a kernel with CONFIG_FAIL_FUNCTION");
    }
    Ok(())
}
