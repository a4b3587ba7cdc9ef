// SPDX-License-Identifier: GPL-2.0
//! A process with keys that dies in one way or another, and who holds its socket.

use crate::cgroup::Group;
use crate::check::{helper, Check, Outcome};
use crate::observers::Ends;
use crate::site::{self, bound};
use rdsmr::abi::*;
use rdsmr::{fd, process, Child, Link, Mapping, Socket, PAGE};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// How many keys it has.
pub const KEYS: u64 = 4;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Death {
    Kill,
    Exit,
    Exec,
    Oom,
}

/// Who has the socket besides the one that dies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    Nobody,
    /// A child of its, since fork.
    Child,
    /// The test, by SCM_RIGHTS.
    Passed,
    /// The test, by pidfd_getfd.
    Taken,
    /// An io_uring of its own, as a fixed file; the descriptor is closed.
    Ring,
}

/// What the victim needs, made before it exists.
pub struct Stage {
    pub before: Ends,
    pub after: Ends,
    pub file: File,
    pub line: UnixStream,
}

/// The victim: opens files before and after the socket, gets keys, tells
/// `[descriptor of the socket, pid of the holder, cookies...]`, and dies.
pub fn run(
    link: &Link,
    stage: Stage,
    death: Death,
    holder: Holder,
    group: Option<&Group>,
) -> Outcome {
    let before = stage.before;
    if let Some(group) = group {
        group.enter()?;
    }
    let (socket, map) = (bound()?, site::memory(KEYS * PAGE)?);
    let after = stage.after.above(socket.as_raw_fd())?;
    fd::lock(&stage.file, false).must("locking a file")?;
    let number = socket.as_raw_fd();
    let mut words = vec![number as u64, 0];
    for n in 0..KEYS {
        let cookie = socket.get_mr(map.at(n * PAGE), PAGE, RDS_RDMA_READWRITE);
        words.push(cookie.must("GET_MR")?);
    }
    let mut kept = Kept {
        socket: Some(socket),
        ..Kept::default()
    };
    match holder {
        Holder::Nobody | Holder::Taken => {}
        Holder::Child => {
            let child = helper("holder", |_| {
                // Not what would keep the connections up.
                before.close();
                after.close();
                process::sleep_for_ever()
            })?;
            words[1] = child.pid() as u64;
            kept.child = Some(child);
        }
        Holder::Passed => fd::send(&stage.line, 0, number).must("SCM_RIGHTS")?,
        Holder::Ring => {
            let ring = fd::Ring::holding(number);
            kept.ring = Some(ring.must("registering a file with io_uring")?);
            kept.socket = None;
        }
    }
    link.tell(&words).must("telling the test")?;
    link.hear().must("the test's word")?;
    die(death)
}

/// What must not be dropped before the death.
#[derive(Default)]
struct Kept {
    socket: Option<Socket>,
    child: Option<Child>,
    ring: Option<fd::Ring>,
}

fn die(death: Death) -> Outcome {
    match death {
        // The test does it.
        Death::Kill => process::sleep_for_ever(),
        Death::Exit => process::exit(0),
        Death::Exec => {
            let error = Command::new("/bin/sleep").arg("1000").exec();
            Err::<(), _>(error).must("exec of /bin/sleep")
        }
        Death::Oom => {
            let mut memory = Vec::new();
            loop {
                let more = Mapping::anonymous(1 << 20).must("mmap")?;
                more.fill(1);
                memory.push(more);
            }
        }
    }
}
