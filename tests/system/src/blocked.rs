// SPDX-License-Identifier: GPL-2.0
//! Nothing is held across user memory. A call that waits for a page which never
//! comes waits alone: its socket, its HCA and everybody else go on, and kill -9
//! ends it.
//!
//! A module that held a lock, a pass of the HCA or a deadline over one of its
//! three accesses to user memory (the option, the memory to pin, the cookie)
//! would hang one of the steps below, and the runner calls that a failure.

use crate::check::{fail, helper, in_threads, same, skip, Check, End, Outcome};
use crate::device::{second_device, there, Unplugged};
use crate::reload;
use crate::runner::Test;
use crate::site::{self, alive, bound, pins, refused};
use rdsmr::abi::*;
use rdsmr::area::Of;
use rdsmr::errno::*;
use rdsmr::mem::READ_WRITE;
use rdsmr::volume::private_mounts;
use rdsmr::{fuse, process, stat, Area, Child, Faults, Link, Mapping, Socket, Status, PAGE};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use Part::{Cookie, Memory, Option as OptionStruct};
use Source::{Fuse, Userfaultfd};

pub const TESTS: &[Test] = &[
    Test::new("blocked.userfaultfd_option", || {
        never(Userfaultfd, OptionStruct)
    }),
    Test::new("blocked.userfaultfd_memory", || never(Userfaultfd, Memory)),
    Test::new("blocked.userfaultfd_cookie", || never(Userfaultfd, Cookie)),
    Test::new("blocked.fuse_option", || never(Fuse, OptionStruct)),
    Test::new("blocked.fuse_memory", || never(Fuse, Memory)),
    Test::new("blocked.fuse_cookie", || never(Fuse, Cookie)),
    Test::new("blocked.until_the_device_is_gone", until_gone),
    Test::reloading("blocked.longer_than_the_deadline", longer_than_the_deadline),
    Test::new("blocked.in_the_other_calls", other_calls),
    Test::new("blocked.never_eintr", never_eintr),
];

/// A page fault, a death: with no answer so long, something hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const SIGKILL: i32 = 9;
const FUSE: &str = "/tmp/rds-mr-fuse";

/// Who does not give the page.
#[derive(Clone, Copy, PartialEq)]
enum Source {
    Userfaultfd,
    Fuse,
}

/// What RDS_GET_MR looks for there.
#[derive(Clone, Copy)]
enum Part {
    Option,
    Memory,
    Cookie,
}

/// Two pages that do not come by themselves.
struct Trap {
    area: Area,
    faults: Option<Faults>,
}

impl Trap {
    fn new(source: Source) -> Result<Self, End> {
        if source == Fuse {
            let path = Path::new(FUSE).join(fuse::NAME);
            let mut options = File::options();
            let file = options.read(true).write(true).open(path);
            let file = file.must("opening the file of the FUSE server")?;
            // Private, so that it is read for a write, too.
            let area = Area::new(2 * PAGE, READ_WRITE, Of::Private(&file, 0)).must("mmap")?;
            return Ok(Trap { area, faults: None });
        }
        let faults = match Faults::new() {
            Ok(faults) => faults,
            Err(error) => return skip(format!("no userfaultfd: {}", describe(&error))),
        };
        let area = Area::anonymous(2 * PAGE).must("mmap")?;
        faults.watch(area.at(0), area.len()).must("watching")?;
        Ok(Trap {
            area,
            faults: Some(faults),
        })
    }

    fn faults(&self) -> Result<&Faults, End> {
        let faults = self.faults.as_ref();
        faults.map_or_else(|| fail("a trap", "of userfaultfd", "not so"), Ok)
    }

    /// Somebody wants a page now. A FUSE server tells it to the parent.
    fn sprung(&self, link: &Link) -> Outcome {
        match &self.faults {
            None => link.hear().must("word of the FUSE server's READ").map(drop),
            Some(faults) => match faults.wait(PATIENCE).must("waiting for a fault")? {
                Some(page) => same("the page that somebody waits for", self.area.at(0), page),
                None => fail("a call that needs a page", "waits for it", "does not"),
            },
        }
    }

    /// What was waited for comes, and begins like this.
    fn answer(&self, start: &[u8]) -> Outcome {
        let given = self.faults()?.answer(self.area.at(0), start);
        given.must("giving the page")
    }
}

fn args(part: Part, trap: u64, good: &Mapping) -> GetMrArgs {
    GetMrArgs {
        addr: if let Memory = part { trap } else { good.at(0) },
        bytes: PAGE,
        cookie_addr: if let Cookie = part { trap } else { 0 },
        flags: RDS_RDMA_READWRITE,
    }
}

/// RDS_GET_MR in a thread of its own, which gets stuck.
fn start(
    socket: &Arc<Socket>,
    part: Part,
    trap: u64,
    good: &Mapping,
) -> JoinHandle<io::Result<()>> {
    let (socket, args) = (socket.clone(), args(part, trap, good));
    std::thread::spawn(move || match part {
        Part::Option => {
            socket.setsockopt_at(SOL_RDS, RDS_GET_MR, trap, size_of::<GetMrArgs>() as i32)
        }
        _ => socket.get_mr_args(&args),
    })
}

fn still_stuck<T>(thread: &JoinHandle<T>) -> Outcome {
    same("is the blocked call back", false, thread.is_finished())
}

fn never(source: Source, part: Part) -> Outcome {
    drop(second_device()?);
    for unplug in [false, true] {
        let fuse = match source {
            Userfaultfd => None,
            Fuse => Some(mount_fuse()?),
        };
        let server = fuse.as_ref().map(serve).transpose()?;
        let before = pins()?;
        let mut victim = helper("victim", |link| victim(link, source, part))?;
        if let Some(server) = &server {
            server.link().hear().must("the FUSE server's word")?;
            victim.link().tell(&[]).must("telling the victim")?;
        }
        let meet = |what: &str| victim.link().meet().must(what);
        meet("meeting the victim, when all that is not blocked has gone through")?;
        if unplug {
            let unplugged = Unplugged::new()?;
            meet("meeting the victim, to say that the HCA is gone")?;
            meet("meeting the victim, when it has seen that")?;
            let (back, map) = (unplugged.replug()?, site::memory(PAGE)?);
            let got = back.get_mr(map.at(0), PAGE, 0);
            got.must("a key on the HCA that is back")?;
        }
        victim.signal(SIGKILL).must("kill -9")?;
        let status = victim.wait_for(PATIENCE).must("waiting for a death")?;
        same(
            "how the blocked process ended",
            Some(Status::Signal(9)),
            status,
        )?;
        same("pages pinned when it is dead", before, pins()?)?;
    }
    Ok(())
}

fn mount_fuse() -> Result<fuse::Server, End> {
    private_mounts().must("unshare(CLONE_NEWNS)")?;
    fuse::Server::mount(Path::new(FUSE))
        .or_else(|error| skip(format!("no FUSE: {}", describe(&error))))
}

/// Serves what it takes to map the file, and says when somebody waits for more.
fn serve(server: &fuse::Server) -> Result<Child, End> {
    helper("FUSE server", |link| {
        server.run().must("serving")?;
        server.ignored().must("waiting for a request")?;
        link.tell(&[]).must("telling the parent")?;
        link.hear().must("the parent's word").map(drop)
    })
}

/// One thread is stuck for ever; what the others do is told to the parent.
fn victim(link: &Link, source: Source, part: Part) -> Outcome {
    let socket = Arc::new(Socket::bound(there()).must("bind")?);
    let (map, trap) = (site::memory(8 * PAGE)?, Trap::new(source)?);
    let get = |n: u64| socket.get_mr(map.at(n * PAGE), PAGE, 0).must("GET_MR");
    let keys: Vec<u64> = (0..4).map(get).collect::<Result<_, _>>()?;
    let thread = start(&socket, part, trap.area.at(0), &map);
    trap.sprung(link)?;

    others_go_on(&socket, &keys[..2], &map)?;
    still_stuck(&thread)?;
    link.meet().must("meeting the parent")?;
    // Without an unplug the parent's next word is a signal.
    link.meet().must("meeting the parent")?;
    let got = socket.get_mr(map.at(0), PAGE, 0);
    got.must_fail(ENODEV, "GET_MR without the device")?;
    for key in &keys[2..] {
        let freed = socket.free_mr(*key, 0);
        freed.must("FREE_MR of a key that died with its device")?;
    }
    still_stuck(&thread)?;
    link.meet().must("meeting the parent")?;
    link.hear().must("the parent's word").map(drop)
}

/// All that can be done to the same socket and the same HCA, by three threads.
fn others_go_on(socket: &Socket, keys: &[u64], map: &Mapping) -> Outcome {
    let turn = AtomicUsize::new(0);
    in_threads(4, || match turn.fetch_add(1, Relaxed) {
        0 => keys.iter().try_for_each(|key| {
            alive(socket, *key, 0, "a key of the blocked socket")?;
            socket.free_mr(*key, 0).must("FREE_MR")?;
            refused(socket, *key, 0, "a key that was freed")?;
            let key = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
            socket.free_mr(key, 0).must("FREE_MR")
        }),
        1 => (0..20).try_for_each(|_| {
            drop(socket.dup().must("dup")?);
            socket.quota().must("RDS_MR_QUOTA")?;
            socket.local().must("getsockname").map(drop)
        }),
        2 => (0..5).try_for_each(|_| {
            for file in ["stats", "quarantine"] {
                let path = format!("/sys/kernel/debug/rds_mr/{file}");
                std::fs::read_to_string(&path).must(&path)?;
            }
            stat::mrs().must("rdma resource show").map(drop)
        }),
        _ => (0..5).try_for_each(|_| {
            let own = Socket::bound(there()).must("bind")?;
            own.get_mr(map.at(0), PAGE, 0).must("GET_MR").map(drop)
        }),
    })
}

/// The page comes when the HCA is gone: the call says so, and leaves nothing.
fn until_gone() -> Outcome {
    for part in [OptionStruct, Memory, Cookie] {
        let socket = Arc::new(second_device()?);
        let (map, trap) = (site::memory(PAGE)?, Trap::new(Userfaultfd)?);
        let before = site::Holdings::now()?;
        let thread = start(&socket, part, trap.area.at(0), &map);
        sprung(&trap)?;
        let unplugged = Unplugged::new()?;
        still_stuck(&thread)?;
        trap.answer(args(part, trap.area.at(0), &map).as_bytes())?;
        back(thread)?.must_fail(ENODEV, "GET_MR whose HCA went while it was blocked")?;
        before.are("when that call is back")?;
        unplugged.replug()?;
    }
    Ok(())
}

fn sprung(trap: &Trap) -> Outcome {
    match trap.faults()?.wait(PATIENCE).must("waiting for a fault")? {
        Some(_) => Ok(()),
        None => fail("a call that needs a page", "waits for it", "does not"),
    }
}

fn back<T>(thread: JoinHandle<T>) -> Result<T, End> {
    match thread.join() {
        Ok(result) => Ok(result),
        Err(_) => fail("a thread of the test", "no panic", "a panic, see above"),
    }
}

/// The clock of a call starts when the HCA has something to do.
fn longer_than_the_deadline() -> Outcome {
    const DEADLINE: Duration = Duration::from_secs(1);
    reload::with_params(&format!("revoke_timeout_ms={}", DEADLINE.as_millis()))?;
    for part in [OptionStruct, Memory, Cookie] {
        let socket = Arc::new(bound()?);
        let (map, trap) = (site::memory(PAGE)?, Trap::new(Userfaultfd)?);
        let before = site::Holdings::now()?;
        let thread = start(&socket, part, trap.area.at(0), &map);
        sprung(&trap)?;
        std::thread::sleep(DEADLINE * 3 / 2);
        trap.answer(args(part, trap.area.at(0), &map).as_bytes())?;
        back(thread)?.must("GET_MR that was blocked for longer than the deadline")?;
        before.plus(1).are("with its key")?;
        if let Cookie = part {
            let mut cookie = 0_u64.to_ne_bytes();
            for (byte, n) in cookie.iter_mut().zip(0..) {
                *byte = trap.area.byte(n).load(Relaxed);
            }
            alive(&socket, u64::from_ne_bytes(cookie), 0, "its key")?;
        }
        drop(socket);
        before.are("after the close")?;
    }
    Ok(())
}

type Call = (&'static str, fn(&Socket, u64) -> io::Result<()>);

const OTHER_CALLS: &[Call] = &[
    ("FREE_MR", |socket, at| {
        socket.setsockopt_at(SOL_RDS, RDS_FREE_MR, at, size_of::<FreeMrArgs>() as i32)
    }),
    ("setting the quota", |socket, at| {
        socket.setsockopt_at(SOL_RDS, RDS_MR_QUOTA, at, size_of::<Quota>() as i32)
    }),
    ("SIOCRDSMRSQUOTA", |socket, at| {
        socket.ioctl_at(SIOCRDSMRSQUOTA, at)
    }),
    ("SIOCRDSMRGQUOTA", |socket, at| {
        socket.ioctl_at(SIOCRDSMRGQUOTA, at)
    }),
    ("SIOCRDSMRPROBE", |socket, at| {
        socket.ioctl_at(SIOCRDSMRPROBE, at)
    }),
    ("SIOCRDSMRREVOKED", |socket, at| {
        socket.ioctl_at(SIOCRDSMRREVOKED, at)
    }),
    ("SIOCRDSGETTOS", |socket, at| {
        socket.ioctl_at(SIOCRDSGETTOS, at)
    }),
];

/// Each other call with an argument in user memory, for which it has to wait.
fn other_calls() -> Outcome {
    for (name, call) in OTHER_CALLS {
        let socket = Arc::new(second_device()?);
        let (map, trap) = (site::memory(PAGE)?, Trap::new(Userfaultfd)?);
        let at = trap.area.at(0);
        let get = |_| socket.get_mr(map.at(0), PAGE, 0).must("GET_MR");
        let keys: Vec<u64> = (0..2).map(get).collect::<Result<_, _>>()?;
        let stuck = socket.clone();
        let thread = std::thread::spawn(move || call(&stuck, at));
        sprung(&trap).or_else(|_| fail(name, "it waits for its argument", "it does not"))?;
        others_go_on(&socket, &keys, &map)?;
        still_stuck(&thread)?;
        let unplugged = Unplugged::new()?;
        still_stuck(&thread)?;
        trap.answer(&[])?;
        // Success or not, it depends on what zeros mean to it.
        let _ = back(thread)?;
        unplugged.replug()?;
    }
    Ok(())
}

/// Interrupted every millisecond. The first key of a process is special, since
/// it makes the module watch over the end of its memory.
fn never_eintr() -> Outcome {
    for _ in 0..10 {
        crate::check::apart("a program with a busy timer", |_| {
            let (socket, map) = (bound()?, site::memory(64 * PAGE)?);
            process::start_ticking(Duration::from_millis(1)).must("setitimer")?;
            let first = socket.get_mr(map.at(0), 64 * PAGE, 0);
            let first = first.must("the first GET_MR of a process")?;
            let mut rounds = 0;
            // Some calls must have been hit, whatever the machine's speed.
            while rounds < 50 || process::ticks() < 20 {
                rounds += 1;
                let own = bound()?;
                let key = own.get_mr(map.at(0), 64 * PAGE, 0).must("GET_MR")?;
                alive(&socket, key, 0, "a key of an interrupted process")?;
                own.free_mr(key, 0).must("FREE_MR")?;
                own.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
            }
            socket.free_mr(first, 0).must("FREE_MR of the first key")
        })?;
    }
    Ok(())
}
