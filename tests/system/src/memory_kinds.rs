// SPDX-License-Identifier: GPL-2.0
//! Memory of every kind, as a table: what a key for reading and a key for
//! writing say to it.
//!
//! Each row would notice another broken module. Pins that are not for long
//! (no FOLL_LONGTERM) make the shared file rows succeed; pins by force make
//! PROT_NONE and read-only mappings succeed; pins that always write make
//! read-only keys fail, and give them what is not theirs; pins under a lock make
//! userfaultfd hang; a walk over one VMA, or one that counts folios instead of
//! pages, is seen at the edges and in the counters.

use crate::check::{same, skip, Check, End, Outcome};
use crate::hammer::needs_hammer;
use crate::huge;
use crate::runner::Test;
use crate::site::{alive, bound, refused, Holdings};
use crate::volumes::{self, Disk};
use rdsmr::abi::RDS_RDMA_READWRITE;
use rdsmr::area::{self, Of};
use rdsmr::errno::*;
use rdsmr::mem::{NONE, READ, READ_WRITE};
use rdsmr::{Area, Faults, Hammer, Socket, PAGE};
use std::any::Any;
use std::fs::{self, File};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const OK: i32 = 0;

/// Name, memory, and what a key for reading and one for writing get.
pub const TESTS: &[Test] = &[
    Test::new("memory.anonymous", || row(anonymous, OK, OK)),
    Test::new("memory.anonymous_untouched", || row(untouched, OK, OK)),
    Test::new("memory.anonymous_read_only", || row(read_only, OK, EFAULT)),
    Test::new("memory.transparent_huge_pages", || row(huge::thp, OK, OK)),
    Test::new("memory.hugetlb_private", || row(huge::private, OK, OK)),
    Test::new("memory.hugetlb_shared", || row(huge::shared, OK, OK)),
    Test::new("memory.memfd", || row(memfd, OK, OK)),
    Test::new("memory.memfd_read_only", || row(memfd_ro, OK, EFAULT)),
    Test::new("memory.memfd_private", || row(memfd_private, OK, OK)),
    Test::new("memory.tmpfs_shared", || file(Disk::Tmpfs, SHARED, OK, OK)),
    Test::new("memory.tmpfs_private", || {
        file(Disk::Tmpfs, PRIVATE, OK, OK)
    }),
    // The initial root file system is one, and of its kind.
    Test::new("memory.ramfs_shared", || {
        file(Disk::Ramfs, SHARED, OK, EFAULT)
    }),
    Test::new("memory.ext4_private", || file(Disk::Ext4, PRIVATE, OK, OK)),
    Test::new("memory.ext4_private_read_only", || {
        file(Disk::Ext4, PRIVATE_RO, OK, EFAULT)
    }),
    Test::new("memory.ext4_shared", || {
        file(Disk::Ext4, SHARED, OK, EFAULT)
    }),
    Test::new("memory.ext4_shared_read_only", || {
        file(Disk::Ext4, SHARED_RO, OK, EFAULT)
    }),
    Test::new("memory.xfs_private", || file(Disk::Xfs, PRIVATE, OK, OK)),
    Test::new("memory.xfs_private_read_only", || {
        file(Disk::Xfs, PRIVATE_RO, OK, EFAULT)
    }),
    Test::new("memory.xfs_shared", || file(Disk::Xfs, SHARED, OK, EFAULT)),
    Test::new("memory.xfs_shared_read_only", || {
        file(Disk::Xfs, SHARED_RO, OK, EFAULT)
    }),
    Test::new("memory.secret", || row(secret, EFAULT, EFAULT)),
    Test::new("memory.of_a_device", device_memory),
    Test::new("memory.prot_none", || row(prot_none, EFAULT, EFAULT)),
    Test::new("memory.stack", stack),
    Test::new("memory.program_text", program_text),
    Test::new("memory.several_vmas", || row(several, OK, OK)),
    Test::new("memory.several_vmas_one_read_only", || {
        row(several_one_ro, OK, EFAULT)
    }),
    Test::new("memory.several_vmas_one_of_ext4", || {
        row(several_one_ext4, OK, EFAULT)
    }),
    Test::new("memory.hole_in_the_middle", || row(hole, EFAULT, EFAULT)),
    Test::new("memory.hole_at_the_end", || {
        row(hole_at_end, EFAULT, EFAULT)
    }),
    Test::new("memory.behind_the_end_of_a_file", || {
        row(behind_eof, EFAULT, EFAULT)
    }),
    Test::new("memory.userfaultfd_answered", || row(answered, OK, OK)),
];

/// Some pages, neither from the first nor to the last byte of them.
const PAGES: u64 = 6;
const OFFSET: u64 = 100;
const BYTES: u64 = 5 * PAGE;

/// A page that never comes, or a hammer that does not write, is a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// Memory, and what must live as long as it.
pub struct Piece {
    pub area: Area,
    pub offset: u64,
    pub bytes: u64,
    _keep: Option<Box<dyn Any>>,
}

impl Piece {
    pub fn of(area: Area) -> Self {
        Piece {
            area,
            offset: OFFSET,
            bytes: BYTES,
            _keep: None,
        }
    }

    pub fn with(area: Area, keep: impl Any) -> Self {
        Piece {
            _keep: Some(Box::new(keep)),
            ..Self::of(area)
        }
    }

    pub fn at(&self) -> u64 {
        self.area.at(self.offset)
    }
}

fn row(make: impl Fn() -> Result<Piece, End>, read: i32, write: i32) -> Outcome {
    let socket = bound()?;
    for (flags, errno) in [(0, read), (RDS_RDMA_READWRITE, write)] {
        let piece = make()?;
        if judge(&socket, piece.at(), piece.bytes, flags, errno)? && flags != 0 {
            struck(&socket, &piece)?;
        }
    }
    Ok(())
}

pub fn pages(addr: u64, bytes: u64) -> u64 {
    (addr % PAGE + bytes).div_ceil(PAGE)
}

/// One key for this memory must come to be and die, or be refused; in the end
/// nothing is left of it. Returns whether it could be had.
fn judge(socket: &Socket, at: u64, bytes: u64, flags: u64, errno: i32) -> Result<bool, End> {
    let what = format!("{bytes} bytes at {at:#x}, flags {flags}");
    let before = Holdings::now()?;
    let got = socket.get_mr(at, bytes, flags);
    if errno != OK {
        got.must_fail(errno, format!("GET_MR of {what}"))?;
        before.are(format!("after the refusal of {what}"))?;
        return Ok(false);
    }
    let cookie = got.must(format!("GET_MR of {what}"))?;
    before
        .plus(pages(at, bytes))
        .are(format!("with a key for {what}"))?;
    alive(socket, cookie, 0, &what)?;
    alive(socket, cookie, bytes - 1, &what)?;
    socket.free_mr(cookie, 0).must("FREE_MR")?;
    before.are(format!("after FREE_MR of {what}"))?;
    refused(socket, cookie, 0, format!("the freed key of {what}"))?;
    Ok(true)
}

/// What a peer writes arrives where the program sees it. Only the test module
/// has a peer that writes.
fn struck(socket: &Socket, piece: &Piece) -> Outcome {
    if needs_hammer().is_err() {
        return Ok(());
    }
    let (first, last) = (piece.offset, piece.offset + piece.bytes - 1);
    let seen = |offset: u64| piece.area.byte(offset).load(Relaxed);
    let before = [seen(first), seen(last)];
    let cookie = socket.get_mr(piece.at(), piece.bytes, RDS_RDMA_READWRITE);
    let cookie = cookie.must("GET_MR for the hammer")?;
    let hammer = Hammer::open().must("opening the hammer")?;
    let chunk = PAGE as u32;
    hammer
        .start(cookie, piece.bytes, chunk)
        .must("starting the hammer")?;
    let end = Instant::now() + PATIENCE;
    while seen(first) == before[0] || seen(last) == before[1] {
        same("is the hammer seen in time", true, Instant::now() < end)?;
        std::thread::yield_now();
    }
    hammer.stop().must("stopping the hammer")?;
    socket.free_mr(cookie, 0).must("FREE_MR")
}

fn touched(area: Area) -> Piece {
    area.touch(1);
    Piece::of(area)
}

fn new(prot: i32, of: Of) -> Result<Area, End> {
    Area::new(PAGES * PAGE, prot, of).must("mmap")
}

pub fn anonymous() -> Result<Piece, End> {
    Ok(touched(new(READ_WRITE, Of::Anonymous)?))
}

pub fn untouched() -> Result<Piece, End> {
    Ok(Piece::of(new(READ_WRITE, Of::Anonymous)?))
}

fn read_only() -> Result<Piece, End> {
    Ok(Piece::of(new(READ, Of::Anonymous)?))
}

fn prot_none() -> Result<Piece, End> {
    let area = new(READ_WRITE, Of::Anonymous)?;
    area.touch(1);
    area.protect(0, area.len(), NONE).must("mprotect")?;
    Ok(Piece::of(area))
}

fn memfd_of(prot: i32, of: fn(&File) -> Of) -> Result<Piece, End> {
    let memfd = area::memfd(PAGES * PAGE, false).must("memfd_create")?;
    let area = new(prot, of(&memfd))?;
    Ok(Piece::with(area, memfd))
}

pub fn memfd() -> Result<Piece, End> {
    memfd_of(READ_WRITE, |file| Of::Shared(file, 0))
}

fn memfd_ro() -> Result<Piece, End> {
    memfd_of(READ, |file| Of::Shared(file, 0))
}

fn memfd_private() -> Result<Piece, End> {
    memfd_of(READ_WRITE, |file| Of::Private(file, 0))
}

fn secret() -> Result<Piece, End> {
    match rdsmr::mem::secret_file() {
        Err(error) => skip(format!("no memfd_secret: {}", describe(&error))),
        Ok(secret) => {
            secret.set_len(PAGES * PAGE).must("ftruncate")?;
            let area = new(READ_WRITE, Of::Shared(&secret, 0))?;
            area.touch(1);
            Ok(Piece::with(area, secret))
        }
    }
}

const PRIVATE: (bool, i32) = (false, READ_WRITE);
const PRIVATE_RO: (bool, i32) = (false, READ);
const SHARED: (bool, i32) = (true, READ_WRITE);
const SHARED_RO: (bool, i32) = (true, READ);

/// The same for all: a file that is on its disk, mapped and read.
fn file(disk: Disk, (shared, prot): (bool, i32), read: i32, write: i32) -> Outcome {
    let volume = volumes::mount(disk)?;
    let make = || {
        let file = volumes::file(&volume, PAGES * PAGE)?;
        let of = if shared { Of::Shared } else { Of::Private };
        let area = new(prot, of(&file, 0))?;
        let seen = area.byte(0).load(Relaxed);
        same("the first byte of the file", volumes::CONTENT, seen)?;
        Ok(Piece::with(area, file))
    };
    row(make, read, write)
}

/// Every process has some: the clock pages of the hypervisor (VM_IO, VM_PFNMAP).
fn device_memory() -> Outcome {
    let smaps = fs::read_to_string("/proc/self/smaps").must("reading smaps")?;
    let mut start = None;
    for line in smaps.lines() {
        let word = line.split([' ', '-']).next().unwrap_or_default();
        if let Ok(address) = u64::from_str_radix(word, 16) {
            start = Some(address);
        }
        let flags: Vec<&str> = line.split(' ').collect();
        if flags[0] == "VmFlags:" && flags.contains(&"io") && flags.contains(&"pf") {
            let (socket, start) = (bound()?, start.unwrap_or_default());
            judge(&socket, start, PAGE, 0, EFAULT)?;
            judge(&socket, start, PAGE, RDS_RDMA_READWRITE, EFAULT)?;
            return Ok(());
        }
    }
    skip("no VM_IO|VM_PFNMAP mapping in this process")
}

fn stack() -> Outcome {
    let room = [1_u8; (PAGES * PAGE) as usize];
    let (socket, at) = (bound()?, room.as_ptr() as u64);
    judge(&socket, at, BYTES, 0, OK)?;
    judge(&socket, at, BYTES, RDS_RDMA_READWRITE, OK)?;
    same(
        "the stack",
        [1; (PAGES * PAGE) as usize],
        std::hint::black_box(room),
    )
}

fn program_text() -> Outcome {
    let (socket, at) = (bound()?, program_text as fn() -> Outcome as usize as u64);
    judge(&socket, at, 100, 0, OK)?;
    judge(&socket, at, 100, RDS_RDMA_READWRITE, EFAULT)?;
    Ok(())
}

/// Anonymous, memfd, and a private file, two pages each.
fn several() -> Result<Piece, End> {
    let memfd = area::memfd(4 * PAGE, false).must("memfd_create")?;
    let area = new(READ_WRITE, Of::Anonymous)?;
    let lay = |page: u64, of| area.overlay(page * PAGE, 2 * PAGE, READ_WRITE, of);
    lay(2, Of::Shared(&memfd, 0)).must("mmap of a memfd")?;
    lay(4, Of::Private(&memfd, 2 * PAGE)).must("mmap of a private file")?;
    Ok(Piece::with(area, memfd))
}

fn several_one_ro() -> Result<Piece, End> {
    let piece = several()?;
    let protect = piece.area.protect(3 * PAGE, PAGE, READ);
    protect.must("mprotect").map(|()| piece)
}

fn several_one_ext4() -> Result<Piece, End> {
    let piece = several()?;
    let volume = volumes::mount(Disk::Ext4)?;
    let file = volumes::file(&volume, PAGE)?;
    let lay = |of| piece.area.overlay(3 * PAGE, PAGE, READ_WRITE, of);
    lay(Of::Shared(&file, 0)).must("mmap of a file")?;
    Ok(Piece {
        _keep: Some(Box::new((piece._keep, file, volume))),
        ..Piece::of(piece.area)
    })
}

fn hole() -> Result<Piece, End> {
    let piece = anonymous()?;
    let torn = piece.area.unmap(3 * PAGE, PAGE);
    torn.must("munmap").map(|()| piece)
}

fn hole_at_end() -> Result<Piece, End> {
    let piece = anonymous()?;
    let torn = piece.area.unmap(5 * PAGE, PAGE);
    torn.must("munmap").map(|()| piece)
}

/// Mapped, but the file is shorter: SIGBUS for the program.
fn behind_eof() -> Result<Piece, End> {
    let memfd = area::memfd(4 * PAGE, false).must("memfd_create")?;
    let area = new(READ_WRITE, Of::Shared(&memfd, 0))?;
    Ok(Piece::with(area, memfd))
}

/// Pages that come one by one from another thread, when somebody wants them.
fn answered() -> Result<Piece, End> {
    let area = new(READ_WRITE, Of::Anonymous)?;
    let faults = match Faults::new() {
        Ok(faults) => faults,
        Err(error) => return skip(format!("no userfaultfd: {}", describe(&error))),
    };
    faults.watch(area.at(0), area.len()).must("watching")?;
    let server = std::thread::spawn(move || {
        while let Ok(Some(page)) = faults.wait(PATIENCE) {
            if faults.answer(page, &[1]).is_err() {
                return;
            }
        }
    });
    Ok(Piece::with(area, server))
}
