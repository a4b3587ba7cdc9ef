// SPDX-License-Identifier: GPL-2.0
//! The write hammer: a probe only shows that new accesses fail. Here a peer never
//! stops writing while the key is ended; once the end is reported, not one byte
//! of the memory may change any more.
//!
//! On soft-RoCE LOCAL_INV is no proof of that. A responder that is slowed down
//! makes the hole wide, and with proof=inv the test must fall into it: that
//! shows that the others would notice one.

use crate::check::{fail, helper, holds, same, skip, Check, End, Outcome};
use crate::reload;
use crate::runner::Test;
use crate::site::{self, bound};
use rdsmr::abi::RDS_RDMA_READWRITE;
use rdsmr::errno::describe;
use rdsmr::hammer::{Progress, DEVICE, REMOTE_ACCESS_ERROR};
use rdsmr::{kmod, Child, Hammer, Link, Mapping, Socket};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    Test::new("hammer.until_free_mr", || clean(Way::FreeMr)),
    Test::new("hammer.until_close", || clean(Way::Close)),
    Test::new("hammer.until_kill_9", || clean(Way::Kill)),
    Test::reloading("hammer.slow_until_free_mr", || slow_but_clean(Way::FreeMr)),
    Test::reloading("hammer.slow_until_close", || slow_but_clean(Way::Close)),
    Test::reloading("hammer.slow_until_kill_9", || slow_but_clean(Way::Kill)),
    Test::reloading("hammer.catches_a_false_proof", catches),
];

const BYTES: u64 = 64 << 10;
/// Several packets per write, whatever the path MTU.
const CHUNK: u32 = 16 << 10;
const SLOW: u32 = 5000;

/// After the end, look so often and with such a pause: in all much longer than a
/// slowed-down copy takes.
const LOOKS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(3);
/// For the hammer to start and to notice its end; it is a limit, not a measure.
const PATIENCE: Duration = Duration::from_secs(60);

const PLAIN_ROUNDS: u32 = 10;
const SLOW_ROUNDS: u32 = 5;
const ATTEMPTS: u32 = 40;

#[derive(Clone, Copy)]
enum Way {
    FreeMr,
    Close,
    Kill,
}

/// Who owns the key, and can end it.
enum Owner {
    Us(Socket, u64, Way),
    Victim(Child, u64),
}

impl Owner {
    fn of(map: &Mapping, way: Way) -> Result<Self, End> {
        if !matches!(way, Way::Kill) {
            let (socket, cookie) = register(map)?;
            return Ok(Owner::Us(socket, cookie, way));
        }
        let victim = helper("victim", |link: &Link| {
            let (_socket, cookie) = register(map)?;
            link.tell(&[cookie]).must("telling the parent")?;
            link.hear().must("the parent's word").map(drop)
        })?;
        let cookies = victim.link().hear().must("the victim's cookie")?;
        Ok(Owner::Victim(victim, cookies[0]))
    }

    fn cookie(&self) -> u64 {
        match self {
            Owner::Us(_, cookie, _) | Owner::Victim(_, cookie) => *cookie,
        }
    }

    /// Not back before the key is dead, so they say. The socket may live on.
    fn end(self) -> Result<Option<Socket>, End> {
        match self {
            Owner::Us(socket, cookie, Way::FreeMr) => {
                socket.free_mr(cookie, 0).must("FREE_MR under the hammer")?;
                return Ok(Some(socket));
            }
            Owner::Us(socket, ..) => drop(socket),
            Owner::Victim(mut victim, _) => drop(victim.kill().must("kill -9")?),
        }
        Ok(None)
    }
}

fn register(map: &Mapping) -> Result<(Socket, u64), End> {
    let socket = bound()?;
    let cookie = socket
        .get_mr(map.at(0), BYTES, RDS_RDMA_READWRITE)
        .must("GET_MR")?;
    Ok((socket, cookie))
}

fn progress(hammer: &Hammer) -> Result<Progress, End> {
    hammer.progress().must("asking the hammer")
}

/// Wait for the hammer to come to a state.
fn wait(hammer: &Hammer, what: &str, state: impl Fn(&Progress) -> bool) -> Result<Progress, End> {
    let end = Instant::now() + PATIENCE;
    loop {
        let now = progress(hammer)?;
        if state(&now) {
            return Ok(now);
        }
        if Instant::now() > end {
            return fail(what, format!("within {PATIENCE:?}"), format!("{now:?}"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What came of one key that was ended under the hammer.
enum Struck {
    Clean,
    /// The first byte that changed afterwards.
    Changed(usize),
    /// The hammer did not end because of the key (a transport error, by its
    /// status), perhaps before the key did: nobody was writing any more.
    NoVerdict(u32),
}

fn strike(way: Way, slow: u32) -> Result<Struck, End> {
    let map = Mapping::shared(BYTES).must("memfd")?;
    // Before the hammer is opened, since a child would keep it open.
    let owner = Owner::of(&map, way)?;
    let mut hammer = Hammer::open().must(format!("opening {DEVICE}"))?;
    if slow != 0 {
        hammer.slow_copy(slow).must("slowing the responder down")?;
    }
    let untouched = map.snapshot();
    hammer
        .start(owner.cookie(), BYTES, CHUNK)
        .must("starting the hammer")?;
    let first = progress(&hammer)?.writes;
    wait(&hammer, "writes of the hammer go on", |now| {
        now.writes >= first + 3
    })?;
    same("is the hammer at it", 1, progress(&hammer)?.running)?;
    holds(
        "the hammer writes to this memory",
        map.changed_since(&untouched).is_some(),
    )?;

    let _socket = owner.end()?;
    let after = map.snapshot();
    for _ in 0..LOOKS {
        if let Some(offset) = map.changed_since(&after) {
            return Ok(Struck::Changed(offset));
        }
        std::thread::sleep(PAUSE);
    }
    let last = wait(&hammer, "the hammer notices the end", |now| {
        now.running == 0
    })?;
    hammer.stop().must("stopping the hammer")?;
    match last.status {
        REMOTE_ACCESS_ERROR => Ok(Struck::Clean),
        status => Ok(Struck::NoVerdict(status)),
    }
}

pub fn needs_hammer() -> Outcome {
    if Hammer::is_there() {
        Ok(())
    } else {
        skip(format!("no {DEVICE}: the hammer is in {}.ko", kmod::TEST))
    }
}

fn never_changes(way: Way, slow: u32, rounds: u32) -> Outcome {
    let mut clean = 0;
    for strikes in 1..=rounds * 3 {
        match strike(way, slow)? {
            Struck::Clean => clean += 1,
            Struck::NoVerdict(status) => println!("# the hammer ended with status {status}"),
            Struck::Changed(offset) => {
                let got = format!("byte {offset} changed after strike {strikes}");
                return fail(
                    "memory after its key was ended",
                    "not one byte changes",
                    got,
                );
            }
        }
        if clean == rounds {
            return Ok(());
        }
    }
    let expected = format!("{rounds} of {} end by a remote access error", rounds * 3);
    fail("hammers at keys that are ended", expected, clean)
}

fn clean(way: Way) -> Outcome {
    needs_hammer()?;
    if site::param("proof")? == "inv" {
        return skip("loaded with proof=inv, which is no proof on soft-RoCE");
    }
    never_changes(way, 0, PLAIN_ROUNDS)
}

fn can_be_slowed() -> Outcome {
    needs_hammer()?;
    let mut hammer = Hammer::open().must(format!("opening {DEVICE}"))?;
    hammer.slow_copy(1).or_else(|error| {
        skip(format!(
            "the responder cannot be slowed down: {}",
            describe(&error)
        ))
    })
}

fn with_proof(proof: &str) -> Outcome {
    if site::param("proof")? == proof {
        return Ok(());
    }
    reload::with_params(&format!("proof={proof}"))
}

fn slow_but_clean(way: Way) -> Outcome {
    can_be_slowed()?;
    with_proof("dereg")?;
    never_changes(way, SLOW, SLOW_ROUNDS)
}

fn catches() -> Outcome {
    can_be_slowed()?;
    with_proof("inv")?;
    for _ in 0..ATTEMPTS {
        for way in [Way::FreeMr, Way::Close, Way::Kill] {
            if let Struck::Changed(_) = strike(way, SLOW)? {
                return Ok(());
            }
        }
    }
    fail(
        "memory after keys were ended with LOCAL_INV alone, under a slow responder",
        "a change is seen",
        format!(
            "none in {} attempts: the hammer does not bite",
            3 * ATTEMPTS
        ),
    )
}
