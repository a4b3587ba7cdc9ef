// SPDX-License-Identifier: GPL-2.0
//! The order of a death, key by key, as kernel probes tell it: the driver has
//! let go, the pages are unpinned, the memory goes, files are closed, the parent
//! is told. The module's own word is not asked.
//!
//! The DMA mapping is undone between the first two; on a software HCA that is no
//! call that could be probed.

use crate::check::{fail, helper, holds, same, skip, Check, End, Outcome};
use crate::runner::Test;
use crate::site::{self, bound};
use rdsmr::abi::*;
use rdsmr::inject::{self, Failing};
use rdsmr::trace::{self, Event, Probes};
use rdsmr::{Status, PAGE};

pub const TESTS: &[Test] = &[
    Test::new("trace.kill_9", || in_order(true)),
    Test::new("trace.exit", || in_order(false)),
    Test::new("trace.control_without_the_watch", out_of_order),
];

const KEYS: u64 = 3;

/// `rkey` is the second of two 32-bit numbers after two pointers in `struct ib_mr`.
const PROBES: &[&str] = &[
    "p:dereg ib_dereg_mr_user rkey=+20(%di):x32",
    "r:deregged ib_dereg_mr_user",
    "p:unpin unpin_user_pages_dirty_lock pages=%si:u64",
    "p:mm_ends exit_mmap",
    "p:unmap unmap_vmas",
    "p:fput __fput",
    "p:notify do_notify_parent",
];

/// What the death of `victim` with the keys `rkeys` did in a wrong order.
fn disorder(events: &[Event], victim: i32, rkeys: &[u32]) -> Option<String> {
    let first = |after: u64, thread: i32, name: &str| {
        let mut events = events.iter();
        events.find(|e| e.at > after && e.thread == thread && e.name == name)
    };
    let Some(mm_ends) = first(0, victim, "mm_ends") else {
        return Some("the end of the victim's memory was not seen".to_string());
    };
    let later = |name: &str| first(mm_ends.at, victim, name).map(|e| e.at);
    let (Some(unmap), Some(fput), Some(notify)) = (later("unmap"), later("fput"), later("notify"))
    else {
        return Some("the victim's memory, files or parent were not dealt with".to_string());
    };
    if !(unmap < fput && fput < notify) {
        return Some(format!("memory {unmap}, files {fput}, parent {notify}"));
    }
    rkeys.iter().find_map(|rkey| {
        let dereg = events
            .iter()
            .find(|e| e.name == "dereg" && e.fields.get("rkey") == Some(&u64::from(*rkey)));
        // The same thread returns from it, and then unpins.
        let unpin = dereg.and_then(|dereg| {
            let back = first(dereg.at, dereg.thread, "deregged")?;
            first(back.at, dereg.thread, "unpin")
        });
        match unpin {
            None => Some(format!("key {rkey:#x} was not deregistered, then unpinned")),
            Some(unpin) if unpin.at > unmap => Some(format!(
                "key {rkey:#x} was unpinned at {}, and memory went from {unmap} on",
                unpin.at
            )),
            Some(_) => None,
        }
    })
}

/// A process with keys that dies while probes are set.
fn trace_of_death(kill: bool) -> Result<(Vec<Event>, i32, Vec<u32>), End> {
    if !trace::is_there() {
        return skip("needs a kernel with CONFIG_KPROBE_EVENTS");
    }
    if site::param("proof")? == "inv" {
        return skip("reads the order of ib_dereg_mr, which is not the proof here");
    }
    let mut victim = helper("victim", |link| {
        let (socket, map) = (bound()?, site::memory(KEYS * PAGE)?);
        let get = |n| socket.get_mr(map.at(n * PAGE), PAGE, RDS_RDMA_READWRITE);
        let cookies: Result<Vec<u64>, End> = (0..KEYS).map(|n| get(n).must("GET_MR")).collect();
        link.tell(&cookies?).must("telling the test")?;
        link.hear().must("the test's word")?;
        rdsmr::process::exit(0)
    })?;
    let cookies = victim.link().hear().must("the victim's cookies")?;
    let probes = Probes::set(PROBES).must("setting kprobes")?;
    if kill {
        victim.kill().must("kill -9")?;
    } else {
        victim.link().tell(&[]).must("telling it to exit")?;
        same("how it ended", Status::Exit(0), victim.wait().must("wait")?)?;
    }
    let events = probes.events().must("reading the trace")?;
    Ok((
        events,
        victim.pid(),
        cookies.iter().map(|cookie| *cookie as u32).collect(),
    ))
}

fn in_order(kill: bool) -> Outcome {
    let (events, victim, rkeys) = trace_of_death(kill)?;
    match disorder(&events, victim, &rkeys) {
        None => Ok(()),
        Some(text) => fail("the order of the death", "as promised", text),
    }
}

/// The reader of the trace must see it when the keys do not end first.
fn out_of_order() -> Outcome {
    if !inject::is_there() {
        return skip("needs a kernel with CONFIG_FAIL_FUNCTION");
    }
    let blind = Failing::always("rds_mr_helper_mm_ends", 0).must("blinding the watch")?;
    let (events, victim, rkeys) = trace_of_death(true)?;
    drop(blind);
    holds(
        "the trace shows memory that went before the keys",
        disorder(&events, victim, &rkeys).is_some(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at: u64, thread: i32, name: &str, rkey: Option<u64>) -> Event {
        let fields = rkey.map(|rkey| ("rkey".to_string(), rkey));
        Event {
            at,
            thread,
            name: name.to_string(),
            fields: fields.into_iter().collect(),
        }
    }

    fn good() -> Vec<Event> {
        vec![
            event(1, 7, "mm_ends", None),
            event(2, 50, "dereg", Some(0x11)),
            event(3, 50, "deregged", None),
            event(4, 50, "unpin", None),
            event(5, 7, "unmap", None),
            event(6, 7, "fput", None),
            event(7, 7, "notify", None),
        ]
    }

    #[test]
    fn the_promised_order_is_accepted() {
        assert_eq!(disorder(&good(), 7, &[0x11]), None);
    }

    #[test]
    fn every_swap_is_found() {
        for n in 1..6 {
            let mut events = good();
            (events[n].at, events[n + 1].at) = (events[n + 1].at, events[n].at);
            events.sort_by_key(|event| event.at);
            assert!(disorder(&events, 7, &[0x11]).is_some(), "swap at {n}");
        }
    }

    #[test]
    fn a_key_that_nobody_ended_is_found() {
        assert!(disorder(&good(), 7, &[0x11, 0x12]).is_some());
        assert!(disorder(&good()[..6], 7, &[0x11]).is_some());
    }
}
