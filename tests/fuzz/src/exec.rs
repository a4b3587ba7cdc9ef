// SPDX-License-Identifier: GPL-2.0
//! Runs one program in the calling process, which should be of its own.

use crate::allowed::judge;
use crate::call::{Call, COOKIES, SLOTS};
use crate::space;
use rdsmr::abi::*;
use rdsmr::addr::encode;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};

/// A descriptor that is nobody's.
const CLOSED: i32 = -1;

/// Tables of a program; two threads may use them at a time.
pub struct State {
    fds: [AtomicI32; SLOTS as usize],
    cookies: [AtomicU64; COOKIES as usize],
    churning: AtomicBool,
    wrong: std::sync::Mutex<Option<String>>,
}

/// Run all calls. Returns what was wrong with the first wrong outcome.
pub fn run(program: &[Call]) -> Option<String> {
    let state = State {
        fds: std::array::from_fn(|_| AtomicI32::new(CLOSED)),
        cookies: std::array::from_fn(|_| AtomicU64::new(0)),
        churning: AtomicBool::new(false),
        wrong: std::sync::Mutex::new(None),
    };
    std::thread::scope(|scope| {
        let mut calls = program.iter();
        while let Some(call) = calls.next() {
            match call.name() {
                "churn" if !state.churning.swap(true, SeqCst) => {
                    let state = &state;
                    scope.spawn(move || state.churn(call));
                }
                "churn" => {}
                "still" => state.churning.store(false, SeqCst),
                "race" => {
                    // The next two at once.
                    if let Some(next) = calls.next() {
                        let state = &state;
                        let other = scope.spawn(move || state.step(next));
                        if let Some(second) = calls.next() {
                            state.step(second);
                        }
                        let _ = other.join();
                    }
                }
                _ => state.step(call),
            }
        }
        state.churning.store(false, SeqCst);
    });
    // The sockets and their keys end with the process.
    state.wrong.into_inner().unwrap_or(None)
}

fn result(value: i64) -> Result<i64, i32> {
    if value == -1 {
        Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    } else {
        Ok(value)
    }
}

impl State {
    /// Take memory away and bring it back, as long as the program runs.
    fn churn(&self, call: &Call) {
        let mut how = 0;
        while self.churning.load(SeqCst) {
            space::change(
                call.arg("addr"),
                call.arg("pages"),
                [0, 6, 4, 1, 3][how % 5],
            );
            how += 1;
        }
    }

    fn step(&self, call: &Call) {
        let outcome = self.call(call).map(drop);
        if let Some(what) = judge(call, outcome) {
            if let Ok(mut wrong) = self.wrong.lock() {
                wrong.get_or_insert(format!("{}: {what}", call.text()));
            }
        }
    }

    fn fd(&self, call: &Call, field: &str) -> i32 {
        self.fds[(call.arg(field) % SLOTS) as usize].load(SeqCst)
    }

    fn put(&self, slot: u64, fd: i64) {
        let old = self.fds[(slot % SLOTS) as usize].swap(fd as i32, SeqCst);
        close(old);
    }

    fn cookie(&self, call: &Call) -> u64 {
        let cookie = &self.cookies[(call.arg("cookie") % COOKIES) as usize];
        cookie.load(SeqCst) ^ call.arg("xor")
    }

    fn call(&self, call: &Call) -> Result<i64, i32> {
        match call.name() {
            "socket" => self.socket(call),
            "open" => self.open(call),
            "close" => {
                let slot = (call.arg("s") % SLOTS) as usize;
                close(self.fds[slot].swap(CLOSED, SeqCst));
                Ok(0)
            }
            "dup" => {
                // SAFETY: takes no pointer.
                let fd = result(unsafe { libc::dup(self.fd(call, "s")) }.into())?;
                self.put(call.arg("to"), fd);
                Ok(0)
            }
            "bind" | "connect" => self.name(call),
            "getname" => self.getname(call),
            "set" => {
                let value = call.arg("value").to_ne_bytes().repeat(20);
                self.set(
                    call,
                    call.arg("level") as i32,
                    call.arg("opt") as i32,
                    &value,
                )
            }
            "get" => self.get(call),
            "get_mr" => self.get_mr(call),
            "free_mr" => {
                let args = FreeMrArgs {
                    cookie: self.cookie(call),
                    flags: call.arg("flags"),
                };
                self.set(call, SOL_RDS, RDS_FREE_MR, args.as_bytes())
            }
            "quota" => self.quota(call),
            "probe" => {
                let args = Probe {
                    cookie: self.cookie(call),
                    offset: call.arg("offset"),
                    result: 0,
                    flags: call.arg("flags") as u32,
                };
                self.ioctl(call, SIOCRDSMRPROBE, args.as_bytes())
            }
            "ioctl" => {
                let value = call.arg("value").to_ne_bytes().repeat(4);
                self.ioctl(call, call.arg("cmd") as u32, &value)
            }
            "send" | "recv" | "poll" | "misc" => self.other(call),
            "map" => {
                space::change(call.arg("addr"), call.arg("pages"), call.arg("how"));
                Ok(0)
            }
            "fork" => self.fork(call),
            _ => Ok(0),
        }
    }

    fn socket(&self, call: &Call) -> Result<i64, i32> {
        let kind = call.arg("type") as i32 | libc::SOCK_CLOEXEC;
        // SAFETY: takes no pointer.
        let fd = result(unsafe { libc::socket(AF_RDS, kind, call.arg("proto") as i32) }.into())?;
        self.put(call.arg("s"), fd);
        Ok(0)
    }

    /// A socket that is bound, in one step.
    fn open(&self, call: &Call) -> Result<i64, i32> {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: takes no pointer.
        let fd = result(unsafe { libc::socket(AF_RDS, kind, 0) }.into())?;
        self.put(call.arg("s"), fd);
        let name = encode(SocketAddr::new(space::ip(call.arg("ip")), 0));
        // SAFETY: a live slice.
        result(unsafe { libc::bind(fd as i32, name.as_ptr().cast(), name.len() as u32) }.into())
    }

    fn name(&self, call: &Call) -> Result<i64, i32> {
        let addr = SocketAddr::new(space::ip(call.arg("ip")), call.arg("port") as u16);
        let mut bytes = encode(addr);
        bytes[..2].copy_from_slice(&(call.arg("family") as u16).to_ne_bytes());
        bytes.resize(28, 0);
        if addr.is_ipv6() {
            bytes[24..].copy_from_slice(&(call.arg("scope") as u32).to_ne_bytes());
        }
        let at = space::resolve(call.arg("at"));
        space::poke(at, &bytes);
        let (fd, at, len) = (self.fd(call, "s"), at as *const _, call.arg("len") as u32);
        // SAFETY: the kernel reads the address or says EFAULT.
        result(i64::from(unsafe {
            match call.name() {
                "bind" => libc::bind(fd, at, len),
                _ => libc::connect(fd, at, len),
            }
        }))
    }

    fn getname(&self, call: &Call) -> Result<i64, i32> {
        let (at, len_at) = (
            space::resolve(call.arg("at")),
            space::resolve(call.arg("len_at")),
        );
        space::poke(len_at, &(call.arg("len") as u32).to_ne_bytes());
        let (fd, at, len_at) = (self.fd(call, "s"), at as *mut _, len_at as *mut _);
        // SAFETY: the kernel writes to regions of the program or says EFAULT.
        result(i64::from(unsafe {
            match call.arg("peer") % 2 {
                0 => libc::getsockname(fd, at, len_at),
                _ => libc::getpeername(fd, at, len_at),
            }
        }))
    }

    fn set(&self, call: &Call, level: i32, option: i32, value: &[u8]) -> Result<i64, i32> {
        let at = space::resolve(call.arg("at"));
        space::poke(at, value);
        let (fd, len) = (self.fd(call, "s"), call.arg("len") as u32);
        // SAFETY: the kernel reads a region of the program or says EFAULT.
        result(unsafe { libc::setsockopt(fd, level, option, at as *const _, len) }.into())
    }

    fn get(&self, call: &Call) -> Result<i64, i32> {
        let (at, len_at) = (
            space::resolve(call.arg("at")),
            space::resolve(call.arg("len_at")),
        );
        space::poke(len_at, &(call.arg("len") as u32).to_ne_bytes());
        let (level, option) = (call.arg("level") as i32, call.arg("opt") as i32);
        let (fd, at, len_at) = (self.fd(call, "s"), at as *mut _, len_at as *mut _);
        // SAFETY: the kernel writes to regions of the program or says EFAULT.
        result(unsafe { libc::getsockopt(fd, level, option, at, len_at) }.into())
    }

    fn get_mr(&self, call: &Call) -> Result<i64, i32> {
        let cookie_at = space::resolve(call.arg("cookie_at"));
        let mr = GetMrArgs {
            addr: space::resolve(call.arg("addr")),
            bytes: call.arg("bytes"),
            cookie_addr: cookie_at,
            flags: call.arg("flags"),
        };
        let got = if call.arg("dest") % 4 == 1 {
            let args = GetMrForDestArgs {
                dest: [0x5a; 128],
                mr,
            };
            self.set(call, SOL_RDS, RDS_GET_MR_FOR_DEST, args.as_bytes())
        } else {
            self.set(call, SOL_RDS, RDS_GET_MR, mr.as_bytes())
        };
        if let (Ok(_), Some(cookie)) = (got, space::peek(cookie_at)) {
            self.cookies[(call.arg("keep") % COOKIES) as usize].store(cookie, SeqCst);
        }
        got
    }

    fn quota(&self, call: &Call) -> Result<i64, i32> {
        let args = Quota {
            max_keys: call.arg("keys") as u32,
            flags: call.arg("flags") as u32,
            max_pages: call.arg("pages"),
        };
        match call.arg("ioctl") % 2 {
            0 => self.set(call, SOL_RDS, RDS_MR_QUOTA, args.as_bytes()),
            _ => self.ioctl(call, SIOCRDSMRSQUOTA, args.as_bytes()),
        }
    }

    fn ioctl(&self, call: &Call, command: u32, value: &[u8]) -> Result<i64, i32> {
        let at = space::resolve(call.arg("at"));
        space::poke(at, value);
        // SAFETY: the kernel touches regions of the program or says EFAULT.
        result(unsafe { libc::ioctl(self.fd(call, "s"), command.into(), at) }.into())
    }

    fn other(&self, call: &Call) -> Result<i64, i32> {
        let (fd, at) = (self.fd(call, "s"), space::resolve(call.arg("at")));
        let (len, flags) = (call.arg("len") as usize, call.arg("flags") as i32);
        let (null, flags) = (
            std::ptr::null_mut::<libc::c_void>(),
            flags | libc::MSG_NOSIGNAL,
        );
        let mut poll = libc::pollfd {
            fd,
            events: call.arg("events") as i16,
            revents: 0,
        };
        // SAFETY: the kernel touches regions of the program, or says EFAULT, or
        // a live pollfd; what is mapped lands where nothing is.
        result(unsafe {
            match (call.name(), call.arg("what") % 5) {
                ("send", _) => libc::send(fd, at as *const _, len, flags) as i64,
                ("recv", _) => libc::recv(fd, at as *mut _, len, flags | libc::MSG_DONTWAIT) as i64,
                ("poll", _) => libc::poll(&mut poll, 1, 0).into(),
                (_, 0) => libc::listen(fd, 1).into(),
                (_, 1) => libc::accept(fd, null.cast(), null.cast()).into(),
                (_, 2) => libc::shutdown(fd, 2).into(),
                (_, 3) => {
                    libc::socketpair(AF_RDS, libc::SOCK_SEQPACKET, 0, [0; 2].as_mut_ptr()).into()
                }
                _ => libc::mmap(null, 4096, libc::PROT_READ, libc::MAP_SHARED, fd, 0) as i64,
            }
        })
    }

    /// A child that has the sockets, too, and may use them before it ends.
    fn fork(&self, call: &Call) -> Result<i64, i32> {
        // SAFETY: the child makes system calls only, and ends by _exit.
        let pid = result(unsafe { libc::fork() }.into())?;
        if pid == 0 {
            self.in_child(call);
            rdsmr::process::exit(0);
        }
        let mut status = 0;
        // SAFETY: a live int; the child is ours.
        result(unsafe { libc::waitpid(pid as i32, &mut status, 0) }.into())
    }

    fn in_child(&self, call: &Call) {
        let fd = self.fd(call, "s");
        let args = FreeMrArgs {
            cookie: self.cookie(call),
            flags: 0,
        };
        let mr = GetMrArgs {
            addr: space::resolve(crate::call::addr(1, 0)),
            bytes: 8192,
            ..Default::default()
        };
        let set = |option, value: &[u8]| {
            // SAFETY: a live slice.
            unsafe {
                libc::setsockopt(
                    fd,
                    SOL_RDS,
                    option,
                    value.as_ptr().cast(),
                    value.len() as u32,
                )
            };
        };
        match call.arg("what") % 4 {
            0 => self.fds.iter().for_each(|fd| close(fd.load(SeqCst))),
            1 => set(RDS_FREE_MR, args.as_bytes()),
            // The child's own key, in the socket that both have.
            2 => set(RDS_GET_MR, mr.as_bytes()),
            _ => {}
        }
    }
}

fn close(fd: i32) {
    if fd != CLOSED {
        // SAFETY: a descriptor of the program, which a closing thread has taken
        // out of the table before.
        unsafe { libc::close(fd) };
    }
}
