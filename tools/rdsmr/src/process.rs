// SPDX-License-Identifier: GPL-2.0
//! Children to kill, and what they need to say before.

use crate::check;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long one side of a [`Link`] waits for the other before it gives up.
const PATIENCE: Duration = Duration::from_secs(120);

/// One end of the line between a parent and its child.
#[derive(Debug)]
pub struct Link(UnixStream);

impl Link {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Link(stream))
    }

    pub fn tell(&self, words: &[u64]) -> io::Result<()> {
        let mut message = (words.len() as u64).to_ne_bytes().to_vec();
        message.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        (&self.0).write_all(&message)
    }

    pub fn hear(&self) -> io::Result<Vec<u64>> {
        let count = self.word()?;
        (0..count).map(|_| self.word()).collect()
    }

    fn word(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        (&self.0).read_exact(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Say "I am here" and wait until the other end has said so, too.
    pub fn meet(&self) -> io::Result<()> {
        self.tell(&[])?;
        self.hear().map(|_| ())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Exit(i32),
    Signal(i32),
}

impl Status {
    fn from_raw(raw: i32) -> Self {
        if libc::WIFSIGNALED(raw) {
            Status::Signal(libc::WTERMSIG(raw))
        } else {
            Status::Exit(libc::WEXITSTATUS(raw))
        }
    }
}

/// A child process. It does not outlive this handle.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    link: Link,
    status: Option<Status>,
}

/// Run `body` in a child, which ends with the status that `body` returns.
///
/// For processes with one thread: a forked child has only the caller's thread,
/// and whatever lock another one held stays locked in it.
pub fn spawn(body: impl FnOnce(&Link) -> i32) -> io::Result<Child> {
    let (ours, theirs) = UnixStream::pair()?;
    // SAFETY: one thread by this function's contract, so the child may go on.
    let pid = check(unsafe { libc::fork() })?;
    if pid == 0 {
        drop(ours);
        let run = || Link::new(theirs).map_or(101, |link| body(&link));
        exit(catch_unwind(AssertUnwindSafe(run)).unwrap_or(101));
    }
    Ok(Child {
        pid,
        link: Link::new(ours)?,
        status: None,
    })
}

/// End this process at once, without destructors.
pub fn exit(code: i32) -> ! {
    // SAFETY: always allowed.
    unsafe { libc::_exit(code) }
}

impl Child {
    pub fn pid(&self) -> i32 {
        self.pid
    }

    pub fn link(&self) -> &Link {
        &self.link
    }

    pub fn signal(&self, signal: i32) -> io::Result<()> {
        // SAFETY: takes no pointer; the child is not reaped, so the id is its.
        check(unsafe { libc::kill(self.pid, signal) })?;
        Ok(())
    }

    /// `kill -9`, and no sooner back than the death can be seen.
    pub fn kill(&mut self) -> io::Result<Status> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        self.signal(libc::SIGKILL)?;
        self.wait()
    }

    pub fn wait(&mut self) -> io::Result<Status> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        let mut raw = 0;
        loop {
            // SAFETY: a live int.
            match check(unsafe { libc::waitpid(self.pid, &mut raw, 0) }) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
        Ok(*self.status.insert(Status::from_raw(raw)))
    }

    /// A descriptor that polls readable once the death can be seen.
    pub fn pidfd(&self) -> io::Result<OwnedFd> {
        pidfd(self.pid)
    }

    /// `None` if it still runs after `limit`.
    pub fn wait_for(&mut self, limit: Duration) -> io::Result<Option<Status>> {
        let pidfd = self.pidfd()?;
        let mut poll = libc::pollfd {
            fd: pidfd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let millis = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one live pollfd.
        match check(unsafe { libc::poll(&mut poll, 1, millis) })? {
            0 => Ok(None),
            _ => self.wait().map(Some),
        }
    }

    /// Kill what is left of the group that this child led, and wait for all of
    /// it. False if some of it does not die. For a process that has no other
    /// children and adopts orphans.
    pub fn end_group(&mut self, limit: Duration) -> io::Result<bool> {
        let end = Instant::now() + limit;
        // SAFETY: takes no pointer; that nobody is left is no error.
        unsafe { libc::kill(-self.pid, libc::SIGKILL) };
        loop {
            let mut raw = 0;
            // SAFETY: a live int.
            match unsafe { libc::waitpid(-1, &mut raw, libc::WNOHANG) } {
                -1 => return Ok(true),
                0 if Instant::now() > end => return Ok(false),
                0 => std::thread::sleep(Duration::from_millis(10)),
                pid if pid == self.pid => self.status = Some(Status::from_raw(raw)),
                _ => {}
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.status.is_none() {
            let _ = self.kill();
        }
    }
}

/// Until a signal comes that ends this process.
pub fn sleep_for_ever() -> ! {
    loop {
        // SAFETY: takes no pointer.
        unsafe { libc::pause() };
    }
}

/// `kill -9` of a process that need not be a child.
pub fn kill(pid: i32) -> io::Result<()> {
    // SAFETY: takes no pointer.
    check(unsafe { libc::kill(pid, libc::SIGKILL) })?;
    Ok(())
}

/// A descriptor of a process, to be polled for its death.
pub fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor that comes back is ours alone.
    unsafe {
        let fd = check(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Start a process group of one's own, so that it can be ended as a whole.
pub fn lead_group() -> io::Result<()> {
    // SAFETY: takes no pointer.
    check(unsafe { libc::setpgid(0, 0) })?;
    Ok(())
}

/// Become the parent of one's grandchildren when their parent dies.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: takes no pointer.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })?;
    Ok(())
}

/// Give root's rights up for good.
pub fn become_user(uid: u32) -> io::Result<()> {
    // SAFETY: an empty list, and numbers.
    unsafe {
        check(libc::setgroups(0, std::ptr::null()))?;
        check(libc::setresgid(uid, uid, uid))?;
        check(libc::setresuid(uid, uid, uid))?;
    }
    Ok(())
}

/// Become a user who keeps some of root's capabilities, by their bits.
pub fn become_user_with(uid: u32, capabilities: u64) -> io::Result<()> {
    // SAFETY: numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) })?;
    become_user(uid)?;
    set_capabilities(capabilities)
}

/// Have these capabilities and no others; who has fewer cannot get them.
pub fn set_capabilities(bits: u64) -> io::Result<()> {
    /// `_LINUX_CAPABILITY_VERSION_3`, and "myself".
    const HEADER: [u32; 2] = [0x2008_0522, 0];
    let half = |shift: u32| {
        let half = (bits >> shift) as u32;
        [half, half, 0]
    };
    let data = [half(0), half(32)];
    // SAFETY: a live header and two live `struct __user_cap_data_struct`.
    check(unsafe { libc::syscall(libc::SYS_capset, HEADER.as_ptr(), data.as_ptr()) })?;
    Ok(())
}

pub const CAP_IPC_LOCK: u64 = 1 << 14;

/// Set both limits of `RLIMIT_MEMLOCK`; `u64::MAX` is infinity.
pub fn limit_memlock(bytes: u64) -> io::Result<()> {
    limit(libc::RLIMIT_MEMLOCK, bytes)
}

pub fn limit_open_files(files: u64) -> io::Result<()> {
    limit(libc::RLIMIT_NOFILE, files)
}

fn limit(what: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    let both = libc::rlimit {
        rlim_cur: value,
        rlim_max: value,
    };
    // SAFETY: a live struct.
    check(unsafe { libc::setrlimit(what, &both) })?;
    Ok(())
}

static TICKS: AtomicU64 = AtomicU64::new(0);

extern "C" fn tick(_: i32) {
    TICKS.fetch_add(1, Relaxed);
}

/// Interrupt this process again and again, as a profiler does, and without
/// SA_RESTART: every call that can be interrupted says EINTR.
pub fn start_ticking(period: Duration) -> io::Result<()> {
    // SAFETY: the handler only adds to an atomic, and the rest of the struct may
    // be zero.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = tick as extern "C" fn(i32) as usize;
        check(libc::sigaction(
            libc::SIGALRM,
            &action,
            std::ptr::null_mut(),
        ))?;
    }
    let period = libc::timeval {
        tv_sec: period.as_secs() as i64,
        tv_usec: period.subsec_micros().into(),
    };
    let timer = libc::itimerval {
        it_interval: period,
        it_value: period,
    };
    // SAFETY: a live struct.
    check(unsafe { libc::syscall(libc::SYS_setitimer, libc::ITIMER_REAL, &raw const timer, 0) })?;
    Ok(())
}

/// How often this process was interrupted by [`start_ticking`].
pub fn ticks() -> u64 {
    TICKS.load(Relaxed)
}

pub fn new_network_namespace() -> io::Result<()> {
    unshare(libc::CLONE_NEWNET)
}

/// All capabilities, but in a namespace that owns nothing.
pub fn new_user_namespace() -> io::Result<()> {
    unshare(libc::CLONE_NEWUSER)
}

fn unshare(what: i32) -> io::Result<()> {
    // SAFETY: takes no pointer.
    check(unsafe { libc::unshare(what) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_answers_and_its_status_arrives() {
        let mut child = spawn(|link| {
            let heard = link.hear().unwrap();
            link.tell(&[heard.iter().sum()]).unwrap();
            7
        })
        .unwrap();
        child.link().tell(&[1, 2, 3]).unwrap();
        assert_eq!(child.link().hear().unwrap(), [6]);
        assert_eq!(child.wait().unwrap(), Status::Exit(7));
    }

    #[test]
    fn a_killed_child_says_so() {
        let mut child = spawn(|link| link.hear().map_or(1, |_| 0)).unwrap();
        assert_eq!(child.wait_for(Duration::from_millis(10)).unwrap(), None);
        assert_eq!(child.kill().unwrap(), Status::Signal(libc::SIGKILL));
    }

    #[test]
    fn a_dead_child_is_noticed_by_who_listens() {
        let child = spawn(|_| 0).unwrap();
        assert!(child.link().hear().is_err());
    }
}
