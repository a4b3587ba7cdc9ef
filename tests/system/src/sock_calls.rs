// SPDX-License-Identifier: GPL-2.0
//! The other system calls on a socket, working or not.

use crate::check::{holds, same, Check, Outcome};
use crate::runner::Test;
use crate::site;
use crate::sock_bind::{find_link_local, mapped_form, scoped, with_family};
use rdsmr::abi::*;
use rdsmr::addr::{encode, IN6_LEN, IN_LEN};
use rdsmr::errno::*;
use rdsmr::Socket;
use std::net::SocketAddr;

pub const TESTS: &[Test] = &[
    Test::new("socket.types_and_protocols", types),
    Test::new("connect.errors", connect_errors),
    Test::new("connect.remembers_the_peer", connect_remembers),
    Test::new("connect.link_local", connect_link_local),
    Test::new("names.of_unbound_sockets", unbound_names),
    Test::new("calls.unsupported", unsupported),
    Test::new("calls.send", send),
    Test::new("calls.receive", receive),
    Test::new("calls.poll", poll),
    Test::new("ioctl.tos", tos),
    Test::new("ioctl.unknown", unknown_ioctls),
];

const STREAM: i32 = 1;
const DGRAM: i32 = 2;
const RAW: i32 = 3;
const RDM: i32 = 4;
const SEQPACKET: i32 = 5;
const NONBLOCK: i32 = 0o4000;
const CLOEXEC: i32 = 0o2000000;

/// Nothing is ever mapped there.
const NOWHERE: u64 = 8;

fn types() -> Outcome {
    for kind in [STREAM, DGRAM, RAW, RDM] {
        let result = Socket::of_type(kind, 0);
        result.must_fail(ESOCKTNOSUPPORT, format!("socket of type {kind}"))?;
    }
    for protocol in [1, 6, 255] {
        let result = Socket::of_type(SEQPACKET, protocol);
        result.must_fail(ESOCKTNOSUPPORT, format!("protocol {protocol}"))?;
    }
    for flags in [0, NONBLOCK, CLOEXEC, NONBLOCK | CLOEXEC] {
        Socket::of_type(SEQPACKET | flags, 0)
            .map(drop)
            .must(format!("flags {flags:#o}"))?;
    }
    Ok(())
}

fn peer_at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().expect("a literal address"), port)
}

fn connect_errors() -> Outcome {
    let good4 = encode(peer_at("10.77.0.9", 7));
    let good6 = encode(peer_at("fd77::9", 7));
    let mut cases: Vec<(String, Vec<u8>, i32)> = vec![
        ("no byte at all".into(), vec![], EINVAL),
        ("half a family".into(), good4[..1].to_vec(), EINVAL),
        ("a family alone".into(), good4[..2].to_vec(), EINVAL),
        (
            "sockaddr_in less one byte".into(),
            good4[..IN_LEN - 1].to_vec(),
            EINVAL,
        ),
        (
            "sockaddr_in6 less one byte".into(),
            good6[..IN6_LEN - 1].to_vec(),
            EINVAL,
        ),
    ];
    for family in [0, 1, 17, 21, 0xffff] {
        let bytes = with_family(peer_at("10.77.0.9", 7), family);
        cases.push((format!("family {family}"), bytes, EAFNOSUPPORT));
    }
    for (ip, errno) in [
        ("0.0.0.0", EDESTADDRREQ),
        ("255.255.255.255", EINVAL),
        ("224.0.0.1", EINVAL),
        ("::", EPROTOTYPE),
        ("ff02::1", EPROTOTYPE),
        ("::ffff:0.0.0.0", EPROTOTYPE),
        ("::ffff:255.255.255.255", EPROTOTYPE),
        ("::ffff:224.0.0.1", EPROTOTYPE),
        ("fe80::1", EINVAL),
    ] {
        cases.push((ip.to_string(), encode(peer_at(ip, 7)), errno));
    }
    for socket in [site::fresh()?, site::bound()?] {
        for (what, bytes, errno) in &cases {
            let result = socket.connect_bytes(bytes);
            result.must_fail(*errno, format!("connect to {what}"))?;
            socket
                .peer()
                .map(drop)
                .must_fail(ENOTCONN, format!("peer after {what}"))?;
        }
    }
    Ok(())
}

fn connect_remembers() -> Outcome {
    let socket = site::bound()?;
    let mine = socket.local().must("getsockname")?;
    let steps = [
        (peer_at("10.77.0.9", 7), IN_LEN),
        (peer_at("fd77::9", 8), IN6_LEN),
        (peer_at("127.0.0.1", 9), IN_LEN),
        (SocketAddr::new(site::v4(), 0), IN_LEN),
    ];
    for (addr, len) in steps {
        socket.connect(addr).must(format!("connect to {addr}"))?;
        let name = socket.peer().must("getpeername")?;
        same(
            "length and address of the peer",
            (len, Some(addr)),
            (name.len(), name.addr()),
        )?;
    }
    let v4 = peer_at("10.77.0.5", 3);
    let spelled = SocketAddr::new(mapped_form(v4.ip()), 3);
    socket
        .connect(spelled)
        .must("connect to an IPv4 address spelled as IPv6")?;
    same(
        "that peer",
        Some(v4),
        socket.peer().must("getpeername")?.addr(),
    )?;
    let broken = socket.connect(peer_at("0.0.0.0", 3));
    broken.must_fail(EDESTADDRREQ, "connect of a connected socket to 0.0.0.0")?;
    same(
        "the peer after that",
        Some(v4),
        socket.peer().must("getpeername")?.addr(),
    )?;
    same(
        "the socket's own name",
        mine,
        socket.local().must("getsockname")?,
    )
}

fn connect_link_local() -> Outcome {
    let (_, index) = find_link_local()?;
    let peer = scoped("fe80::77".parse().expect("a literal"), index);
    let socket = site::fresh()?;
    socket
        .connect(peer)
        .must("connect to a link-local address")?;
    same(
        "the peer, with its scope",
        Some(peer),
        socket.peer().must("getpeername")?.addr(),
    )
}

fn unbound_names() -> Outcome {
    let socket = site::fresh()?;
    let name = socket.local().must("getsockname")?;
    same(
        "unbound: family, length, rest zero",
        (0, IN_LEN, true),
        shape(&name),
    )?;
    socket
        .peer()
        .map(drop)
        .must_fail(ENOTCONN, "getpeername before connect")?;
    socket.connect(peer_at("10.77.0.9", 7)).must("connect")?;
    let name = socket.local().must("getsockname")?;
    same("unbound, IPv4 peer", (2, IN_LEN, true), shape(&name))?;
    socket.connect(peer_at("fd77::9", 7)).must("connect")?;
    let name = socket.local().must("getsockname")?;
    same("unbound, IPv6 peer", (10, IN6_LEN, true), shape(&name))?;
    let map = site::memory(4096)?;
    let result = socket.get_mr(map.at(0), 4096, 0);
    result.must_fail(ENOTCONN, "GET_MR on a socket that is connected, not bound")
}

fn shape(name: &rdsmr::addr::Name) -> (i32, usize, bool) {
    (name.family(), name.len(), name.is_zero())
}

fn unsupported() -> Outcome {
    Socket::pair().must_fail(EOPNOTSUPP, "socketpair")?;
    for socket in [site::fresh()?, site::bound()?] {
        socket.listen().must_fail(EOPNOTSUPP, "listen")?;
        socket.accept().must_fail(EOPNOTSUPP, "accept")?;
        for how in 0..3 {
            socket
                .shutdown(how)
                .must_fail(EOPNOTSUPP, format!("shutdown({how})"))?;
        }
        socket.mmap().must_fail(ENODEV, "mmap")?;
    }
    Ok(())
}

const MSG_DONTWAIT: i32 = 0x40;
const MSG_NOSIGNAL: i32 = 0x4000;

fn send() -> Outcome {
    let to = Some(SocketAddr::new(site::peer(), 9));
    let unbound = site::fresh()?;
    unbound
        .send_to(b"x", to, 0)
        .must_fail(ENOTCONN, "sendto on an unbound socket")?;
    unbound
        .send_to(b"x", None, 0)
        .must_fail(ENOTCONN, "send on an unbound socket")?;
    let bound = site::bound()?;
    for flags in [0, MSG_DONTWAIT, MSG_NOSIGNAL] {
        let result = bound.send_to(b"x", to, flags);
        result.must_fail(EOPNOTSUPP, format!("sendto with flags {flags:#x}"))?;
    }
    bound
        .connect(SocketAddr::new(site::peer(), 9))
        .must("connect")?;
    bound
        .send_to(b"x", None, 0)
        .must_fail(EOPNOTSUPP, "send to the connected peer")?;
    bound.write(b"x").must_fail(EOPNOTSUPP, "write")
}

fn receive() -> Outcome {
    for socket in [site::fresh()?, site::bound()?] {
        let mut data = [0; 8];
        socket.recv(&mut data, 0).must_fail(EOPNOTSUPP, "recv")?;
        socket
            .recv(&mut data, MSG_DONTWAIT)
            .must_fail(EOPNOTSUPP, "recv(MSG_DONTWAIT)")?;
        socket.read(&mut data).must_fail(EOPNOTSUPP, "read")?;
    }
    Ok(())
}

fn poll() -> Outcome {
    for socket in [site::fresh()?, site::bound()?] {
        same("events", 0, socket.poll(0x7ff).must("poll")?)?;
    }
    Ok(())
}

fn tos() -> Outcome {
    let socket = site::fresh()?;
    socket
        .ioctl_at(SIOCRDSSETTOS, NOWHERE)
        .must_fail(EFAULT, "SETTOS from nowhere, unbound")?;
    // A whole page, although RDS looks at one byte: an ioctl that a family does
    // not know goes on to the network devices, which read a struct ifreq.
    let argument = site::memory(4096)?;
    let result = socket.ioctl_at(SIOCRDSSETTOS, argument.at(0));
    result.must_fail(ENOTTY, "SETTOS without a transport")?;
    let mut got = 0xaa_u8;
    socket
        .ioctl(SIOCRDSGETTOS, &mut got)
        .must("GETTOS, unbound")?;
    same("TOS of an unbound socket", 0, got)?;

    let chosen = site::fresh()?;
    chosen
        .set_int(SOL_RDS, SO_RDS_TRANSPORT, RDS_TRANS_IB)
        .must("choosing IB")?;
    for socket in [chosen, site::bound()?] {
        socket
            .ioctl_at(SIOCRDSSETTOS, NOWHERE)
            .must_fail(EFAULT, "SETTOS from nowhere")?;
        socket.ioctl(SIOCRDSSETTOS, &mut 0_u8).must("SETTOS 0")?;
        socket.ioctl(SIOCRDSSETTOS, &mut 5_u8).must("SETTOS 5")?;
        for value in [0, 5, 6] {
            let result = socket.ioctl(SIOCRDSSETTOS, &mut { value });
            result.must_fail(EINVAL, format!("SETTOS {value} when it is 5 already"))?;
        }
        socket.ioctl(SIOCRDSGETTOS, &mut got).must("GETTOS")?;
        same("TOS", 5, got)?;
        socket
            .ioctl_at(SIOCRDSGETTOS, NOWHERE)
            .must_fail(EFAULT, "GETTOS to nowhere")?;
    }
    Ok(())
}

fn unknown_ioctls() -> Outcome {
    let socket = site::bound()?;
    let map = site::memory(4096)?;
    // Numbers of other RDS implementations, and one beside each of ours.
    for command in [0x89e2, 0x89e3, 0x89e7, 0x89ec, 0x89ef, 0x1234] {
        let result = socket.ioctl_at(command, map.at(0));
        result.must_fail(ENOTTY, format!("ioctl {command:#x}"))?;
    }
    holds(
        "no ioctl wrote anything",
        map.snapshot().iter().all(|word| *word == 0),
    )
}
