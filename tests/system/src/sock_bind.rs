// SPDX-License-Identifier: GPL-2.0
//! bind(): which addresses, and which errors.

use crate::check::{apart, holds, same, skip, Check, End, Outcome};
use crate::runner::Test;
use crate::site;
use rdsmr::abi::*;
use rdsmr::addr::{encode, IN6_LEN, IN_LEN};
use rdsmr::errno::*;
use rdsmr::process::new_network_namespace;
use rdsmr::Socket;
use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

pub const TESTS: &[Test] = &[
    Test::new("bind.v4", v4),
    Test::new("bind.v6", v6),
    Test::new("bind.v4_spelled_as_v6", mapped),
    Test::new("bind.malformed_addresses", malformed),
    Test::new("bind.addresses_of_no_device", no_device),
    Test::new(
        "bind.failure_leaves_the_socket_unbound",
        failure_leaves_unbound,
    ),
    Test::new("bind.again", again),
    Test::new("bind.chosen_transport", chosen_transport),
    Test::new("bind.link_local", link_local),
    Test::new("bind.other_network_namespace", other_namespace),
];

fn at(text: &str, port: u16) -> SocketAddr {
    SocketAddr::new(text.parse().expect("a literal address"), port)
}

/// An address of the interface `scope`.
pub fn scoped(ip: Ipv6Addr, scope: u32) -> SocketAddr {
    SocketAddrV6::new(ip, 0, 0, scope).into()
}

/// `::ffff:a.b.c.d`, which means the same as a.b.c.d.
pub fn mapped_form(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
        v6 => v6,
    }
}

/// The bytes of `addr` with another family.
pub fn with_family(addr: SocketAddr, family: i32) -> Vec<u8> {
    let mut bytes = encode(addr);
    bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    bytes
}

/// The socket is bound to `ip`; returns the port.
pub fn must_be_at(socket: &Socket, ip: IpAddr, len: usize) -> Result<u16, End> {
    let name = socket.local().must("getsockname")?;
    same("length of the name", len, name.len())?;
    let addr = name.addr();
    same("address of the name", Some(ip), addr.map(|addr| addr.ip()))?;
    let port = addr.map_or(0, |addr| addr.port());
    holds(
        format!("port {port} is one that port 0 may become"),
        port >= 2,
    )?;
    Ok(port)
}

fn v4() -> Outcome {
    must_be_at(&site::bound()?, site::v4(), IN_LEN)?;
    let named = site::bound_to(SocketAddr::new(site::v4(), 4242))?;
    same(
        "the port asked for",
        4242,
        must_be_at(&named, site::v4(), IN_LEN)?,
    )
}

fn v6() -> Outcome {
    let socket = site::bound_to(SocketAddr::new(site::v6(), 0))?;
    must_be_at(&socket, site::v6(), IN6_LEN)?;
    // A scope given with an address that needs none is not kept.
    let IpAddr::V6(ip) = site::v6() else {
        return skip("RDS_MR_ADDR6 is no IPv6 address");
    };
    let socket = site::bound_to(scoped(ip, 7))?;
    let name = socket.local().must("getsockname")?;
    let scope = name.addr().map(|addr| match addr {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => u32::MAX,
    });
    same("scope of a global address", Some(0), scope)
}

fn mapped() -> Outcome {
    let socket = site::bound_to(SocketAddr::new(mapped_form(site::v4()), 0))?;
    must_be_at(&socket, site::v4(), IN_LEN)?;
    Ok(())
}

fn malformed() -> Outcome {
    let good4 = encode(site::here());
    let good6 = encode(SocketAddr::new(site::v6(), 0));
    let mut cases: Vec<(String, Vec<u8>)> = vec![
        ("no byte at all".into(), vec![]),
        ("half a family".into(), good4[..1].to_vec()),
        ("a family alone".into(), good4[..2].to_vec()),
        (
            "sockaddr_in less one byte".into(),
            good4[..IN_LEN - 1].to_vec(),
        ),
        (
            "sockaddr_in6 less one byte".into(),
            good6[..IN6_LEN - 1].to_vec(),
        ),
        (
            "sockaddr_in as AF_INET6".into(),
            with_family(site::here(), 10),
        ),
    ];
    for family in [0, 1, 17, 21, 0xffff] {
        cases.push((
            format!("family {family}"),
            with_family(site::here(), family),
        ));
    }
    for ip in [
        "0.0.0.0",
        "255.255.255.255",
        "224.0.0.1",
        "239.255.255.255",
        "::",
        "ff02::1",
        "fe80::1",
        "::ffff:0.0.0.0",
        "::ffff:255.255.255.255",
        "::ffff:224.0.0.1",
    ] {
        cases.push((ip.to_string(), encode(at(ip, 0))));
    }
    for (what, bytes) in cases {
        site::fresh()?
            .bind_bytes(&bytes)
            .must_fail(EINVAL, format!("bind to {what}"))?;
    }
    Ok(())
}

fn no_device() -> Outcome {
    for ip in [
        "127.0.0.1",
        "127.1.2.3",
        "::1",
        "::ffff:127.0.0.1",
        "192.0.2.1",
        "2001:db8::1",
    ] {
        let result = site::fresh()?.bind(at(ip, 0));
        result.must_fail(EADDRNOTAVAIL, format!("bind to {ip}"))?;
    }
    let lo = scoped("fe80::1".parse().expect("a literal"), 1);
    site::fresh()?
        .bind(lo)
        .must_fail(EADDRNOTAVAIL, "bind to fe80::1 of interface 1")
}

fn failure_leaves_unbound() -> Outcome {
    let map = site::memory(4096)?;
    let holder = site::bound()?;
    let taken = holder
        .local()
        .must("getsockname")?
        .addr()
        .unwrap_or_else(site::here);
    for addr in [
        at("0.0.0.0", 0),
        at("192.0.2.1", 0),
        at("127.0.0.1", 0),
        taken,
    ] {
        let socket = site::fresh()?;
        holds(format!("bind to {addr} fails"), socket.bind(addr).is_err())?;
        let name = socket.local().must("getsockname")?;
        same(format!("family after the bind to {addr}"), 0, name.family())?;
        let transport = socket
            .get_int(SOL_RDS, SO_RDS_TRANSPORT)
            .must("SO_RDS_TRANSPORT")?;
        same(
            format!("transport after the bind to {addr}"),
            RDS_TRANS_NONE,
            transport,
        )?;
        let result = socket.get_mr(map.at(0), 4096, 0);
        result.must_fail(ENOTCONN, format!("GET_MR after the bind to {addr}"))?;
        socket
            .bind(site::here())
            .must("bind after a bind that failed")?;
    }
    Ok(())
}

fn again() -> Outcome {
    let socket = site::bound_to(SocketAddr::new(site::v4(), 5003))?;
    let others = [
        SocketAddr::new(site::v4(), 5003),
        SocketAddr::new(site::v4(), 5004),
        SocketAddr::new(site::v6(), 0),
        at("192.0.2.1", 0),
        at("127.0.0.1", 0),
    ];
    for addr in others {
        socket
            .bind(addr)
            .must_fail(EINVAL, format!("second bind, to {addr}"))?;
    }
    same(
        "port after all that",
        5003,
        must_be_at(&socket, site::v4(), IN_LEN)?,
    )
}

fn chosen_transport() -> Outcome {
    let chosen = || {
        let socket = site::fresh()?;
        socket
            .set_int(SOL_RDS, SO_RDS_TRANSPORT, RDS_TRANS_IB)
            .must("choosing IB")?;
        Ok::<_, End>(socket)
    };
    for ip in ["127.0.0.1", "::1", "192.0.2.1"] {
        let result = chosen()?.bind(at(ip, 0));
        result.must_fail(ENOPROTOOPT, format!("bind to {ip} over IB"))?;
    }
    chosen()?
        .bind(at("0.0.0.0", 0))
        .must_fail(EINVAL, "bind to 0.0.0.0 over IB")?;
    chosen()?.bind(site::here()).must("bind over IB")
}

/// An fe80:: address of the interface that carries RDS_MR_ADDR6, and its index.
pub fn find_link_local() -> Result<(Ipv6Addr, u32), End> {
    let table = fs::read_to_string("/proc/net/if_inet6").must("reading /proc/net/if_inet6")?;
    let rows: Vec<(Ipv6Addr, u32)> = table.lines().filter_map(parse_inet6).collect();
    let home = rows
        .iter()
        .find(|(ip, _)| IpAddr::V6(*ip) == site::v6())
        .map(|(_, index)| *index);
    let found = rows
        .iter()
        .find(|(ip, index)| ip.octets()[0] == 0xfe && Some(*index) == home);
    found.copied().map_or_else(
        || {
            skip(format!(
                "the interface of {} has no link-local address",
                site::v6()
            ))
        },
        Ok,
    )
}

fn parse_inet6(line: &str) -> Option<(Ipv6Addr, u32)> {
    let mut words = line.split_whitespace();
    let ip = u128::from_str_radix(words.next()?, 16).ok()?;
    let index = u32::from_str_radix(words.next()?, 16).ok()?;
    Some((ip.into(), index))
}

fn link_local() -> Outcome {
    let (ip, index) = find_link_local()?;
    site::fresh()?
        .bind(scoped(ip, 0))
        .must_fail(EINVAL, "bind to link-local without a scope")?;
    let wrong = site::fresh()?.bind(scoped(ip, index + 1000));
    wrong.must_fail(
        EADDRNOTAVAIL,
        "bind to link-local of an interface that is not there",
    )?;
    let socket = site::bound_to(scoped(ip, index))?;
    let name = socket.local().must("getsockname")?;
    let Some(SocketAddr::V6(got)) = name.addr() else {
        return same("family of the name", 10, name.family());
    };
    same(
        "address and scope",
        (ip, index),
        (*got.ip(), got.scope_id()),
    )?;

    let other = scoped("fe80::77".parse().expect("a literal"), index + 1);
    socket
        .connect(other)
        .must_fail(EINVAL, "connect to another link than the bound one")?;
    let reverse = site::fresh()?;
    reverse.connect(other).must("connect before bind")?;
    reverse
        .bind(scoped(ip, index))
        .must_fail(EINVAL, "bind to another link than the peer's")
}

fn other_namespace() -> Outcome {
    apart("another network namespace", |_| {
        let old = site::fresh()?;
        if new_network_namespace().is_err() {
            return skip("unshare(CLONE_NEWNET) is not possible here");
        }
        let socket = site::fresh()?;
        for (transport, errno) in [
            (RDS_TRANS_IB, EPROTOTYPE),
            (RDS_TRANS_GAP, EPROTOTYPE),
            (RDS_TRANS_TCP, ENOPROTOOPT),
        ] {
            let result = socket.set_int(SOL_RDS, SO_RDS_TRANSPORT, transport);
            result.must_fail(errno, format!("transport {transport} in another namespace"))?;
        }
        socket
            .bind(site::here())
            .must_fail(EADDRNOTAVAIL, "bind in another namespace")?;
        // A socket belongs to where it was made, not to where its owner went.
        old.bind(site::here())
            .must("bind of a socket from the first namespace")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_if_inet6_are_read() {
        let line = "fe800000000000000000000000000001 0a 40 20 80    veth0";
        assert_eq!(parse_inet6(line), Some(("fe80::1".parse().unwrap(), 10)));
        assert_eq!(parse_inet6("junk"), None);
    }
}
