// SPDX-License-Identifier: GPL-2.0
//! The order of a death, key by key, as kernel probes tell it: the HCA has let go,
//! the DMA mapping is undone, the pages are unpinned, the memory goes, files are
//! closed, the parent is told. The module's own word is not asked.

use crate::check::{fail, helper, same, skip, Check, End, Outcome};
use crate::runner::Test;
use crate::site::{self, bound};
use rdsmr::abi::*;
use rdsmr::inject::{self, Failing};
use rdsmr::trace::{self, Event, Probes};
use rdsmr::{Status, PAGE};
use std::os::unix::process::CommandExt;
use std::process::Command;

pub const TESTS: &[Test] = &[
    Test::new("trace.kill_9", || in_order(Death::Kill)),
    Test::new("trace.exit", || in_order(Death::Exit)),
    Test::new("trace.exec", || in_order(Death::Exec)),
    Test::new("trace.control_without_the_watch", out_of_order),
];

const KEYS: u64 = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Death {
    Kill,
    Exit,
    Exec,
}

/// `rkey` is the second of two 32-bit numbers after two pointers in `struct ib_mr`.
const DEREG: [&str; 2] = [
    "p:ask ib_dereg_mr_user rkey=+20(%di):x32",
    "r:let_go ib_dereg_mr_user",
];
/// Where the invalidation is the proof: soft RoCE executes it here.
const INVALIDATION: [&str; 2] = [
    "p:ask rxe_invalidate_mr rkey=%si:x32",
    "r:let_go rxe_invalidate_mr",
];
const PROBES: [&str; 6] = [
    "p:dma_unmap rds_mr_helper_dma_unmap",
    "p:unpin unpin_user_pages_dirty_lock",
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
    let mut let_go = Vec::new();
    for rkey in rkeys {
        let asked = events
            .iter()
            .find(|e| e.name == "ask" && e.fields.get("rkey") == Some(&u64::from(*rkey)));
        // The same thread returns from it.
        match asked.and_then(|asked| first(asked.at, asked.thread, "let_go")) {
            Some(event) => let_go.push(event.at),
            None => return Some(format!("the HCA was not asked for key {rkey:#x}")),
        }
    }
    let_go.sort_unstable();
    let all = |name: &str| -> Vec<u64> {
        let named = events.iter().filter(|e| e.name == name);
        named.map(|e| e.at).collect()
    };
    let (unmapped, unpinned) = (all("dma_unmap"), all("unpin"));
    if (unmapped.len(), unpinned.len()) != (rkeys.len(), rkeys.len()) {
        let (unmapped, unpinned) = (unmapped.len(), unpinned.len());
        return Some(format!("{unmapped} DMA mappings undone, {unpinned} unpins"));
    }
    // At no time have more pages been given back than keys have ended.
    for ((let_go, unmapped), unpinned) in let_go.iter().zip(unmapped).zip(unpinned) {
        if !(*let_go < unmapped && unmapped < unpinned) {
            return Some(format!(
                "a page was given back too early: keys ended at {let_go}, unmapped {unmapped}, unpinned {unpinned}"
            ));
        }
        if unpinned > unmap {
            return Some(format!(
                "a page was unpinned at {unpinned}, and memory went from {unmap} on"
            ));
        }
    }
    None
}

/// A process with keys that dies while probes are set.
fn trace_of_death(death: Death) -> Result<(Vec<Event>, i32, Vec<u32>), End> {
    if !trace::is_there() {
        return skip("needs a kernel with CONFIG_KPROBE_EVENTS");
    }
    let mut victim = helper("victim", |link| {
        let (socket, map) = (bound()?, site::memory(KEYS * PAGE)?);
        let get = |n| socket.get_mr(map.at(n * PAGE), PAGE, RDS_RDMA_READWRITE);
        let cookies: Result<Vec<u64>, End> = (0..KEYS).map(|n| get(n).must("GET_MR")).collect();
        link.tell(&cookies?).must("telling the test")?;
        link.hear().must("the test's word")?;
        if death == Death::Exec {
            let error = Command::new("/bin/true").exec();
            return Err(error).must("exec of /bin/true");
        }
        rdsmr::process::exit(0)
    })?;
    let cookies = victim.link().hear().must("the victim's cookies")?;
    let ends = if site::param("proof")? == "inv" {
        INVALIDATION
    } else {
        DEREG
    };
    let probes = [&ends[..], &PROBES[..]].concat();
    let probes = Probes::set(&probes).must("setting kprobes")?;
    if death == Death::Kill {
        victim.kill().must("kill -9")?;
    } else {
        victim.link().tell(&[]).must("telling it to end")?;
        same("how it ended", Status::Exit(0), victim.wait().must("wait")?)?;
    }
    let events = probes.events().must("reading the trace")?;
    Ok((
        events,
        victim.pid(),
        cookies.iter().map(|cookie| *cookie as u32).collect(),
    ))
}

fn in_order(death: Death) -> Outcome {
    let (events, victim, rkeys) = trace_of_death(death)?;
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
    let (events, victim, rkeys) = trace_of_death(Death::Kill)?;
    drop(blind);
    match disorder(&events, victim, &rkeys) {
        Some(text) if text.contains("memory went from") => Ok(()),
        other => fail(
            "the order of the death",
            "memory that went before the keys",
            format!("{other:?}"),
        ),
    }
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
            event(2, 50, "ask", Some(0x11)),
            event(3, 50, "let_go", None),
            event(4, 50, "dma_unmap", None),
            event(5, 50, "unpin", None),
            event(6, 7, "unmap", None),
            event(7, 7, "fput", None),
            event(8, 7, "notify", None),
        ]
    }

    #[test]
    fn the_promised_order_is_accepted() {
        assert_eq!(disorder(&good(), 7, &[0x11]), None);
    }

    #[test]
    fn every_swap_is_found() {
        for n in 1..7 {
            let mut events = good();
            (events[n].at, events[n + 1].at) = (events[n + 1].at, events[n].at);
            events.sort_by_key(|event| event.at);
            assert!(disorder(&events, 7, &[0x11]).is_some(), "swap at {n}");
        }
    }

    #[test]
    fn a_key_that_nobody_ended_is_found() {
        assert!(disorder(&good(), 7, &[0x11, 0x12]).is_some());
        assert!(disorder(&good()[..7], 7, &[0x11]).is_some());
    }

    /// The pages of one key, unpinned twice or on the proof of another, are one
    /// unpin too many at that time.
    #[test]
    fn a_page_that_another_key_pays_for_is_found() {
        let second = |first_unpin: u64| {
            let mut events = good();
            events.push(event(3, 51, "ask", Some(0x12)));
            events.push(event(5, 51, "let_go", None));
            events.push(event(5, 51, "dma_unmap", None));
            events.push(event(first_unpin, 51, "unpin", None));
            for event in &mut events {
                event.at *= 10;
            }
            for (n, event) in events.iter_mut().enumerate().skip(8) {
                event.at += n as u64 - 7;
            }
            events.sort_by_key(|event| event.at);
            disorder(&events, 7, &[0x11, 0x12])
        };
        assert_eq!(second(5), None);
        assert!(second(4).is_some());
    }
}
