// SPDX-License-Identifier: GPL-2.0

//! Socket addresses: from the bytes of a `sockaddr` to an address, and back.
//!
//! Inside, every address is an IPv6 one; IPv4 lives in the mapped range `::ffff:0:0/96`, and an
//! IPv6 caller who spells such an address means IPv4. Which address is refused with which error
//! is copied from `rds_bind()` in `net/rds/bind.c` and `rds_connect()` in `net/rds/af_rds.c`.

use super::{
    error::Error,
    ports::PROBE_PORT, //
};

/// `AF_INET`.
const AF_INET: u16 = 2;

/// `AF_INET6`.
const AF_INET6: u16 = 10;

/// Bytes of a `struct sockaddr_in`: family 2, port 2 (big endian), address 4, zero 8.
pub(crate) const SOCKADDR_IN: usize = 16;

/// Bytes of a `struct sockaddr_in6`: family 2, port 2, flow information 4, address 16, scope 4.
const SOCKADDR_IN6: usize = 28;

/// Where the port is, in both.
const PORT: usize = 2;

/// Where the address is in a `struct sockaddr_in`.
const IN_ADDR: usize = 4;

/// Where the address is in a `struct sockaddr_in6`.
const IN6_ADDR: usize = 8;

/// Where the scope is in a `struct sockaddr_in6`.
const IN6_SCOPE: usize = 24;

/// Bytes of an address buffer that any encoding fits into.
pub(crate) const MAX_SOCKADDR: usize = SOCKADDR_IN6;

/// An address and port; the order makes it a key of a sorted map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Addr {
    /// The IPv6 address, for IPv4 the mapped one.
    pub(crate) ip: [u8; 16],
    /// The port in host order.
    pub(crate) port: u16,
    /// The interface of a link-local address; 0 for every other one.
    pub(crate) scope: u32,
}

/// What kind of thing an IP address names.
enum Kind {
    Any,
    Multicast,
    Broadcast,
    Unicast,
}

impl Addr {
    /// Reads a whole `struct sockaddr_in`, whatever its family field says.
    fn from_v4(raw: &[u8]) -> Option<Self> {
        let raw: &[u8; SOCKADDR_IN] = raw.first_chunk()?;
        let [a, b, c, d] = field(raw, IN_ADDR)?;
        Some(Self {
            ip: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d],
            port: u16::from_be_bytes(field(raw, PORT)?),
            scope: 0,
        })
    }

    /// Reads a whole `struct sockaddr_in6`, whatever its family field says.
    fn from_v6(raw: &[u8]) -> Option<Self> {
        let raw: &[u8; SOCKADDR_IN6] = raw.first_chunk()?;
        let mut addr = Self {
            ip: field(raw, IN6_ADDR)?,
            port: u16::from_be_bytes(field(raw, PORT)?),
            scope: 0,
        };
        let scope = u32::from_ne_bytes(field(raw, IN6_SCOPE)?);
        if addr.is_link_local() {
            addr.scope = scope;
        }
        Some(addr)
    }

    /// Returns the IPv4 address if it is one.
    fn v4(&self) -> Option<[u8; 4]> {
        match self.ip {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Some([a, b, c, d]),
            _ => None,
        }
    }

    fn kind(&self) -> Kind {
        match (self.v4(), self.ip) {
            (Some([0, 0, 0, 0]), _) => Kind::Any,
            (Some([255, 255, 255, 255]), _) => Kind::Broadcast,
            (Some([224..=239, ..]), _) => Kind::Multicast,
            (Some(_), _) => Kind::Unicast,
            (None, [0xff, ..]) => Kind::Multicast,
            (None, ip) if ip == [0; 16] => Kind::Any,
            (None, _) => Kind::Unicast,
        }
    }

    /// Returns whether this is an IPv4 address.
    pub(crate) fn is_v4(&self) -> bool {
        self.v4().is_some()
    }

    /// Returns whether this is `127.0.0.0/8` or `::1`.
    pub(crate) fn is_loopback(&self) -> bool {
        match self.v4() {
            Some([first, ..]) => first == 127,
            None => u128::from_be_bytes(self.ip) == 1,
        }
    }

    /// Returns whether this is `fe80::/10`, which means nothing without a scope.
    pub(crate) fn is_link_local(&self) -> bool {
        let [first, second, ..] = self.ip;
        first == 0xfe && second & 0xc0 == 0x80
    }

    /// Returns whether a socket bound to one address can be connected to the other.
    ///
    /// Not so for link-local addresses on two interfaces; the caller answers with
    /// [`Error::Invalid`] to the bind or connect that comes second.
    pub(crate) fn is_on_link_of(&self, other: &Self) -> bool {
        self.scope == 0 || other.scope == 0 || self.scope == other.scope
    }

    /// Writes the address for a caller and returns its length, 16 for IPv4 and 28 for IPv6.
    ///
    /// All of `out` is overwritten, with zeros where the address says nothing.
    pub(crate) fn encode(&self, out: &mut [u8; MAX_SOCKADDR]) -> usize {
        let len = self.encode_any_of(out);
        put(out, PORT, self.port.to_be_bytes());
        if let Some(ip) = self.v4() {
            put(out, IN_ADDR, ip);
        } else {
            put(out, IN6_ADDR, self.ip);
            put(out, IN6_SCOPE, self.scope.to_ne_bytes());
        }
        len
    }

    /// Writes the zero address of the same family and returns its length: the name of a socket
    /// that is connected to `self` but not bound.
    pub(crate) fn encode_any_of(&self, out: &mut [u8; MAX_SOCKADDR]) -> usize {
        let (family, len) = if self.is_v4() {
            (AF_INET, SOCKADDR_IN)
        } else {
            (AF_INET6, SOCKADDR_IN6)
        };
        *out = [0; MAX_SOCKADDR];
        put(out, 0, family.to_ne_bytes());
        len
    }
}

/// Writes the name of a socket that is neither bound nor connected and returns its length: 16
/// zero bytes, that is family `AF_UNSPEC`.
pub(crate) fn encode_unspec(out: &mut [u8; MAX_SOCKADDR]) -> usize {
    *out = [0; MAX_SOCKADDR];
    SOCKADDR_IN
}

/// Reads the address of a bind; `raw` is what the caller passed, as long as he said.
///
/// Ask first whether the socket is bound already, and check the port last ([`check_port`]): then
/// the errors come in the order of in-tree RDS.
///
/// # Errors
///
/// [`Error::Invalid`] if it is too short, of another family than IPv4 and IPv6, any, broadcast or
/// multicast, or link-local without a scope; [`Error::AddrNotAvail`] for loopback, which RDS
/// hands to a transport that has no HCA and that is not provided here.
pub(crate) fn parse_bind(raw: &[u8]) -> Result<Addr, Error> {
    let addr = match family(raw)? {
        AF_INET => Addr::from_v4(raw),
        AF_INET6 => Addr::from_v6(raw),
        _ => None,
    }
    .ok_or(Error::Invalid)?;
    match addr.kind() {
        Kind::Any | Kind::Multicast | Kind::Broadcast => Err(Error::Invalid),
        Kind::Unicast if addr.is_link_local() && addr.scope == 0 => Err(Error::Invalid),
        Kind::Unicast if addr.is_loopback() => Err(Error::AddrNotAvail),
        Kind::Unicast => Ok(addr),
    }
}

/// Checks the port of a bind; 0 asks for any.
///
/// # Errors
///
/// [`Error::Invalid`] for the port that in-tree RDS keeps for its probes.
pub(crate) fn check_port(port: u16) -> Result<(), Error> {
    if port == PROBE_PORT {
        return Err(Error::Invalid);
    }
    Ok(())
}

/// Reads the address of a connect. See [`Addr::is_on_link_of`] for the check that follows it.
///
/// # Errors
///
/// [`Error::Invalid`] if it is too short, IPv4 multicast or broadcast, or link-local without a
/// scope; [`Error::AddrRequired`] for IPv4 any; [`Error::ProtoType`] for an IPv6 address that is
/// not unicast, also a mapped one; [`Error::NoFamily`] for another family.
pub(crate) fn parse_connect(raw: &[u8]) -> Result<Addr, Error> {
    match family(raw)? {
        AF_INET => {
            let addr = Addr::from_v4(raw).ok_or(Error::Invalid)?;
            match addr.kind() {
                Kind::Any => Err(Error::AddrRequired),
                Kind::Multicast | Kind::Broadcast => Err(Error::Invalid),
                Kind::Unicast => Ok(addr),
            }
        }
        AF_INET6 => {
            let addr = Addr::from_v6(raw).ok_or(Error::Invalid)?;
            match addr.kind() {
                Kind::Any | Kind::Multicast | Kind::Broadcast => Err(Error::ProtoType),
                Kind::Unicast if addr.is_link_local() && addr.scope == 0 => Err(Error::Invalid),
                Kind::Unicast => Ok(addr),
            }
        }
        _ => Err(Error::NoFamily),
    }
}

/// Reads the argument of `RDS_CANCEL_SENT_TO`; its length alone tells the family.
///
/// # Errors
///
/// [`Error::Invalid`] if it is shorter than an IPv4 address.
pub(crate) fn parse_cancel(raw: &[u8]) -> Result<Addr, Error> {
    Addr::from_v6(raw)
        .or_else(|| Addr::from_v4(raw))
        .ok_or(Error::Invalid)
}

/// Returns the family field, which is in host order.
fn family(raw: &[u8]) -> Result<u16, Error> {
    field(raw, 0).map(u16::from_ne_bytes).ok_or(Error::Invalid)
}

/// Returns the `N` bytes at `at`, if `raw` has them.
fn field<const N: usize>(raw: &[u8], at: usize) -> Option<[u8; N]> {
    raw.get(at..)?.first_chunk().copied()
}

/// Overwrites the bytes from `at` on.
fn put<const N: usize>(out: &mut [u8; MAX_SOCKADDR], at: usize, bytes: [u8; N]) {
    for (slot, byte) in out.iter_mut().skip(at).zip(bytes) {
        *slot = byte;
    }
}
