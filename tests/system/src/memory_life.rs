// SPDX-License-Identifier: GPL-2.0
//! What can happen to memory while a key for it lives: the key keeps its pages,
//! whatever becomes of the addresses, and gives all of them back when it dies.
//!
//! Which page that is the page tables say: as long as an address shows the same
//! page frame as when the key was made, the program and the HCA see one memory.

use crate::check::{apart, fail, same, Check, End, Outcome};
use crate::huge;
use crate::memory_kinds::{self as kinds, pages, Piece};
use crate::runner::Test;
use crate::site::{alive, bound, refused, Holdings};
use crate::volumes::{self, Disk};
use rdsmr::abi::RDS_RDMA_READWRITE;
use rdsmr::area::{self, Of};
use rdsmr::mem::{READ, READ_WRITE};
use rdsmr::{stat, Area, Socket, PAGE};
use std::sync::atomic::Ordering::Relaxed;

pub const TESTS: &[Test] = &[
    Test::new("memory.munmap_of_anonymous", || munmap(kinds::anonymous)),
    Test::new("memory.munmap_of_huge_pages", || munmap(huge::thp)),
    Test::new("memory.munmap_of_hugetlb", || munmap(huge::private)),
    Test::new("memory.munmap_of_memfd", || munmap(kinds::memfd)),
    Test::new("memory.munmap_and_close", munmap_and_close),
    Test::new("memory.mremap_of_anonymous", || mremap(kinds::anonymous)),
    Test::new("memory.mremap_of_huge_pages", || mremap(huge::thp)),
    Test::new("memory.mremap_of_hugetlb", || mremap(huge::private)),
    Test::new("memory.mremap_of_memfd", || mremap(kinds::memfd)),
    Test::new("memory.dontneed_of_anonymous", || {
        dontneed(kinds::anonymous, false)
    }),
    Test::new("memory.dontneed_of_huge_pages", || {
        dontneed(huge::thp, false)
    }),
    Test::new("memory.dontneed_of_memfd", || dontneed(kinds::memfd, true)),
    Test::new("memory.truncate_of_memfd", truncate),
    Test::new("memory.fork_with_anonymous", || {
        fork(kinds::anonymous, false)
    }),
    Test::new("memory.fork_with_huge_pages", || fork(huge::thp, false)),
    Test::new("memory.fork_with_hugetlb", || fork(huge::private, false)),
    Test::new("memory.fork_with_memfd", || fork(kinds::memfd, true)),
    Test::new("memory.fork_with_hugetlb_shared", || {
        fork(huge::shared, true)
    }),
    Test::new("memory.first_write_after_a_key_for_reading", first_write),
    Test::new("memory.first_write_to_a_file_after_it", first_write_to_file),
];

/// A piece of memory with a key that lives.
struct Live {
    socket: Socket,
    piece: Piece,
    before: Holdings,
    pages: u64,
    cookie: u64,
}

impl Live {
    fn new(piece: Piece, flags: u64) -> Result<Self, End> {
        let (socket, before) = (bound()?, Holdings::now()?);
        let got = socket.get_mr(piece.at(), piece.bytes, flags);
        let pages = pages(piece.at(), piece.bytes);
        let live = Live {
            cookie: got.must("GET_MR")?,
            socket,
            piece,
            before,
            pages,
        };
        live.lives("at first")?;
        Ok(live)
    }

    fn writable(make: fn() -> Result<Piece, End>) -> Result<Self, End> {
        Self::new(make()?, RDS_RDMA_READWRITE)
    }

    /// The HCA reaches both ends, and the pages are still pinned and charged.
    fn lives(&self, when: &str) -> Outcome {
        let what = format!("the key {when}");
        self.before.plus(self.pages).are(&what)?;
        alive(&self.socket, self.cookie, 0, &what)?;
        alive(&self.socket, self.cookie, self.piece.bytes - 1, &what)
    }

    fn dies(&self) -> Outcome {
        self.socket.free_mr(self.cookie, 0).must("FREE_MR")?;
        self.before.are("after FREE_MR")?;
        refused(&self.socket, self.cookie, 0, "the freed key")
    }

    fn frames(&self) -> Result<Vec<Option<u64>>, End> {
        frames(&self.piece.area, self.piece.offset, self.pages)
    }
}

fn frames(area: &Area, offset: u64, pages: u64) -> Result<Vec<Option<u64>>, End> {
    let frame = |page: u64| stat::frame(area.at(offset) + page * PAGE).must("reading pagemap");
    let frames: Vec<_> = (0..pages).map(frame).collect::<Result<_, _>>()?;
    if frames.contains(&Some(0)) {
        return fail(
            "page frames in pagemap",
            "numbers",
            "zeros: no right to see them",
        );
    }
    Ok(frames)
}

/// The key lives on without any address for its memory.
fn munmap(make: fn() -> Result<Piece, End>) -> Outcome {
    let live = Live::writable(make)?;
    let area = &live.piece.area;
    area.unmap(0, area.len()).must("munmap")?;
    live.lives("after munmap")?;
    live.dies()
}

fn munmap_and_close() -> Outcome {
    let prober = bound()?;
    let live = Live::writable(kinds::anonymous)?;
    let area = &live.piece.area;
    area.unmap(0, area.len()).must("munmap")?;
    live.lives("after munmap")?;
    drop(live.socket);
    live.before.are("after the close")?;
    refused(&prober, live.cookie, 0, "the key of the closed socket")
}

fn mremap(make: fn() -> Result<Piece, End>) -> Outcome {
    let mut live = Live::writable(make)?;
    let (old, frames) = (live.piece.at(), live.frames()?);
    live.piece.area = live.piece.area.moved().must("mremap")?;
    same("has it moved", true, live.piece.at() != old)?;
    live.lives("after mremap")?;
    same("page frames after mremap", &frames, &live.frames()?)?;
    live.piece.area.touch(3);
    same("page frames after a write", &frames, &live.frames()?)?;
    live.dies()
}

/// Private memory gets new pages, and the key keeps the old ones. A file's pages
/// are the file's.
fn dontneed(make: fn() -> Result<Piece, End>, shared: bool) -> Outcome {
    let live = Live::writable(make)?;
    let area = &live.piece.area;
    area.touch(2);
    let old = live.frames()?;
    area.advise(0, area.len(), area::DONTNEED).must("madvise")?;
    live.lives("after MADV_DONTNEED")?;
    let seen = area.byte(live.piece.offset / PAGE * PAGE).load(Relaxed);
    same(
        "the first byte afterwards",
        if shared { 2 } else { 0 },
        seen,
    )?;
    area.touch(3);
    let new = live.frames()?;
    if shared {
        same("page frames afterwards", &old, &new)?;
    } else {
        let kept = new.iter().filter(|frame| old.contains(frame)).count();
        same("pages that address and key still share", 0, kept)?;
    }
    live.lives("after the program got other pages")?;
    live.dies()
}

/// The file loses its pages, the key does not.
fn truncate() -> Outcome {
    let memfd = area::memfd(8 * PAGE, false).must("memfd_create")?;
    let area = Area::new(8 * PAGE, READ_WRITE, Of::Shared(&memfd, 0)).must("mmap")?;
    area.touch(1);
    let live = Live::new(Piece::of(area), RDS_RDMA_READWRITE)?;
    memfd.set_len(0).must("ftruncate")?;
    live.lives("after its file was truncated")?;
    memfd.set_len(8 * PAGE).must("ftruncate")?;
    live.piece.area.touch(2);
    live.lives("after its file got new pages")?;
    live.dies()
}

/// Copy on write copies for the child, never for the parent: else the HCA would
/// go on with a page that the parent does not see any more.
fn fork(make: fn() -> Result<Piece, End>, shared: bool) -> Outcome {
    let live = Live::writable(make)?;
    let (area, first) = (&live.piece.area, live.piece.offset / PAGE * PAGE);
    let frames = live.frames()?;
    apart("a child that writes", |_| {
        same(
            "VmPin of the child",
            0,
            stat::own_vm_pin_kib().must("VmPin")?,
        )?;
        area.touch(7);
        let own = live.frames()?;
        let common = own.iter().filter(|frame| frames.contains(frame)).count();
        let expected = if shared { frames.len() } else { 0 };
        same("page frames common with the parent", expected, common)
    })?;
    let seen = area.byte(first).load(Relaxed);
    same("what the parent sees", if shared { 7 } else { 1 }, seen)?;
    same("the parent's page frames", &frames, &live.frames()?)?;
    live.lives("after a child has written and ended")?;

    // And the other way round: the parent writes while a child has it mapped.
    let child = crate::check::helper("a child that waits", |link| {
        link.meet().must("meeting the parent")?;
        link.meet().must("meeting the parent").map(drop)
    })?;
    child.link().meet().must("meeting the child")?;
    area.touch(8);
    same("the parent's page frames", &frames, &live.frames()?)?;
    live.lives("while a child has its memory mapped")?;
    child.link().meet().must("meeting the child")?;
    crate::check::join("a child that waits", child)?;
    live.dies()
}

/// A key for reading of memory that nobody has touched must not be one for the
/// common page of zeros: the HCA would never see what is written later.
fn first_write() -> Outcome {
    let live = Live::new(kinds::untouched()?, 0)?;
    written_later(&live)
}

fn first_write_to_file() -> Outcome {
    let volume = volumes::mount(Disk::Ext4)?;
    let file = volumes::file(&volume, 8 * PAGE)?;
    let area = Area::new(8 * PAGE, READ, Of::Private(&file, 0)).must("mmap")?;
    let live = Live::new(Piece::of(area), 0)?;
    let area = &live.piece.area;
    area.protect(0, area.len(), READ_WRITE).must("mprotect")?;
    written_later(&live)
}

fn written_later(live: &Live) -> Outcome {
    let frames = live.frames()?;
    same(
        "pages without a frame under a key",
        false,
        frames.contains(&None),
    )?;
    live.piece.area.touch(9);
    same("page frames after a first write", &frames, &live.frames()?)?;
    live.lives("after a first write")?;
    live.dies()
}
