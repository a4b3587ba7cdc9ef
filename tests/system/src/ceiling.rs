// SPDX-License-Identifier: GPL-2.0
//! The ceilings on users and devices, above all quotas.

use crate::check::{fail, helper, join, same, Check, Outcome};
use crate::reload;
use crate::runner::Test;
use crate::site::{self, bound};
use rdsmr::abi::MAX_BYTES;
use rdsmr::errno::EAGAIN;
use rdsmr::process::become_user;
use rdsmr::{Link, PAGE};

pub const TESTS: &[Test] = &[
    Test::reloading("ceiling.keys_of_users_and_devices", keys),
    Test::reloading("ceiling.pages_of_users_and_devices", pages),
];

/// A process of some user that gets and frees keys as it is told to: a number
/// of pages gets a key, 0 frees the oldest, silence ends it. Answers 0 or the errno.
fn worker(uid: u32, link: &Link) -> Outcome {
    become_user(uid).must("setuid")?;
    // Two sockets by turns: what is counted is the user's, not the socket's.
    let sockets = [bound()?, bound()?];
    let map = site::memory(MAX_BYTES)?;
    let mut keys: Vec<(usize, u64)> = Vec::new();
    let mut turns = (0..2).cycle();
    while let Some(&pages) = link.hear().must("the parent's word")?.first() {
        let result = match pages {
            0 if keys.is_empty() => return fail("a key to free", "one", "none"),
            0 => {
                let (socket, cookie) = keys.remove(0);
                sockets[socket].free_mr(cookie, 0)
            }
            pages => {
                let socket = turns.next().unwrap_or_default();
                let result = sockets[socket].get_mr(map.at(0), pages * PAGE, 0);
                result.map(|cookie| keys.push((socket, cookie)))
            }
        };
        let errno = result
            .err()
            .map_or(0, |error| error.raw_os_error().unwrap_or(-1));
        link.tell(&[errno as u64]).must("the answer")?;
    }
    Ok(())
}

/// Steps of (worker, pages, expected errno), and then everybody goes home.
fn act(steps: &[(usize, u64, i32)]) -> Outcome {
    let uids = [site::USER, site::OTHER_USER];
    let workers = uids.map(|uid| helper("a user's process", move |link| worker(uid, link)));
    let [first, second] = workers;
    let workers = [first?, second?];
    for (step, (who, pages, errno)) in steps.iter().enumerate() {
        let link = workers[*who].link();
        link.tell(&[*pages]).must("telling a worker")?;
        let got = link.hear().must("a worker's answer")?;
        let what = format!(
            "step {step}: user {} and {pages} pages (0: free one)",
            uids[*who]
        );
        same(what, vec![*errno as u64], got)?;
    }
    for worker in workers {
        worker.link().tell(&[]).must("telling a worker to end")?;
        join("a user's process", worker)?;
    }
    Ok(())
}

fn keys() -> Outcome {
    reload::with_params("max_keys_per_user=3 max_keys_per_device=5")?;
    let (a, b) = (0, 1);
    act(&[
        (a, 1, 0),
        (a, 1, 0),
        (a, 1, 0),
        (a, 1, EAGAIN), // the user's
        (b, 1, 0),
        (b, 1, 0),
        (b, 1, EAGAIN), // the device's
        (a, 0, 0),
        (b, 1, 0),
        (a, 1, EAGAIN), // the device's
        (b, 0, 0),
        (a, 1, 0),
        (a, 1, EAGAIN),
        (b, 1, EAGAIN),
    ])?;
    // Everything that both held is back.
    act(&[
        (a, 1, 0),
        (a, 1, 0),
        (a, 1, 0),
        (b, 1, 0),
        (b, 1, 0),
        (b, 1, EAGAIN),
    ])
}

fn pages() -> Outcome {
    reload::with_params("max_pages_per_user=8 max_pages_per_device=12")?;
    let (a, b) = (0, 1);
    act(&[
        (a, 9, EAGAIN),
        (a, 8, 0),
        (a, 1, EAGAIN),
        (b, 5, EAGAIN),
        (b, 4, 0),
        (b, 1, EAGAIN),
        (a, 0, 0),
        (b, 5, EAGAIN),
        (b, 4, 0),
        (a, 4, 0),
        (a, 1, EAGAIN),
    ])?;
    act(&[(a, 8, 0), (b, 4, 0), (b, 1, EAGAIN)])
}
