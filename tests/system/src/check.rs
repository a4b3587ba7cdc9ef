// SPDX-License-Identifier: GPL-2.0
//! How a test says what it wanted and what it got.

use rdsmr::errno::{describe, name};
use rdsmr::{spawn, Child, Link, Status};
use std::fmt::{Debug, Display};
use std::io;

/// Why a test ended before its end.
#[derive(Debug)]
pub enum End {
    Skip(String),
    Fail {
        what: String,
        expected: String,
        got: String,
    },
}

pub type Outcome = Result<(), End>;

pub fn skip<T>(reason: impl Display) -> Result<T, End> {
    Err(End::Skip(reason.to_string()))
}

pub fn fail<T>(what: impl Display, expected: impl Display, got: impl Display) -> Result<T, End> {
    let (what, expected, got) = (what.to_string(), expected.to_string(), got.to_string());
    Err(End::Fail {
        what,
        expected,
        got,
    })
}

/// For calls whose errno is the point.
pub trait Check<T> {
    fn must(self, what: impl Display) -> Result<T, End>;
    fn must_fail(self, errno: i32, what: impl Display) -> Outcome;
}

impl<T: Debug> Check<T> for io::Result<T> {
    fn must(self, what: impl Display) -> Result<T, End> {
        self.or_else(|error| fail(what, "success", describe(&error)))
    }

    fn must_fail(self, errno: i32, what: impl Display) -> Outcome {
        match self {
            Err(error) if error.raw_os_error() == Some(errno) => Ok(()),
            Err(error) => fail(what, name(errno), describe(&error)),
            Ok(value) => fail(what, name(errno), format!("success with {value:?}")),
        }
    }
}

pub fn same<T: PartialEq + Debug>(what: impl Display, expected: T, got: T) -> Outcome {
    if expected == got {
        Ok(())
    } else {
        fail(what, format!("{expected:?}"), format!("{got:?}"))
    }
}

pub fn holds(what: impl Display, condition: bool) -> Outcome {
    if condition {
        Ok(())
    } else {
        fail(what, "true", "false")
    }
}

const SKIPPED: i32 = 77;

/// Run a part of a test in a process of its own, where `body` may get itself
/// killed or give its rights up.
pub fn helper(what: &str, body: impl FnOnce(&Link) -> Outcome) -> Result<Child, End> {
    let run = |link: &Link| match body(link) {
        Ok(()) => 0,
        Err(End::Skip(reason)) => {
            println!("# {what}: {reason}");
            SKIPPED
        }
        Err(End::Fail {
            what: step,
            expected,
            got,
        }) => {
            println!("# {what}: {step}\n#   expected: {expected}\n#   got: {got}");
            1
        }
    };
    spawn(run).must("fork")
}

/// The helper has come to its end, and nothing was wrong with it.
pub fn join(what: &str, mut child: Child) -> Outcome {
    match child.wait().must("waitpid")? {
        Status::Exit(0) => Ok(()),
        Status::Exit(SKIPPED) => skip(format!("{what}: see the line above")),
        status => fail(
            what,
            "exit status 0",
            format!("{status:?}, see the lines above"),
        ),
    }
}

/// [`helper`] and [`join`] in one.
pub fn apart(what: &str, body: impl FnOnce(&Link) -> Outcome) -> Outcome {
    join(what, helper(what, body)?)
}

/// Run `body` in several threads at once.
pub fn in_threads(count: usize, body: impl Fn() -> Outcome + Sync) -> Outcome {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(&body)).collect();
        let results = threads.into_iter().map(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(_) => fail("a thread of the test", "no panic", "a panic, see above"),
        });
        // All of them, so that none is left when the first failure is reported.
        results.collect::<Vec<_>>().into_iter().collect()
    })
}
