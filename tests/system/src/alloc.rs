// SPDX-License-Identifier: GPL-2.0
//! Every allocation fails once, in every call.

use crate::check::{holds, same, Check, End, Outcome};
use crate::device::{second_device, Unplugged};
use crate::inject::{Faults, Steps, NEVER};
use crate::reload;
use crate::runner::Test;
use crate::site::{self, alive, bound, fresh, refused, Holdings};
use rdsmr::abi::*;
use rdsmr::errno::*;
use rdsmr::link::Request;
use rdsmr::{kmod, kmsg, Mapping, Socket, PAGE};
use std::cell::RefCell;

pub const TESTS: &[Test] = &[
    Test::new("alloc.injection_injects", injection_injects),
    Test::new("alloc.socket", socket),
    Test::new("alloc.bind", bind),
    Test::new("alloc.get_mr", get_mr),
    Test::reloading("alloc.first_get_mr_1_of_4", || first_get_mr(1)),
    Test::reloading("alloc.first_get_mr_2_of_4", || first_get_mr(2)),
    Test::reloading("alloc.first_get_mr_3_of_4", || first_get_mr(3)),
    Test::reloading("alloc.first_get_mr_4_of_4", || first_get_mr(4)),
    Test::new("alloc.free_mr", free_mr),
    Test::new("alloc.quota", quota),
    Test::new("alloc.probe", probe),
    Test::new("alloc.device_add", device_add),
    Test::reloading("alloc.module_init_1_of_3", || module_init(1)),
    Test::reloading("alloc.module_init_2_of_3", || module_init(2)),
    Test::reloading("alloc.module_init_3_of_3", || module_init(3)),
];

/// Every allocation, from the first on.
const ALL: (u32, usize) = (1, 1);

/// The control of all others: without injection every socket can be made, and
/// with it none.
fn injection_injects() -> Outcome {
    let faults = Faults::new()?;
    for everybody in [false, true] {
        let result = faults.all(everybody, 0, Socket::new)?;
        holds(
            "socket(2) fails when every allocation does",
            result.is_err(),
        )?;
        fresh()?;
    }
    let (result, left) = faults.nth(NEVER, Socket::new)?;
    result.must("socket(2) before the allocation that is to fail")?;
    holds("socket(2) allocates, and it is counted", left < NEVER)
}

fn socket() -> Outcome {
    let faults = Faults::new()?;
    // ENFILE is the socket layer's own word for "no inode".
    let steps = Steps {
        what: "socket(2)",
        errnos: &[ENOMEM, ENFILE],
        at_least: 4,
    };
    steps.run(&faults, ALL, Socket::new, |_, _| Ok(()))?;
    bound().map(drop)
}

fn bind() -> Outcome {
    let faults = Faults::new()?;
    let socket = RefCell::new(fresh()?);
    let steps = Steps {
        what: "bind",
        errnos: &[ENOMEM],
        at_least: 2,
    };
    let here = site::here();
    let call = || socket.borrow().bind(here);
    steps.run(&faults, ALL, call, |n, result| {
        if result.is_err() {
            let again = socket.borrow().bind(here);
            again.must(format!("bind again after step {n}"))?;
        }
        socket.replace(fresh()?);
        Ok(())
    })
}

/// A quota of one key: what a failure leaves behind fails the next step.
fn one_key() -> Result<Socket, End> {
    let socket = bound()?;
    socket.set_quota(1, MAX_PAGES).must("a quota of one key")?;
    Ok(socket)
}

fn get_steps(faults: &Faults, socket: &Socket, what: &str, map: &Mapping, bytes: u64) -> Outcome {
    let before = Holdings::now()?;
    let steps = Steps {
        what,
        errnos: &[ENOMEM],
        at_least: 3,
    };
    let call = || socket.get_mr(map.at(0), bytes, RDS_RDMA_READWRITE);
    steps.run(faults, ALL, call, |n, result| {
        if let Ok(cookie) = result {
            alive(socket, cookie, bytes - 1, format!("the key of step {n}"))?;
            socket.free_mr(cookie, 0).must("FREE_MR")?;
        }
        before.are(format!("after step {n} of {what}"))?;
        // Untouched memory: the pages and their tables are to be made, too.
        map.renew(0, map.len(), rdsmr::mem::READ_WRITE).must("mmap")
    })
}

/// The whole of the quota, and not more.
fn full_budget(socket: &Socket, map: &Mapping) -> Outcome {
    let cookie = socket.get_mr(map.at(0), map.len(), 0);
    let cookie = cookie.must("the only key of the quota, at the end")?;
    alive(socket, cookie, map.len() - 1, "the only key of the quota")?;
    let more = socket.get_mr(map.at(0), PAGE, 0);
    more.must_fail(EAGAIN, "a key more than the quota")?;
    socket.free_mr(cookie, 0).must("FREE_MR")
}

fn get_mr() -> Outcome {
    let faults = Faults::new()?;
    let socket = one_key()?;
    let large = site::memory(MAX_PAGES * PAGE)?;
    for pages in [1, 3, 20] {
        let map = site::memory(pages * PAGE)?;
        let what = format!("GET_MR of {pages} pages");
        get_steps(&faults, &socket, &what, &map, pages * PAGE)?;
    }
    full_budget(&socket, &large)
}

/// The first key of a device, which makes the queue, and with no idle MR. Every
/// step begins with a new device, since the queue stays when it is there. In four
/// parts, each well below the time limit of a test.
fn first_get_mr(first: u32) -> Outcome {
    let faults = Faults::new()?;
    let map = site::memory(PAGE)?;
    let new = || {
        reload::with_params("mr_pool=0")?;
        one_key()
    };
    let socket = RefCell::new(Some(new()?));
    let steps = Steps {
        what: "the first GET_MR of a device",
        // EIO: rxe has a socket in each queue pair, and says ENFILE without one.
        errnos: &[ENOMEM, EIO],
        at_least: 3,
    };
    let get = |socket: &Option<Socket>| match socket {
        Some(socket) => socket.get_mr(map.at(0), PAGE, 0),
        None => Err(std::io::Error::from_raw_os_error(EBADF)),
    };
    let before = Holdings::now()?;
    let call = || get(&socket.borrow());
    steps.run(&faults, (first, 4), call, |n, result| {
        if let (Some(socket), Ok(cookie)) = (&*socket.borrow(), &result) {
            socket.free_mr(*cookie, 0).must("FREE_MR")?;
        }
        before.are(format!("after step {n}"))?;
        if let Some(socket) = &*socket.borrow() {
            full_budget(socket, &map)?;
        }
        // Nothing of the old one may be open when the module goes.
        socket.replace(None);
        socket.replace(Some(new()?));
        Ok(())
    })
}

fn free_mr() -> Outcome {
    let faults = Faults::new()?;
    let socket = one_key()?;
    let map = site::memory(PAGE)?;
    let before = Holdings::now()?;
    let get = || socket.get_mr(map.at(0), PAGE, 0).must("GET_MR");
    let cookie = RefCell::new(get()?);
    let steps = Steps {
        what: "FREE_MR",
        errnos: &[],
        at_least: 0,
    };
    let call = || socket.free_mr(*cookie.borrow(), 0);
    steps.run(&faults, ALL, call, |n, _| {
        before.are(format!("after step {n}"))?;
        refused(&socket, *cookie.borrow(), 0, format!("the key of step {n}"))?;
        cookie.replace(get()?);
        Ok(())
    })
}

fn quota() -> Outcome {
    let faults = Faults::new()?;
    let socket = bound()?;
    let steps = |what| Steps {
        what,
        errnos: &[ENOMEM],
        at_least: 0,
    };
    let in_force = |keys: u32| {
        let now = socket.quota().must("reading the quota")?;
        same("max_keys in force", keys, now.max_keys)
    };
    socket.set_quota(7, 70).must("a quota")?;
    let set = || socket.set_quota(8, 80);
    steps("setting the quota").run(&faults, ALL, set, |_, result| {
        in_force(if result.is_ok() { 8 } else { 7 })?;
        socket.set_quota(7, 70).must("the quota as before")
    })?;
    steps("getting the quota").run(&faults, ALL, || socket.quota(), |_, _| in_force(7))
}

fn probe() -> Outcome {
    let faults = Faults::new()?;
    let socket = bound()?;
    let map = site::memory(PAGE)?;
    let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
    let before = Holdings::now()?;
    let steps = Steps {
        what: "the probe",
        // A packet that could not be made is a probe without a verdict.
        errnos: &[ENOMEM, EIO],
        at_least: 5,
    };
    let call = || socket.probe(cookie, 0);
    steps.run(&faults, ALL, call, |n, result| {
        if let Ok(answer) = result {
            let what = format!("what step {n} says of a live key");
            same(what, rdsmr::Access::Alive, answer)?;
        }
        before.are(format!("after step {n}"))
    })?;
    socket.free_mr(cookie, 0).must("FREE_MR")?;
    refused(&socket, cookie, 0, "the key that was probed")
}

/// Only near the end: the module is the last to be told of a new device. Before
/// that the kernel itself loses memory when it gets none (rxe its sockets,
/// ib_uverbs its tables), and in-tree code is not what is tested. The module's
/// own part is stepped through by `module_init`, which adds every device.
fn device_add() -> Outcome {
    const STEPS: u32 = 8;
    let faults = Faults::new()?;
    drop(second_device()?);
    let (ibdev, netdev) = (site::peer_ibdev(), site::peer_netdev());
    let unplugged = Unplugged::new()?;
    let before = Holdings::now()?;
    let add = Request::add(&ibdev, &netdev).must("netlink")?;
    let delete = || Request::delete(&ibdev).and_then(|request| request.send());
    let (result, left) = faults.nth(NEVER, || add.send())?;
    result.must("adding the device")?;
    delete().must("deleting the device")?;
    let count = NEVER - left;
    println!("# adding a device: {count} allocations");
    for n in (1..=STEPS).map(|step| count - 22 * step) {
        faults
            .nth(n, || add.send())?
            .0
            .must(format!("adding the device, step {n}"))?;
        delete().must(format!("deleting the device of step {n}"))?;
        before.are(format!("after step {n} of {count}"))?;
    }
    let back = unplugged.replug()?;
    let map = site::memory(PAGE)?;
    let cookie = back.get_mr(map.at(0), PAGE, 0).must("GET_MR at the end")?;
    alive(&back, cookie, 0, "a key of the device that is back")
}

/// What the module said of the devices that it met.
#[derive(Debug, Default)]
struct Served {
    yes: usize,
    no: usize,
}

impl Served {
    fn read(log: &mut kmsg::Log) -> Result<Self, End> {
        let lines = log.lines().must("reading /dev/kmsg")?;
        let count = |word: &str| lines.iter().filter(|line| line.text.contains(word)).count();
        Ok(Served {
            yes: count(": served"),
            no: count(": not served"),
        })
    }
}

/// From where the module itself begins: the loader before it is not ours. A
/// device for which there was no memory is not served, and is no reason to fail.
/// In three parts, each well below the time limit of a test.
fn module_init(third: u32) -> Outcome {
    let faults = Faults::new()?;
    let name = site::module()?;
    let path = reload::file_of(name)?;
    reload::unload()?;
    let (result, left) = faults.nth(NEVER, || kmod::insert(&path, "proof=bogus"))?;
    result.must_fail(EINVAL, "insmod with a bad parameter")?;
    let steps = Steps {
        what: "insmod, from the module's own init on",
        errnos: &[ENOMEM],
        at_least: 0,
    };
    let first = (NEVER - left).saturating_sub(5) + third;
    let mut log = kmsg::Log::from_now().must("opening /dev/kmsg")?;
    let mut not_served = 0;
    let call = || kmod::insert(&path, "");
    steps.run(&faults, (first, 3), call, |n, result| {
        let loaded = kmod::is_loaded(name);
        same(
            format!("is it loaded after step {n}"),
            result.is_ok(),
            loaded,
        )?;
        let served = Served::read(&mut log)?;
        not_served += served.no;
        if !loaded {
            return Ok(());
        }
        if served.yes == 2 {
            bound()?;
        }
        kmod::remove(name).must(format!("rmmod after step {n}"))
    })?;
    println!("# {not_served} steps without a device");
    holds(
        "steps that left a device without service: 5 or more",
        not_served >= 5,
    )?;
    kmod::insert(&path, "").must("insmod at the end")?;
    let (socket, map) = (bound()?, site::memory(PAGE)?);
    let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
    alive(&socket, cookie, 0, "a key of the module that is back")
}
