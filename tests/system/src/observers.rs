// SPDX-License-Identifier: GPL-2.0
//! Everybody who can tell that a process is dead.

use crate::check::{fail, helper, Check, End, Outcome};
use rdsmr::{fd, Child};
use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A limit for what must come, on a slow machine with every checker on.
const PATIENCE: Duration = Duration::from_secs(90);

/// One end of a connection of each kind. The other process closes its end by
/// dying, or by exec.
pub struct Ends(Vec<(&'static str, OwnedFd)>);

impl Ends {
    /// Ours, and theirs.
    pub fn pairs() -> Result<(Self, Self), End> {
        let listener = TcpListener::bind("127.0.0.1:0").must("listening on TCP")?;
        let at = listener.local_addr().must("getsockname")?;
        let tcp_ours = TcpStream::connect(at).must("connecting to it")?;
        let (tcp_theirs, _) = listener.accept().must("accept")?;
        let (unix_ours, unix_theirs) = UnixStream::pair().must("socketpair")?;
        let (pipe_ours, pipe_theirs) = fd::pipe().must("pipe")?;
        let ends = |tcp: TcpStream, unix: UnixStream, pipe| {
            Ends(vec![
                ("its TCP peer", tcp.into()),
                ("its unix socket's peer", unix.into()),
                ("the reader of its pipe", pipe),
            ])
        };
        Ok((
            ends(tcp_ours, unix_ours, pipe_ours),
            ends(tcp_theirs, unix_theirs, pipe_theirs),
        ))
    }

    /// The same under numbers above `fd`, as if they had been opened after it:
    /// a dying process closes its files in an order of their numbers.
    pub fn above(self, fd: RawFd) -> Result<Self, End> {
        let moved = self.0.into_iter().map(|(name, end)| {
            let copy = fd::dup_above(end.as_fd(), fd).must("F_DUPFD_CLOEXEC")?;
            Ok((name, copy))
        });
        moved.collect::<Result<_, End>>().map(Ends)
    }
}

impl Ends {
    /// In a child that has inherited them: the parent's stay open.
    pub fn close(&self) {
        for (_, end) in &self.0 {
            fd::close_inherited(end.as_raw_fd());
        }
    }
}

/// When descriptors were opened that a dying process closes first: the last close
/// is put off, in a list whose last entry comes first (task_work_run()).
pub const AFTER: &str = "after the socket";

/// Those who watch one process.
pub struct Observers {
    watched: Vec<(String, OwnedFd)>,
    /// Waits for the POSIX lock; lives as long as we look.
    _locker: Option<Child>,
}

impl Observers {
    pub fn new() -> Self {
        Observers {
            watched: Vec::new(),
            _locker: None,
        }
    }

    /// All of them.
    pub fn names(&self) -> Vec<String> {
        self.watched.iter().map(|(name, _)| name.clone()).collect()
    }

    pub fn ends(&mut self, when: &str, ends: Ends) {
        let named = ends.0.into_iter();
        self.watched
            .extend(named.map(|(name, end)| (format!("{name}, opened {when}"), end)));
    }

    /// wait() and pidfd: they say the same, in this order.
    pub fn death_of(&mut self, child: &Child) -> Outcome {
        let pidfd = child.pidfd().must("pidfd_open")?;
        self.watched.push(("its pidfd".to_string(), pidfd));
        Ok(())
    }

    /// Who waits for the write lock on `file`, which the other process holds.
    pub fn lock_on(&mut self, file: &File) -> Outcome {
        let (read, write) = fd::pipe().must("pipe")?;
        let mut write = File::from(write);
        let locker = helper("who waits for the lock", |_| {
            fd::lock(file, true).must("waiting for the lock")?;
            write.write_all(b"!").must("telling that it has the lock")
        })?;
        drop(write);
        self.watched
            .push(("who waits for its POSIX lock".to_string(), read));
        self._locker = Some(locker);
        Ok(())
    }

    /// Wait until all have noticed, and call `at_once(who)` each time.
    pub fn watch(mut self, mut at_once: impl FnMut(&str) -> Outcome) -> Outcome {
        while !self.watched.is_empty() {
            for index in self.noticing()? {
                at_once(&self.watched[index].0)?;
                self.watched.remove(index);
            }
        }
        Ok(())
    }

    /// Who has noticed by now; the last ones first.
    fn noticing(&self) -> Result<Vec<usize>, End> {
        let fds: Vec<RawFd> = self
            .watched
            .iter()
            .map(|(_, end)| end.as_raw_fd())
            .collect();
        let mut ready = fd::ready(&fds, PATIENCE).must("poll")?;
        if ready.is_empty() {
            let names: Vec<&str> = self.watched.iter().map(|(name, _)| &**name).collect();
            return fail("who notices the death", names.join(", "), "none of them");
        }
        ready.reverse();
        Ok(ready)
    }
}
