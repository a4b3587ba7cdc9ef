// SPDX-License-Identifier: GPL-2.0
//! `rdma link add` and `rdma link delete` by the calling task itself, for tests
//! that are about what this task's own calls into the kernel do.

use crate::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;

const NETLINK_RDMA: i32 = 20;
/// `RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, op)`.
const NLDEV: u16 = 5 << 10;
const NEWLINK: u16 = NLDEV + 3;
const DELLINK: u16 = NLDEV + 4;

const DEV_INDEX: u16 = 1;
const DEV_NAME: u16 = 2;
const NDEV_NAME: u16 = 51;
const LINK_TYPE: u16 = 65;

const NLMSG_HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;

/// A request that is ready, so that sending it needs no memory of ours.
#[derive(Debug)]
pub struct Request {
    socket: OwnedFd,
    message: Vec<u8>,
}

impl Request {
    /// Add `ibdev` as rxe on `netdev`.
    pub fn add(ibdev: &str, netdev: &str) -> io::Result<Self> {
        let text = |text: &str| [text.as_bytes(), &[0]].concat();
        let attributes = [
            (DEV_NAME, text(ibdev)),
            (LINK_TYPE, text("rxe")),
            (NDEV_NAME, text(netdev)),
        ];
        Self::new(NEWLINK, &attributes)
    }

    /// Delete `ibdev`, which must be there.
    pub fn delete(ibdev: &str) -> io::Result<Self> {
        let output = Command::new("rdma").args(["dev", "show", ibdev]).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let index: u32 = text
            .split(':')
            .next()
            .and_then(|number| number.trim().parse().ok())
            .ok_or_else(|| io::Error::other(format!("rdma(8) knows no device {ibdev}")))?;
        Self::new(DELLINK, &[(DEV_INDEX, index.to_ne_bytes().to_vec())])
    }

    fn new(kind: u16, attributes: &[(u16, Vec<u8>)]) -> io::Result<Self> {
        // SAFETY: takes no pointer; the descriptor that comes back is ours.
        let socket = unsafe {
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
            OwnedFd::from_raw_fd(check(libc::socket(libc::AF_NETLINK, kind, NETLINK_RDMA))?)
        };
        let message = encode(kind, attributes);
        Ok(Request { socket, message })
    }

    /// The kernel does the work within this call. An error may be about the
    /// answer only: look at the device.
    pub fn send(&self) -> io::Result<()> {
        let fd = self.socket.as_raw_fd();
        let (at, len) = (self.message.as_ptr().cast(), self.message.len());
        // SAFETY: the kernel reads a live vector.
        check(unsafe { libc::send(fd, at, len, 0) })?;
        let mut answer = [0_u8; 256];
        // SAFETY: the kernel writes into a live array.
        let got = check(unsafe {
            libc::recv(
                fd,
                answer.as_mut_ptr().cast(),
                answer.len(),
                libc::MSG_DONTWAIT,
            )
        })?;
        verdict(&answer[..got as usize])
    }
}

fn encode(kind: u16, attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    let mut out = vec![0; 4];
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.resize(NLMSG_HEADER, 0);
    for (name, value) in attributes {
        out.extend((4 + value.len() as u16).to_ne_bytes());
        out.extend(name.to_ne_bytes());
        out.extend(value);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    let len = out.len() as u32;
    out[..4].copy_from_slice(&len.to_ne_bytes());
    out
}

fn verdict(answer: &[u8]) -> io::Result<()> {
    let field = |at: usize| answer.get(at..at + 4).and_then(|b| b.try_into().ok());
    let kind = field(4).map(|b: [u8; 4]| u16::from_ne_bytes([b[0], b[1]]));
    match (kind, field(NLMSG_HEADER).map(i32::from_ne_bytes)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(error)) => Err(io::Error::from_raw_os_error(-error)),
        _ => Err(io::Error::other("netlink gave no answer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_header_and_padded_attributes() {
        let bytes = encode(
            DELLINK,
            &[(DEV_INDEX, vec![7, 0, 0, 0]), (DEV_NAME, vec![65, 0])],
        );
        assert_eq!(bytes.len(), 16 + 8 + 8);
        assert_eq!(bytes[..8], [32, 0, 0, 0, 4, 20, 5, 0]);
        assert_eq!(
            bytes[16..],
            [8, 0, 1, 0, 7, 0, 0, 0, 6, 0, 2, 0, 65, 0, 0, 0]
        );
    }

    #[test]
    fn an_answer_is_an_errno_or_none() {
        let mut answer = encode(NLMSG_ERROR, &[]);
        answer.extend(0_i32.to_ne_bytes());
        assert!(verdict(&answer).is_ok());
        answer[16..].copy_from_slice(&(-libc::EEXIST).to_ne_bytes());
        assert_eq!(
            verdict(&answer).unwrap_err().raw_os_error(),
            Some(libc::EEXIST)
        );
        assert!(verdict(&answer[..4]).is_err());
    }
}
