// SPDX-License-Identifier: GPL-2.0
//! Huge pages, from where they come.

use crate::check::{skip, Check, End};
use crate::memory_kinds::Piece;
use rdsmr::area::{self, Of, HUGE};
use rdsmr::mem::READ_WRITE;
use rdsmr::{Area, PAGE};
use std::any::Any;
use std::fs;

/// From the end of one huge page to the start of the next.
fn across(area: Area, keep: impl Any) -> Piece {
    area.touch(1);
    let mut piece = Piece::with(area, keep);
    piece.offset = HUGE - 2 * PAGE + 100;
    piece
}

fn huge_kib() -> Result<u64, End> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").must("reading smaps_rollup")?;
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("AnonHugePages:"));
    let kib = kib.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok());
    kib.map_or_else(|| skip("smaps_rollup has no AnonHugePages"), Ok)
}

pub fn thp() -> Result<Piece, End> {
    let area = Area::aligned(2 * HUGE, HUGE).must("mmap")?;
    let before = huge_kib()?;
    area.advise(0, 2 * HUGE, area::HUGEPAGE)
        .must("madvise(MADV_HUGEPAGE)")?;
    let piece = across(area, ());
    let got = huge_kib()?.saturating_sub(before);
    if got < 4096 {
        return skip(format!("only {got} KiB of 4096 came as huge pages"));
    }
    Ok(piece)
}

/// Huge pages of the administrator, given back at the end.
struct Reserved(String);

const NR_HUGEPAGES: &str = "/proc/sys/vm/nr_hugepages";

impl Reserved {
    /// Two to use, and as many for a fork that copies them.
    fn four() -> Result<Self, End> {
        let Ok(before) = fs::read_to_string(NR_HUGEPAGES) else {
            return skip("the kernel has no huge pages");
        };
        fs::write(NR_HUGEPAGES, "4").must("writing nr_hugepages")?;
        let reserved = Reserved(before);
        let got = fs::read_to_string(NR_HUGEPAGES).must("reading nr_hugepages")?;
        match got.trim() {
            "4" => Ok(reserved),
            got => skip(format!("the kernel found only {got} of 4 huge pages")),
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let _ = fs::write(NR_HUGEPAGES, &self.0);
    }
}

pub fn private() -> Result<Piece, End> {
    let reserved = Reserved::four()?;
    let area = Area::new(2 * HUGE, READ_WRITE, Of::HugeTlb).must("mmap(MAP_HUGETLB)")?;
    Ok(across(area, reserved))
}

pub fn shared() -> Result<Piece, End> {
    let reserved = Reserved::four()?;
    let memfd = area::memfd(2 * HUGE, true).must("memfd_create(MFD_HUGETLB)")?;
    let area = Area::new(2 * HUGE, READ_WRITE, Of::Shared(&memfd, 0)).must("mmap")?;
    Ok(across(area, (memfd, reserved)))
}
