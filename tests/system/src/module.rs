// SPDX-License-Identifier: GPL-2.0
//! Loading and unloading: what is refused, and with which words.

use crate::check::{fail, same, Check, Outcome};
use crate::reload;
use crate::runner::Test;
use crate::site::{self, alive, bound};
use rdsmr::errno::*;
use rdsmr::{kmod, kmsg, PAGE};

pub const TESTS: &[Test] = &[
    Test::new("module.in_use_by_a_socket", in_use),
    Test::reloading("module.in_use_by_a_reader", in_use_by_a_reader),
    Test::reloading("module.load_and_unload", load_and_unload),
    Test::reloading("module.bad_parameters", bad_parameters),
    Test::reloading("module.in_tree_rds_is_loaded", in_tree_rds),
];

const IN_TREE: &str = "rds";

fn in_use() -> Outcome {
    let name = site::module()?;
    let socket = bound()?;
    let map = site::memory(PAGE)?;
    let cookie = socket.get_mr(map.at(0), PAGE, 0).must("GET_MR")?;
    kmod::try_remove(name).must_fail(EAGAIN, format!("rmmod {name} with an open socket"))?;
    alive(&socket, cookie, 0, "a key after an rmmod that was refused")?;
    let unbound = site::fresh()?;
    drop(socket);
    let result = kmod::try_remove(name);
    drop(unbound);
    result.must_fail(EAGAIN, "rmmod with a socket that is not even bound")
}

/// An open file of debugfs calls the module when it is closed. It is not our
/// socket that is in use here, so an rmmod that goes through shows on its close.
fn in_use_by_a_reader() -> Outcome {
    let name = site::module()?;
    let stats = std::fs::File::open("/sys/kernel/debug/rds_mr/stats");
    let stats = stats.must("opening rds_mr/stats in debugfs")?;
    kmod::try_remove(name).must_fail(EAGAIN, format!("rmmod {name} with an open file"))?;
    drop(stats);
    kmod::remove(name).must(format!("rmmod {name} then"))
}

fn load_and_unload() -> Outcome {
    let map = site::memory(PAGE)?;
    for round in 0..5 {
        reload::with_params("")?;
        let socket = bound()?;
        let cookie = socket
            .get_mr(map.at(0), PAGE, 0)
            .must(format!("GET_MR, load {round}"))?;
        alive(&socket, cookie, 0, format!("a key of load {round}"))?;
    }
    Ok(())
}

fn bad_parameters() -> Outcome {
    let path = reload::file_of(kmod::PRODUCTION)?;
    reload::unload()?;
    let mut log = kmsg::Log::from_now().must("opening /dev/kmsg")?;
    for params in [
        "proof=bogus",
        "proof=",
        "proof=INV",
        "max_keys_per_socket=many",
        "max_keys_per_socket=-1",
        "max_pages_per_user=1.5",
        "revoke_timeout_ms=5s",
        "strict_access=perhaps",
        "mr_classes=2,17,x",
    ] {
        kmod::insert(&path, params).must_fail(EINVAL, format!("insmod with {params}"))?;
        same(
            format!("is it loaded after {params}"),
            false,
            kmod::is_loaded(kmod::PRODUCTION),
        )?;
        let name = params.split('=').next().unwrap_or_default();
        let names_it = |line: &kmsg::Line| line.level <= kmsg::ERROR && line.text.contains(name);
        let said = log.lines().must("reading /dev/kmsg")?.iter().any(names_it);
        same(
            format!("does an error line name the parameter of {params}"),
            true,
            said,
        )?;
    }
    kmod::insert(&path, "proof=dereg").must("insmod with good parameters")
}

fn in_tree_rds() -> Outcome {
    let (ours, theirs) = (
        reload::file_of(kmod::PRODUCTION)?,
        reload::file_of(IN_TREE)?,
    );
    reload::unload()?;
    kmod::insert(&theirs, "").must("insmod of in-tree rds.ko")?;
    let mut log = kmsg::Log::from_now().must("opening /dev/kmsg")?;
    // The module says EEXIST, which the kernel keeps for "this very module is
    // loaded already" and turns into EBUSY.
    let refused = kmod::insert(&ours, "");
    refused.must_fail(EBUSY, "insmod when in-tree rds.ko is loaded")?;
    let lines = log.lines().must("reading /dev/kmsg")?;
    let ours = |line: &&kmsg::Line| line.text.starts_with(kmod::PRODUCTION);
    let errors: Vec<_> = lines
        .iter()
        .filter(ours)
        .filter(|l| l.level <= kmsg::ERROR)
        .collect();
    match errors[..] {
        [line] if line.text.contains(IN_TREE) => Ok(()),
        _ => fail(
            "error lines of rds_mr",
            "one, and it says what to do",
            format!("{errors:?}"),
        ),
    }
}
