// SPDX-License-Identifier: GPL-2.0
//! Socket addresses as the kernel reads and writes them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

pub const IN_LEN: usize = 16;
pub const IN6_LEN: usize = 28;

/// `sockaddr_in` or `sockaddr_in6`.
pub fn encode(addr: SocketAddr) -> Vec<u8> {
    let mut out = Vec::with_capacity(IN6_LEN);
    match addr {
        SocketAddr::V4(v4) => {
            out.extend((libc::AF_INET as u16).to_ne_bytes());
            out.extend(v4.port().to_be_bytes());
            out.extend(v4.ip().octets());
            out.resize(IN_LEN, 0);
        }
        SocketAddr::V6(v6) => {
            out.extend((libc::AF_INET6 as u16).to_ne_bytes());
            out.extend(v6.port().to_be_bytes());
            out.extend(v6.flowinfo().to_be_bytes());
            out.extend(v6.ip().octets());
            out.extend(v6.scope_id().to_ne_bytes());
        }
    }
    out
}

/// What getsockname and getpeername wrote. Kept as bytes, because an unbound
/// socket answers with a family that is no address at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    bytes: Vec<u8>,
}

impl Name {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Name { bytes }
    }

    /// The length that the kernel reported.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn family(&self) -> i32 {
        self.bytes
            .first_chunk()
            .map_or(-1, |b| i32::from(u16::from_ne_bytes(*b)))
    }

    /// Is everything behind the family zero?
    pub fn is_zero(&self) -> bool {
        self.bytes.iter().skip(2).all(|b| *b == 0)
    }

    pub fn addr(&self) -> Option<SocketAddr> {
        let b = &self.bytes;
        let port = u16::from_be_bytes(*b.get(2..)?.first_chunk()?);
        match (self.family(), b.len()) {
            (libc::AF_INET, IN_LEN) => {
                let ip = Ipv4Addr::from(*b[4..].first_chunk::<4>()?);
                Some(SocketAddrV4::new(ip, port).into())
            }
            (libc::AF_INET6, IN6_LEN) => {
                let flow = u32::from_be_bytes(*b[4..].first_chunk()?);
                let ip = Ipv6Addr::from(*b[8..].first_chunk::<16>()?);
                let scope = u32::from_ne_bytes(*b[24..].first_chunk()?);
                Some(SocketAddrV6::new(ip, port, flow, scope).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v4_is_a_sockaddr_in() {
        let addr: SocketAddr = "10.77.0.1:258".parse().unwrap();
        let bytes = encode(addr);
        assert_eq!(bytes, [2, 0, 1, 2, 10, 77, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Name::new(bytes).addr(), Some(addr));
    }

    #[test]
    fn v6_is_a_sockaddr_in6_with_its_scope() {
        let addr = SocketAddr::V6(SocketAddrV6::new("fe80::1".parse().unwrap(), 9, 0, 3));
        let bytes = encode(addr);
        assert_eq!(bytes.len(), IN6_LEN);
        assert_eq!(
            (bytes[0], bytes[3], bytes[8], bytes[23], bytes[24]),
            (10, 9, 0xfe, 1, 3)
        );
        assert_eq!(Name::new(bytes).addr(), Some(addr));
    }

    #[test]
    fn an_unbound_name_is_no_address() {
        let name = Name::new(vec![0; IN_LEN]);
        assert_eq!(
            (name.family(), name.is_zero(), name.addr()),
            (0, true, None)
        );
    }
}
