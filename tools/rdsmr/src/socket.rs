// SPDX-License-Identifier: GPL-2.0
//! An AF_RDS socket.

use crate::abi::*;
use crate::addr::{encode, Name};
use crate::check;
use std::io;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// What poll() says of a socket with keys that were revoked.
pub const POLLPRI: i16 = libc::POLLPRI;

#[derive(Debug)]
pub struct Socket(OwnedFd);

/// What the HCA said about one byte of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Alive,
    Refused,
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A descriptor of an RDS socket that came from somewhere else.
impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Self {
        Socket(fd)
    }
}

impl Socket {
    pub fn new() -> io::Result<Self> {
        Self::of_type(libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0)
    }

    pub fn of_type(kind: i32, protocol: i32) -> io::Result<Self> {
        // SAFETY: takes no pointer; a descriptor that comes back is ours alone.
        unsafe {
            let fd = check(libc::socket(AF_RDS, kind, protocol))?;
            Ok(Socket(OwnedFd::from_raw_fd(fd)))
        }
    }

    pub fn bound(addr: SocketAddr) -> io::Result<Self> {
        let socket = Self::new()?;
        socket.bind(addr)?;
        Ok(socket)
    }

    /// A second descriptor of the same socket.
    pub fn dup(&self) -> io::Result<Self> {
        Ok(Socket(self.0.try_clone()?))
    }

    pub fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        self.bind_bytes(&encode(addr))
    }

    pub fn bind_bytes(&self, addr: &[u8]) -> io::Result<()> {
        // SAFETY: the kernel reads addr.len() bytes of a live slice.
        check(unsafe { libc::bind(self.as_raw_fd(), addr.as_ptr().cast(), addr.len() as u32) })?;
        Ok(())
    }

    pub fn connect(&self, addr: SocketAddr) -> io::Result<()> {
        self.connect_bytes(&encode(addr))
    }

    pub fn connect_bytes(&self, addr: &[u8]) -> io::Result<()> {
        // SAFETY: the kernel reads addr.len() bytes of a live slice.
        check(unsafe { libc::connect(self.as_raw_fd(), addr.as_ptr().cast(), addr.len() as u32) })?;
        Ok(())
    }

    pub fn local(&self) -> io::Result<Name> {
        self.name(libc::getsockname)
    }

    pub fn peer(&self) -> io::Result<Name> {
        self.name(libc::getpeername)
    }

    fn name(
        &self,
        call: unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut libc::socklen_t) -> i32,
    ) -> io::Result<Name> {
        // Not zeroed: what the kernel claims to have written must be written.
        let mut bytes = vec![0xaa_u8; 128];
        let mut len = bytes.len() as libc::socklen_t;
        // SAFETY: the kernel writes at most len bytes of the buffer, and len.
        check(unsafe { call(self.as_raw_fd(), bytes.as_mut_ptr().cast(), &mut len) })?;
        bytes.truncate(len as usize);
        Ok(Name::new(bytes))
    }

    /// Register `bytes` bytes at `addr`; the cookie is what a peer needs.
    pub fn get_mr(&self, addr: u64, bytes: u64, flags: u64) -> io::Result<u64> {
        let mut cookie = 0_u64;
        let cookie_addr = (&raw mut cookie) as u64;
        self.get_mr_args(&GetMrArgs {
            addr,
            bytes,
            cookie_addr,
            flags,
        })?;
        // SAFETY: a live local; read as volatile because the kernel wrote it
        // through an address that the compiler knows nothing of.
        Ok(unsafe { (&raw const cookie).read_volatile() })
    }

    /// As [`Socket::get_mr`]; the kernel writes the cookie to any address.
    pub fn get_mr_args(&self, args: &GetMrArgs) -> io::Result<()> {
        self.setsockopt(SOL_RDS, RDS_GET_MR, args.as_bytes())
    }

    pub fn get_mr_for_dest(
        &self,
        dest: SocketAddr,
        addr: u64,
        bytes: u64,
        flags: u64,
    ) -> io::Result<u64> {
        let mut storage = [0; 128];
        let name = encode(dest);
        storage[..name.len()].copy_from_slice(&name);
        let mut cookie = 0_u64;
        let cookie_addr = (&raw mut cookie) as u64;
        let mr = GetMrArgs {
            addr,
            bytes,
            cookie_addr,
            flags,
        };
        let args = GetMrForDestArgs { dest: storage, mr };
        self.setsockopt(SOL_RDS, RDS_GET_MR_FOR_DEST, args.as_bytes())?;
        // SAFETY: as in get_mr.
        Ok(unsafe { (&raw const cookie).read_volatile() })
    }

    pub fn free_mr(&self, cookie: u64, flags: u64) -> io::Result<()> {
        self.setsockopt(
            SOL_RDS,
            RDS_FREE_MR,
            FreeMrArgs { cookie, flags }.as_bytes(),
        )
    }

    pub fn setsockopt(&self, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
        self.setsockopt_at(level, name, value.as_ptr() as u64, value.len() as i32)
    }

    /// With a pointer and a length of the caller's making.
    pub fn setsockopt_at(&self, level: i32, name: i32, addr: u64, len: i32) -> io::Result<()> {
        // SAFETY: the kernel reads [addr, addr + len) or says EFAULT; what it
        // writes through a cookie_addr in there is the caller's statement.
        check(unsafe {
            libc::setsockopt(self.as_raw_fd(), level, name, addr as *const _, len as u32)
        })?;
        Ok(())
    }

    /// Returns the length that the kernel reported.
    pub fn getsockopt(&self, level: i32, name: i32, value: &mut [u8]) -> io::Result<usize> {
        let mut len = value.len() as i32;
        let (at, len_at) = (value.as_mut_ptr() as u64, (&raw mut len) as u64);
        self.getsockopt_at(level, name, at, len_at)?;
        // SAFETY: as in get_mr.
        Ok(unsafe { (&raw const len).read_volatile() } as usize)
    }

    /// With pointers of the caller's making; `len_addr` holds an int.
    pub fn getsockopt_at(&self, level: i32, name: i32, addr: u64, len_addr: u64) -> io::Result<()> {
        // SAFETY: the kernel writes to both addresses or says EFAULT; that they
        // are not inside of Rust's own objects is the caller's statement.
        check(unsafe {
            libc::getsockopt(
                self.as_raw_fd(),
                level,
                name,
                addr as *mut _,
                len_addr as *mut _,
            )
        })?;
        Ok(())
    }

    pub fn set_int(&self, level: i32, name: i32, value: i32) -> io::Result<()> {
        self.setsockopt(level, name, value.as_bytes())
    }

    pub fn get_int(&self, level: i32, name: i32) -> io::Result<i32> {
        let mut value = 0_i32;
        self.getsockopt(level, name, value.as_bytes_mut())?;
        Ok(value)
    }

    pub fn quota(&self) -> io::Result<Quota> {
        let mut quota = Quota::default();
        self.getsockopt(SOL_RDS, RDS_MR_QUOTA, quota.as_bytes_mut())?;
        Ok(quota)
    }

    pub fn set_quota(&self, max_keys: u32, max_pages: u64) -> io::Result<()> {
        let quota = Quota {
            max_keys,
            flags: 0,
            max_pages,
        };
        self.setsockopt(SOL_RDS, RDS_MR_QUOTA, quota.as_bytes())
    }

    pub fn ioctl<T: Plain>(&self, command: u32, argument: &mut T) -> io::Result<()> {
        self.ioctl_at(command, (argument as *mut T) as u64)
    }

    pub fn ioctl_at(&self, command: u32, addr: u64) -> io::Result<()> {
        // SAFETY: the kernel touches the command's argument at addr, or says
        // EFAULT; that it is no Rust object but the caller's own is up to him.
        check(unsafe { libc::ioctl(self.as_raw_fd(), command.into(), addr) })?;
        Ok(())
    }

    /// Ask the HCA to read one byte of a key of this socket's device.
    pub fn probe(&self, cookie: u64, offset: u64) -> io::Result<Access> {
        let mut probe = Probe {
            cookie,
            offset,
            ..Default::default()
        };
        self.ioctl(SIOCRDSMRPROBE, &mut probe)?;
        match probe.result {
            0 => Ok(Access::Alive),
            1 => Ok(Access::Refused),
            other => Err(io::Error::other(format!(
                "the probe's result is {other}, not 0 or 1"
            ))),
        }
    }
}

impl Socket {
    /// The next key of this socket that was revoked and not told yet.
    pub fn revoked(&self) -> io::Result<Revoked> {
        let mut revoked = Revoked::default();
        self.ioctl(SIOCRDSMRREVOKED, &mut revoked)?;
        Ok(revoked)
    }
}

/// A socket whose descriptor another thread may close at any moment: the number
/// may then be nobody's, or that of the next file which this process opens.
#[derive(Debug)]
pub struct Bare(RawFd);

impl Bare {
    pub fn new(socket: Socket) -> Self {
        Bare(socket.0.into_raw_fd())
    }

    /// Make some calls on whatever has the number now.
    pub fn with<T>(&self, calls: impl FnOnce(&Socket) -> T) -> T {
        // SAFETY: borrowed for the calls and never closed by this handle.
        calls(&ManuallyDrop::new(Socket(unsafe {
            OwnedFd::from_raw_fd(self.0)
        })))
    }

    pub fn close(&self) -> io::Result<()> {
        // SAFETY: the descriptor is ours by new(); that others may be using it
        // is the point.
        check(unsafe { libc::close(self.0) })?;
        Ok(())
    }
}

/// The rest of what one can do to a socket. Nothing of it works on AF_RDS yet.
impl Socket {
    pub fn pair() -> io::Result<()> {
        let mut fds = [0; 2];
        // SAFETY: the kernel writes two ints.
        check(unsafe { libc::socketpair(AF_RDS, libc::SOCK_SEQPACKET, 0, fds.as_mut_ptr()) })?;
        Ok(())
    }

    pub fn listen(&self) -> io::Result<()> {
        // SAFETY: takes no pointer.
        check(unsafe { libc::listen(self.as_raw_fd(), 1) })?;
        Ok(())
    }

    pub fn accept(&self) -> io::Result<()> {
        let null = std::ptr::null_mut::<libc::sockaddr>();
        // SAFETY: a null address means that none is wanted.
        check(unsafe { libc::accept(self.as_raw_fd(), null, std::ptr::null_mut()) })?;
        Ok(())
    }

    pub fn shutdown(&self, how: i32) -> io::Result<()> {
        // SAFETY: takes no pointer.
        check(unsafe { libc::shutdown(self.as_raw_fd(), how) })?;
        Ok(())
    }

    pub fn mmap(&self) -> io::Result<()> {
        let (fd, null) = (self.as_raw_fd(), std::ptr::null_mut());
        // SAFETY: maps nothing over what exists, since no address is given.
        let at = unsafe { libc::mmap(null, 4096, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
        if at == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    pub fn send_to(&self, data: &[u8], to: Option<SocketAddr>, flags: i32) -> io::Result<usize> {
        let name = to.map(encode).unwrap_or_default();
        let at = if name.is_empty() {
            std::ptr::null()
        } else {
            name.as_ptr()
        };
        // SAFETY: the kernel reads both live slices.
        let sent = check(unsafe {
            let (to, len) = (at.cast(), name.len() as u32);
            libc::sendto(
                self.as_raw_fd(),
                data.as_ptr().cast(),
                data.len(),
                flags,
                to,
                len,
            )
        })?;
        Ok(sent as usize)
    }

    pub fn recv(&self, data: &mut [u8], flags: i32) -> io::Result<usize> {
        let at = data.as_mut_ptr().cast();
        // SAFETY: the kernel writes into a live slice.
        let got = check(unsafe { libc::recv(self.as_raw_fd(), at, data.len(), flags) })?;
        Ok(got as usize)
    }

    pub fn write(&self, data: &[u8]) -> io::Result<usize> {
        // SAFETY: the kernel reads a live slice.
        let n = check(unsafe { libc::write(self.as_raw_fd(), data.as_ptr().cast(), data.len()) })?;
        Ok(n as usize)
    }

    pub fn read(&self, data: &mut [u8]) -> io::Result<usize> {
        let at = data.as_mut_ptr().cast();
        // SAFETY: the kernel writes into a live slice.
        Ok(check(unsafe { libc::read(self.as_raw_fd(), at, data.len()) })? as usize)
    }

    /// Which of the events in `wanted` are there now.
    pub fn poll(&self, wanted: i16) -> io::Result<i16> {
        let mut fd = libc::pollfd {
            fd: self.as_raw_fd(),
            events: wanted,
            revents: 0,
        };
        // SAFETY: one live pollfd.
        check(unsafe { libc::poll(&mut fd, 1, 0) })?;
        Ok(fd.revents)
    }
}
