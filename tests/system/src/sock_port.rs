// SPDX-License-Identifier: GPL-2.0
//! bind(): which ports, and whose.

use crate::check::{same, skip, Check, Outcome};
use crate::runner::Test;
use crate::site;
use crate::sock_bind::{mapped_form, must_be_at};
use rdsmr::addr::IN_LEN;
use rdsmr::errno::*;
use rdsmr::process::limit_open_files;
use rdsmr::Socket;
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    Test::new("bind.port_0_finds_free_ports", port_0),
    Test::new("bind.port_1_is_reserved", port_1),
    Test::new("bind.in_use", in_use),
    Test::new("bind.in_use_over_ipv6", in_use_v6),
    Test::new("bind.at_most_16384_sockets", at_most),
];

fn port_0() -> Outcome {
    let sockets: Vec<Socket> = (0..64).map(|_| site::bound()).collect::<Result<_, _>>()?;
    let ports = sockets
        .iter()
        .map(|socket| must_be_at(socket, site::v4(), IN_LEN));
    let ports: HashSet<u16> = ports.collect::<Result<_, _>>()?;
    same("different ports of 64 sockets", 64, ports.len())
}

fn port_1() -> Outcome {
    for ip in [site::v4(), site::v6(), mapped_form(site::v4())] {
        let result = site::fresh()?.bind(SocketAddr::new(ip, 1));
        result.must_fail(EINVAL, format!("bind to {ip} port 1"))?;
    }
    site::bound_to(SocketAddr::new(site::v4(), 2))?;
    site::bound_to(SocketAddr::new(site::v4(), 65535))?;
    Ok(())
}

fn in_use() -> Outcome {
    let addr = SocketAddr::new(site::v4(), 5001);
    let first = site::bound_to(addr)?;
    site::fresh()?
        .bind(addr)
        .must_fail(EADDRINUSE, "bind to a port in use")?;
    let spelled = SocketAddr::new(mapped_form(site::v4()), 5001);
    site::fresh()?
        .bind(spelled)
        .must_fail(EADDRINUSE, "bind to it, spelled as IPv6")?;
    site::bound_to(SocketAddr::new(site::v4(), 5002))?;
    site::bound_to(SocketAddr::new(site::v6(), 5001))?;
    site::bound_to(SocketAddr::new(site::peer(), 5001))?;
    drop(first);
    site::bound_to(addr)?;
    Ok(())
}

fn in_use_v6() -> Outcome {
    let addr = SocketAddr::new(site::v6(), 5001);
    let first = site::bound_to(addr)?;
    site::fresh()?
        .bind(addr)
        .must_fail(EADDRINUSE, "bind to an IPv6 port in use")?;
    // The scope is no part of a global address.
    if let IpAddr::V6(ip) = site::v6() {
        let elsewhere = SocketAddrV6::new(ip, 5001, 0, 3).into();
        site::fresh()?
            .bind(elsewhere)
            .must_fail(EADDRINUSE, "bind to it with a scope")?;
    }
    drop(first);
    site::bound_to(addr).map(drop)
}

fn at_most() -> Outcome {
    const MOST: usize = 16384;
    limit_open_files(MOST as u64 + 100).must("setrlimit")?;
    let too_long = Instant::now() + Duration::from_secs(30);
    let mut sockets = Vec::new();
    while sockets.len() < MOST {
        sockets.push(site::bound()?);
        if Instant::now() > too_long {
            return skip(format!(
                "this kernel binds {} sockets in 30 s",
                sockets.len()
            ));
        }
    }
    let unbound = site::fresh()?;
    unbound
        .bind(site::here())
        .must_fail(ENOMEM, "bind of one socket more")?;
    sockets.pop();
    unbound
        .bind(site::here())
        .must("bind after another was closed")
}
