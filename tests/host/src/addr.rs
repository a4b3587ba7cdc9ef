// SPDX-License-Identifier: GPL-2.0

//! Addresses against the standard library's idea of them, and with arbitrary bytes.

use crate::policy::{
    addr::{
        check_port,
        encode_unspec,
        parse_bind,
        parse_cancel,
        parse_connect,
        Addr,
        MAX_SOCKADDR, //
    },
    error::Error,
};
use proptest::prelude::*;
use std::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr, //
};

const INET: u16 = 2;
const INET6: u16 = 10;

/// A sockaddr as an application fills it in.
fn sockaddr(ip: IpAddr, port: u16, scope: u32) -> Vec<u8> {
    let mut raw = Vec::new();
    match ip {
        IpAddr::V4(ip) => {
            raw.extend(INET.to_ne_bytes());
            raw.extend(port.to_be_bytes());
            raw.extend(ip.octets());
            raw.extend([0; 8]);
        }
        IpAddr::V6(ip) => {
            raw.extend(INET6.to_ne_bytes());
            raw.extend(port.to_be_bytes());
            raw.extend([0; 4]);
            raw.extend(ip.octets());
            raw.extend(scope.to_ne_bytes());
        }
    }
    raw
}

fn text(ip: &str, scope: u32) -> Vec<u8> {
    sockaddr(ip.parse().unwrap(), 4000, scope)
}

/// What an IP address is, by the standard library. Broadcast exists in IPv4 only.
#[derive(PartialEq)]
enum Class {
    Any,
    Group,
    LinkLocal,
    Loopback,
    Host,
}

fn class(ip: IpAddr) -> Class {
    let v4 = match ip {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(ip) => ip.to_ipv4_mapped(),
    };
    let plain = v4.map_or(ip, IpAddr::V4);
    match plain {
        ip if ip.is_unspecified() => Class::Any,
        ip if ip.is_multicast() => Class::Group,
        IpAddr::V4(ip) if ip.is_broadcast() => Class::Group,
        ip if ip.is_loopback() => Class::Loopback,
        IpAddr::V6(ip) if ip.is_unicast_link_local() => Class::LinkLocal,
        _ => Class::Host,
    }
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn ip() -> impl Strategy<Value = IpAddr> {
    let first = prop::sample::select(vec![0_u8, 1, 10, 126, 127, 128, 223, 224, 239, 240, 255]);
    let byte = || prop_oneof![Just(0_u8), Just(255_u8), any::<u8>()];
    let v4 = prop_oneof![
        4 => (first, byte(), byte(), byte()).prop_map(|(a, b, c, d)| Ipv4Addr::new(a, b, c, d)),
        1 => Just(Ipv4Addr::UNSPECIFIED),
        1 => Just(Ipv4Addr::BROADCAST),
    ]
    .boxed();
    let head = prop::sample::select(vec![
        0_u16, 1, 0x2001, 0xfdff, 0xfe00, 0xfe7f, 0xfe80, 0xfe90, 0xfebf, 0xfec0, 0xff00, 0xff02,
    ]);
    let v6 = prop_oneof![
        5 => (head, any::<u64>()).prop_map(|(head, low)| {
            Ipv6Addr::from((u128::from(head) << 112) | u128::from(low))
        }),
        1 => (0..4_u128).prop_map(Ipv6Addr::from),
        4 => v4.clone().prop_map(|ip| ip.to_ipv6_mapped()),
        1 => v4.clone().prop_map(|ip| Ipv6Addr::from(u128::from(u32::from(ip)))),
        2 => any::<u128>().prop_map(Ipv6Addr::from),
    ];
    prop_oneof![v4.prop_map(IpAddr::V4), v6.prop_map(IpAddr::V6)]
}

fn scope() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(3), any::<u32>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn bind_and_connect_agree_with_the_standard_library(
        ip in ip(), port in any::<u16>(), scope in scope(),
    ) {
        let raw = sockaddr(ip, port, scope);
        let local = class(ip) == Class::LinkLocal;
        let addr = Addr { ip: octets(ip), port, scope: if local { scope } else { 0 } };
        let bind = match class(ip) {
            Class::Any | Class::Group => Err(Error::Invalid),
            Class::LinkLocal if scope == 0 => Err(Error::Invalid),
            Class::Loopback => Err(Error::AddrNotAvail),
            Class::LinkLocal | Class::Host => Ok(addr),
        };
        prop_assert_eq!(parse_bind(&raw), bind);
        let connect = match (class(ip), ip) {
            (Class::Any, IpAddr::V4(_)) => Err(Error::AddrRequired),
            (Class::Group, IpAddr::V4(_)) => Err(Error::Invalid),
            (Class::Any | Class::Group, IpAddr::V6(_)) => Err(Error::ProtoType),
            (Class::LinkLocal, _) if scope == 0 => Err(Error::Invalid),
            _ => Ok(addr),
        };
        prop_assert_eq!(parse_connect(&raw), connect);
    }

    #[test]
    fn what_is_encoded_reads_back(ip in ip(), port in any::<u16>(), scope in 1..u32::MAX) {
        let Ok(addr) = parse_connect(&sockaddr(ip, port, scope)) else { return Ok(()) };
        let mut out = [0xaa; MAX_SOCKADDR];
        let len = addr.encode(&mut out);
        // The mapped form goes out as plain IPv4; all else as it came in.
        let plain = match ip {
            IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
            IpAddr::V4(_) => ip,
        };
        let expected = sockaddr(plain, port, addr.scope);
        prop_assert_eq!(&out[..len], expected.as_slice());
        prop_assert!(out[len..].iter().all(|&byte| byte == 0));
        prop_assert_eq!(parse_connect(&out[..len]), Ok(addr));
    }

    #[test]
    fn no_bytes_do_harm(
        mut raw in prop::collection::vec(any::<u8>(), 0..140),
        family in 0..12_u16,
    ) {
        let random = [parse_bind(&raw), parse_connect(&raw), parse_cancel(&raw)];
        prop_assert!(raw.len() >= 16 || random.iter().all(Result::is_err));
        if raw.len() >= 2 {
            raw[..2].copy_from_slice(&family.to_ne_bytes());
            let needed = match family { INET => 16, INET6 => 28, _ => usize::MAX };
            for parsed in [parse_bind(&raw), parse_connect(&raw)] {
                prop_assert!(raw.len() >= needed || parsed.is_err());
                if let Ok(addr) = parsed {
                    let mut out = [0xaa; MAX_SOCKADDR];
                    let len = addr.encode(&mut out);
                    prop_assert_eq!(parse_connect(&out[..len]), Ok(addr));
                }
            }
        }
    }

    #[test]
    fn cancel_looks_at_the_length_only(raw in prop::collection::vec(any::<u8>(), 0..40)) {
        let expected = match raw.len() {
            0..16 => Err(Error::Invalid),
            16..28 => Ok(Ipv4Addr::from(<[u8; 4]>::try_from(&raw[4..8]).unwrap())
                .to_ipv6_mapped()
                .octets()),
            _ => Ok(<[u8; 16]>::try_from(&raw[8..24]).unwrap()),
        };
        let parsed = parse_cancel(&raw);
        prop_assert_eq!(parsed.map(|addr| addr.ip), expected);
        if let Ok(addr) = parsed {
            prop_assert_eq!(addr.port, u16::from_be_bytes([raw[2], raw[3]]));
        }
    }
}

#[test]
fn every_length_of_every_address() {
    for (ip, whole) in [
        ("192.0.2.1", 16),
        ("::ffff:192.0.2.1", 28),
        ("2001:db8::1", 28),
    ] {
        let mut raw = text(ip, 0);
        raw.resize(128, 0xee);
        for len in 0..=raw.len() {
            let addr = parse_bind(&raw[..len]);
            assert_eq!(addr.is_ok(), len >= whole, "{ip} cut to {len}");
            assert!(addr.is_ok() || addr == Err(Error::Invalid));
            let peer = parse_connect(&raw[..len]);
            assert_eq!(peer.is_ok(), len >= whole, "{ip} cut to {len}");
            assert!(peer.is_ok() || peer == Err(Error::Invalid));
        }
    }
}

#[test]
fn other_families() {
    for family in (0..64_u16)
        .chain([256, 0xffff])
        .filter(|f| ![INET, INET6].contains(f))
    {
        let mut raw = text("2001:db8::1", 0);
        raw[..2].copy_from_slice(&family.to_ne_bytes());
        assert_eq!(parse_bind(&raw), Err(Error::Invalid), "{family}");
        assert_eq!(parse_connect(&raw), Err(Error::NoFamily), "{family}");
        assert_eq!(parse_connect(&raw[..2]), Err(Error::NoFamily), "{family}");
    }
}

#[test]
fn known_addresses() {
    for (ip, scope, bind, connect) in [
        ("192.0.2.1", 0, None, None),
        (
            "0.0.0.0",
            0,
            Some(Error::Invalid),
            Some(Error::AddrRequired),
        ),
        (
            "255.255.255.255",
            0,
            Some(Error::Invalid),
            Some(Error::Invalid),
        ),
        ("224.0.0.1", 0, Some(Error::Invalid), Some(Error::Invalid)),
        (
            "239.255.255.255",
            0,
            Some(Error::Invalid),
            Some(Error::Invalid),
        ),
        ("240.0.0.1", 0, None, None),
        ("127.0.0.1", 0, Some(Error::AddrNotAvail), None),
        ("127.255.0.9", 0, Some(Error::AddrNotAvail), None),
        ("::", 0, Some(Error::Invalid), Some(Error::ProtoType)),
        ("::1", 0, Some(Error::AddrNotAvail), None),
        ("ff02::1", 5, Some(Error::Invalid), Some(Error::ProtoType)),
        ("fe80::1", 0, Some(Error::Invalid), Some(Error::Invalid)),
        ("fe80::1", 5, None, None),
        ("febf::1", 0, Some(Error::Invalid), Some(Error::Invalid)),
        ("fec0::1", 0, None, None),
        (
            "::ffff:0.0.0.0",
            0,
            Some(Error::Invalid),
            Some(Error::ProtoType),
        ),
        (
            "::ffff:255.255.255.255",
            0,
            Some(Error::Invalid),
            Some(Error::ProtoType),
        ),
        (
            "::ffff:224.0.0.1",
            0,
            Some(Error::Invalid),
            Some(Error::ProtoType),
        ),
        ("::ffff:127.0.0.1", 0, Some(Error::AddrNotAvail), None),
        ("::ffff:192.0.2.1", 5, None, None),
        ("::192.0.2.1", 0, None, None),
    ] {
        let raw = text(ip, scope);
        assert_eq!(parse_bind(&raw).err(), bind, "bind {ip}%{scope}");
        assert_eq!(parse_connect(&raw).err(), connect, "connect {ip}%{scope}");
    }
}

#[test]
fn mapped_and_plain_are_the_same_address() {
    assert_eq!(
        parse_bind(&text("::ffff:192.0.2.1", 7)),
        parse_bind(&text("192.0.2.1", 0))
    );
    assert!(parse_bind(&text("::ffff:192.0.2.1", 0)).unwrap().is_v4());
    assert!(!parse_bind(&text("::192.0.2.1", 0)).unwrap().is_v4());
}

#[test]
fn links() {
    let a = parse_bind(&text("fe80::1", 3)).unwrap();
    let b = parse_bind(&text("fe80::2", 4)).unwrap();
    let global = parse_bind(&text("2001:db8::1", 4)).unwrap();
    assert!(a.is_link_local() && !global.is_link_local());
    assert!(!a.is_on_link_of(&b) && !b.is_on_link_of(&a));
    assert!(a.is_on_link_of(&a) && a.is_on_link_of(&global) && global.is_on_link_of(&a));
}

#[test]
fn names_of_sockets_without_address() {
    let mut out = [0xaa; MAX_SOCKADDR];
    assert_eq!(encode_unspec(&mut out), 16);
    assert_eq!(out, [0; MAX_SOCKADDR]);
    for (ip, family, len) in [("192.0.2.1", INET, 16), ("2001:db8::1", INET6, 28)] {
        let mut out = [0xaa; MAX_SOCKADDR];
        let mut expected = [0; MAX_SOCKADDR];
        expected[..2].copy_from_slice(&family.to_ne_bytes());
        assert_eq!(
            parse_bind(&text(ip, 0)).unwrap().encode_any_of(&mut out),
            len
        );
        assert_eq!(out, expected, "{ip}");
    }
}

#[test]
fn the_probe_port_is_refused() {
    let refused: Vec<u16> = (0..=u16::MAX)
        .filter(|&port| check_port(port).is_err())
        .collect();
    assert_eq!(refused, [1]);
    assert_eq!(check_port(1), Err(Error::Invalid));
}
