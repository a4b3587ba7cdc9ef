// SPDX-License-Identifier: GPL-2.0

//! Socket addresses and the order of checks of options, inside the kernel.

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
    opts::{
        rx_trace_ok,
        transport_request,
        TransportError, //
    },
};
use kernel::prelude::*;

#[kunit_tests(rds_mr_policy_addr)]
mod tests {
    use super::*;

    /// `fe80::1`, `2001:db8::1` and others by their first and last bytes.
    const fn v6(first: u8, second: u8, last: u8) -> [u8; 16] {
        [first, second, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]
    }

    const fn mapped([a, b, c, d]: [u8; 4]) -> [u8; 16] {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
    }

    /// A `struct sockaddr_in` with port 4000.
    fn sockaddr_in([a, b, c, d]: [u8; 4]) -> [u8; 16] {
        let [f, g] = 2_u16.to_ne_bytes();
        [f, g, 0x0f, 0xa0, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0]
    }

    /// A `struct sockaddr_in6` with port 4000.
    fn sockaddr_in6(ip: [u8; 16], scope: u32) -> [u8; 28] {
        let [f, g] = 10_u16.to_ne_bytes();
        let mut raw = [0; 28];
        let fields: [(usize, &[u8]); 3] = [
            (0, &[f, g, 0x0f, 0xa0]),
            (8, &ip),
            (24, &scope.to_ne_bytes()),
        ];
        for (at, bytes) in fields {
            for (slot, byte) in raw.iter_mut().skip(at).zip(bytes) {
                *slot = *byte;
            }
        }
        raw
    }

    #[test]
    fn ipv4_binds() {
        let host = Addr {
            ip: mapped([192, 0, 2, 1]),
            port: 4000,
            scope: 0,
        };
        assert_eq!(parse_bind(&sockaddr_in([192, 0, 2, 1])), Ok(host));
        assert_eq!(parse_bind(&sockaddr_in6(host.ip, 9)), Ok(host));
        for ip in [
            [0, 0, 0, 0],
            [255, 255, 255, 255],
            [224, 0, 0, 1],
            [239, 1, 2, 3],
        ] {
            assert_eq!(parse_bind(&sockaddr_in(ip)), Err(Error::Invalid));
            assert_eq!(
                parse_bind(&sockaddr_in6(mapped(ip), 0)),
                Err(Error::Invalid)
            );
        }
        assert_eq!(
            parse_bind(&sockaddr_in([127, 0, 0, 1])),
            Err(Error::AddrNotAvail)
        );
    }

    #[test]
    fn ipv6_binds() {
        assert!(parse_bind(&sockaddr_in6(v6(0x20, 1, 1), 0)).is_ok());
        for (ip, scope, error) in [
            (v6(0, 0, 0), 0, Error::Invalid),
            (v6(0, 0, 1), 0, Error::AddrNotAvail),
            (v6(0xff, 2, 1), 3, Error::Invalid),
            (v6(0xfe, 0x80, 1), 0, Error::Invalid),
            (v6(0xfe, 0xbf, 1), 0, Error::Invalid),
        ] {
            assert_eq!(parse_bind(&sockaddr_in6(ip, scope)), Err(error));
        }
        let local = parse_bind(&sockaddr_in6(v6(0xfe, 0x80, 1), 3));
        assert_eq!(local.map(|addr| addr.scope), Ok(3));
        assert_eq!(local.map(|addr| addr.is_link_local()), Ok(true));
    }

    #[test]
    fn connects() {
        for (ip, error) in [
            ([0, 0, 0, 0], Error::AddrRequired),
            ([255, 255, 255, 255], Error::Invalid),
            ([224, 0, 0, 1], Error::Invalid),
        ] {
            assert_eq!(parse_connect(&sockaddr_in(ip)), Err(error));
            assert_eq!(
                parse_connect(&sockaddr_in6(mapped(ip), 0)),
                Err(Error::ProtoType)
            );
        }
        assert_eq!(
            parse_connect(&sockaddr_in6(v6(0, 0, 0), 0)),
            Err(Error::ProtoType)
        );
        assert_eq!(
            parse_connect(&sockaddr_in6(v6(0xff, 2, 1), 0)),
            Err(Error::ProtoType)
        );
        assert_eq!(
            parse_connect(&sockaddr_in6(v6(0xfe, 0x80, 1), 0)),
            Err(Error::Invalid)
        );
        assert!(parse_connect(&sockaddr_in([127, 0, 0, 1])).is_ok());
    }

    #[test]
    fn lengths_and_families() {
        let v4 = sockaddr_in([192, 0, 2, 1]);
        for (len, ok) in [(0, false), (1, false), (2, false), (15, false), (16, true)] {
            let raw = v4.get(..len).unwrap_or_default();
            assert_eq!(parse_bind(raw).is_ok(), ok);
            assert_eq!(parse_connect(raw).is_ok(), ok);
        }
        let ip6 = sockaddr_in6(v6(0x20, 1, 1), 0);
        for (len, ok) in [(2, false), (16, false), (27, false), (28, true)] {
            let raw = ip6.get(..len).unwrap_or_default();
            assert_eq!(parse_bind(raw).is_ok(), ok);
            assert_eq!(parse_connect(raw).is_ok(), ok);
        }
        assert_eq!(parse_bind(&[0; 28]), Err(Error::Invalid));
        assert_eq!(parse_connect(&[0; 28]), Err(Error::NoFamily));
    }

    #[test]
    fn cancel_goes_by_length() {
        let raw = [0x11; 28];
        for (len, v4) in [(16, true), (27, true), (28, false)] {
            let addr = parse_cancel(raw.get(..len).unwrap_or_default());
            assert_eq!(addr.map(|addr| addr.is_v4()), Ok(v4));
            assert_eq!(addr.map(|addr| addr.port), Ok(0x1111));
        }
        assert_eq!(parse_cancel(&[0x11; 15]), Err(Error::Invalid));
    }

    #[test]
    fn what_is_encoded_reads_back() {
        for ip in [mapped([192, 0, 2, 1]), v6(0x20, 1, 1), v6(0xfe, 0x80, 7)] {
            let mut addr = Addr {
                ip,
                port: 65535,
                scope: 0,
            };
            addr.scope = if addr.is_link_local() { 3 } else { 0 };
            let mut out = [0xaa; MAX_SOCKADDR];
            let len = addr.encode(&mut out);
            assert_eq!(len, if addr.is_v4() { 16 } else { 28 });
            assert_eq!(parse_bind(out.get(..len).unwrap_or_default()), Ok(addr));
            assert!(out.iter().skip(len).all(|&byte| byte == 0));
        }
    }

    #[test]
    fn names_without_an_address() {
        let mut out = [0xaa; MAX_SOCKADDR];
        assert_eq!(encode_unspec(&mut out), 16);
        assert_eq!(out, [0; MAX_SOCKADDR]);
        let addr = Addr {
            ip: v6(0x20, 1, 1),
            port: 1,
            scope: 0,
        };
        let mut out = [0xaa; MAX_SOCKADDR];
        assert_eq!(addr.encode_any_of(&mut out), 28);
        assert_eq!(out.first_chunk().copied(), Some(10_u16.to_ne_bytes()));
        assert!(out.iter().skip(2).all(|&byte| byte == 0));
    }

    #[test]
    fn the_probe_port() {
        assert_eq!(check_port(0), Ok(()));
        assert_eq!(check_port(1), Err(Error::Invalid));
        assert_eq!(check_port(2), Ok(()));
    }

    #[test]
    fn the_transport_in_the_order_of_rds() {
        let refused = |error| Err(TransportError::Refused(error));
        for (attached, len, value, init_net, expected) in [
            (true, 0, None, false, refused(Error::NotSupported)),
            (false, 8, None, false, refused(Error::Invalid)),
            (false, 4, None, false, Err(TransportError::Fault)),
            (false, 4, Some(-1), false, refused(Error::Invalid)),
            (false, 4, Some(3), false, refused(Error::Invalid)),
            (false, 4, Some(0), false, refused(Error::ProtoType)),
            (false, 4, Some(1), false, refused(Error::ProtoType)),
            (false, 4, Some(2), false, refused(Error::NoProtoOpt)),
            (false, 4, Some(1), true, refused(Error::NoProtoOpt)),
            (false, 4, Some(2), true, refused(Error::NoProtoOpt)),
            (false, 4, Some(0), true, Ok(())),
        ] {
            assert_eq!(transport_request(attached, len, value, init_net), expected);
        }
    }

    #[test]
    fn trace_points() {
        assert!(rx_trace_ok([0, 9, 9, 9]));
        assert!(rx_trace_ok([3, 0, 1, 2]));
        assert!(rx_trace_ok([2, 0, 2, 9]));
        assert!(!rx_trace_ok([2, 0, 3, 0]));
        assert!(!rx_trace_ok([4, 0, 0, 0]));
    }
}
