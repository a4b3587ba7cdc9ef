// SPDX-License-Identifier: GPL-2.0
//! The smallest file system of one file whose content never comes.
//!
//! Speaks the protocol of `<linux/fuse.h>` over /dev/fuse, as far as it takes to
//! open and map a file.

use crate::{check, Volume};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

/// The name of the file, and its size.
pub const NAME: &str = "file";
pub const BYTES: u64 = 1 << 20;

const ROOT: u64 = 1;
const FILE: u64 = 2;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

/// `struct fuse_in_header`, as far as it matters: length, opcode, unique, node.
const IN_HEADER: usize = 40;

#[derive(Debug)]
pub struct Server {
    device: File,
    _volume: Volume,
}

impl Server {
    pub fn mount(at: &Path) -> io::Result<Self> {
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let fd = device.as_raw_fd();
        let data = format!("fd={fd},rootmode=40000,user_id=0,group_id=0");
        let volume = Volume::mount("fuse", "rdsmr", at, &data)?;
        Ok(Server {
            device,
            _volume: volume,
        })
    }

    /// Serve until somebody has opened the file, and closed it again. From then
    /// on no request is taken any more.
    ///
    /// One that is taken and not answered would be worse for nobody but the test:
    /// the kernel then waits for the answer whatever signal comes.
    pub fn run(&self) -> io::Result<()> {
        let mut request = vec![0; 64 << 10];
        loop {
            let len = (&self.device).read(&mut request)?;
            let bytes = &request[..len];
            let (opcode, unique, node) =
                (word(bytes, 4)? as u32, word(bytes, 8)?, word(bytes, 16)?);
            if let Some((error, body)) = answer(opcode, node, &bytes[IN_HEADER..]) {
                self.reply(unique, error, &body)?;
            }
            if opcode == FLUSH {
                return Ok(());
            }
        }
    }

    /// Wait until somebody waits for us, to no avail.
    pub fn ignored(&self) -> io::Result<()> {
        let mut poll = libc::pollfd {
            fd: self.device.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one live pollfd.
        check(unsafe { libc::poll(&mut poll, 1, -1) })?;
        Ok(())
    }

    fn reply(&self, unique: u64, error: i32, body: &[u8]) -> io::Result<()> {
        let mut out = (16 + body.len() as u32).to_ne_bytes().to_vec();
        out.extend((-error).to_ne_bytes());
        out.extend(unique.to_ne_bytes());
        out.extend(body);
        (&self.device).write_all(&out)
    }
}

fn word(bytes: &[u8], at: usize) -> io::Result<u64> {
    let short = || io::Error::new(io::ErrorKind::InvalidData, "a FUSE request cut short");
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    word.map(|word| u64::from_ne_bytes(*word)).ok_or_else(short)
}

/// errno and body; `None` where the protocol wants no reply.
fn answer(opcode: u32, node: u64, body: &[u8]) -> Option<(i32, Vec<u8>)> {
    Some(match opcode {
        FORGET | BATCH_FORGET | INTERRUPT => return None,
        INIT => (0, init()),
        LOOKUP if node == ROOT && body.strip_suffix(b"\0") == Some(NAME.as_bytes()) => (0, entry()),
        LOOKUP => (libc::ENOENT, Vec::new()),
        GETATTR => (0, [words(&[HOUR, 0]), attributes(node)].concat()),
        OPEN => (0, words(&[0, 0])),
        RELEASE => (0, Vec::new()),
        // And so the kernel asks for no other FLUSH, which would keep a process
        // from exiting.
        _ => (libc::ENOSYS, Vec::new()),
    })
}

/// How long the kernel may keep names and attributes; it need not ask again.
const HOUR: u64 = 3600;

fn words(values: &[u64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

fn halves(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

/// `struct fuse_init_out`: version 7.31, no features, writes of a page.
fn init() -> Vec<u8> {
    let mut out = halves(&[7, 31, 0, 0, 0, 4096]);
    out.resize(64, 0);
    out
}

/// `struct fuse_entry_out`.
fn entry() -> Vec<u8> {
    [words(&[FILE, 0, HOUR, HOUR, 0]), attributes(FILE)].concat()
}

/// `struct fuse_attr`.
fn attributes(node: u64) -> Vec<u8> {
    let (mode, size) = match node {
        ROOT => (libc::S_IFDIR | 0o755, 0),
        _ => (libc::S_IFREG | 0o644, BYTES),
    };
    let times = words(&[node, size, size / 512, 0, 0, 0]);
    let rest = halves(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0]);
    [times, rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_sizes_of_the_header() {
        assert_eq!(init().len(), 64);
        assert_eq!(attributes(FILE).len(), 88);
        assert_eq!(entry().len(), 128);
        assert_eq!(answer(GETATTR, ROOT, b"").unwrap().1.len(), 104);
        assert_eq!(answer(OPEN, FILE, b"").unwrap().1.len(), 16);
    }

    #[test]
    fn there_is_one_file() {
        assert_eq!(answer(LOOKUP, ROOT, b"file\0").unwrap().0, 0);
        assert_eq!(answer(LOOKUP, ROOT, b"fil\0").unwrap().0, libc::ENOENT);
        assert_eq!(answer(LOOKUP, FILE, b"file\0").unwrap().0, libc::ENOENT);
        assert_eq!(answer(FORGET, FILE, b""), None);
        assert_eq!(answer(3000, FILE, b"").unwrap().0, libc::ENOSYS);
    }
}
