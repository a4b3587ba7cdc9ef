// SPDX-License-Identifier: GPL-2.0
//! The machine under test: its addresses, and the steps that most tests take.

use crate::check::{same, Check, End, Outcome};
use rdsmr::{kmod, stat, Access, Mapping, Socket};
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// The user that stands for "nobody special".
pub const USER: u32 = 1000;
pub const OTHER_USER: u32 = 1001;

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_string())
}

fn address(name: &str, default: &str) -> IpAddr {
    let text = setting(name, default);
    text.parse()
        .unwrap_or_else(|_| panic!("{name} must be an IP address, not \"{text}\""))
}

pub fn v4() -> IpAddr {
    address("RDS_MR_ADDR", "10.77.0.1")
}

pub fn v6() -> IpAddr {
    address("RDS_MR_ADDR6", "fd77::1")
}

/// The address of the second device, which tests may unplug.
pub fn peer() -> IpAddr {
    address("RDS_MR_PEER_ADDR", "10.77.0.2")
}

pub fn ibdev() -> String {
    setting("RDS_MR_IBDEV", "rxe0")
}

pub fn peer_ibdev() -> String {
    setting("RDS_MR_PEER_IBDEV", "rxe1")
}

pub fn peer_netdev() -> String {
    setting("RDS_MR_PEER_NETDEV", "veth1")
}

/// Any port of the first device.
pub fn here() -> SocketAddr {
    SocketAddr::new(v4(), 0)
}

pub fn fresh() -> Result<Socket, End> {
    Socket::new().must("socket(AF_RDS, SOCK_SEQPACKET, 0)")
}

pub fn bound() -> Result<Socket, End> {
    bound_to(here())
}

pub fn bound_to(addr: SocketAddr) -> Result<Socket, End> {
    Socket::bound(addr).must(format!("bind to {addr}"))
}

pub fn memory(bytes: u64) -> Result<Mapping, End> {
    Mapping::anonymous(bytes).must("mmap")
}

/// The module that is loaded.
pub fn module() -> Result<&'static str, End> {
    kmod::current().map_or_else(
        || crate::check::skip("neither rds_mr nor rds_mr_kunit is in /sys/module"),
        Ok,
    )
}

pub fn param(name: &str) -> Result<String, End> {
    kmod::param(module()?, name).must(format!("reading parameter {name}"))
}

pub fn alive(prober: &Socket, cookie: u64, offset: u64, what: impl Display) -> Outcome {
    probe(prober, cookie, offset, Access::Alive, what)
}

pub fn refused(prober: &Socket, cookie: u64, offset: u64, what: impl Display) -> Outcome {
    probe(prober, cookie, offset, Access::Refused, what)
}

fn probe(prober: &Socket, cookie: u64, offset: u64, want: Access, what: impl Display) -> Outcome {
    let got = verdict(prober, cookie, offset).must(format!("probe of {what}"))?;
    same(
        format!("what the HCA says to byte {offset} of {what}"),
        want,
        got,
    )
}

/// What the HCA says. EIO is no verdict: an emulated machine that is busy with
/// something else may miss a deadline, but not again and again.
pub fn verdict(prober: &Socket, cookie: u64, offset: u64) -> std::io::Result<Access> {
    const TRIES: usize = 5;
    let ask = || prober.probe(cookie, offset);
    let no_verdict = |error: &std::io::Error| error.raw_os_error() == Some(rdsmr::errno::EIO);
    let mut said = ask();
    for _ in 1..TRIES {
        if !said.as_ref().is_err_and(no_verdict) {
            break;
        }
        said = ask();
    }
    said
}

/// The cookie of a buffer that starts one byte earlier.
pub fn byte_before(cookie: u64) -> u64 {
    cookie.wrapping_sub(1 << 32)
}

/// What a call must leave as it was.
#[derive(Debug, PartialEq, Eq)]
pub struct Holdings {
    pins: i64,
    vm_pin_kib: u64,
}

impl Holdings {
    pub fn now() -> Result<Self, End> {
        let pins = stat::pins().must("reading the pin counters")?;
        let vm_pin_kib = stat::own_vm_pin_kib().must("reading VmPin")?;
        Ok(Holdings { pins, vm_pin_kib })
    }

    /// `pages` more are pinned, and charged to this process.
    pub fn plus(&self, pages: u64) -> Self {
        Holdings {
            pins: self.pins + pages as i64,
            vm_pin_kib: self.vm_pin_kib + pages * 4,
        }
    }

    pub fn are(&self, what: impl Display) -> Outcome {
        same(
            format!("pinned pages and VmPin {what}"),
            self,
            &Holdings::now()?,
        )
    }
}

/// For what must come, on a slow machine with every checker on: a limit, not a
/// measure.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Wait for what must come.
pub fn eventually(what: impl Display, mut done: impl FnMut() -> Result<bool, End>) -> Outcome {
    let end = Instant::now() + PATIENCE;
    while !done()? {
        if Instant::now() > end {
            return crate::check::fail(what, "comes within a minute", "did not come");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

pub fn pins() -> Result<i64, End> {
    stat::pins().must("reading the pin counters")
}
