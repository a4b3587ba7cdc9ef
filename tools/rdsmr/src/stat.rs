// SPDX-License-Identifier: GPL-2.0
//! What the kernel itself counts.

use crate::mem::PAGE;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::process::Command;

fn bad(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Pages that somebody holds pinned now, in the whole system. The two counters
/// are kept per CPU and folded now and then; without the refresh they lie.
pub fn pins() -> io::Result<i64> {
    fs::write("/proc/sys/vm/stat_refresh", "1")?;
    pins_in(&fs::read_to_string("/proc/vmstat")?)
}

fn pins_in(vmstat: &str) -> io::Result<i64> {
    let field = |name: &str| {
        vmstat
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse::<i64>().ok())
            .ok_or_else(|| bad(format!("/proc/vmstat has no number for {}", name.trim())))
    };
    Ok(field("nr_foll_pin_acquired ")? - field("nr_foll_pin_released ")?)
}

/// `VmPin` of a process. Do not ask for a process that is about to be killed:
/// reading it holds its memory for a moment.
pub fn vm_pin_kib(pid: i32) -> io::Result<u64> {
    let path = format!("/proc/{pid}/status");
    vm_pin_in(&fs::read_to_string(&path)?).ok_or_else(|| bad(format!("{path} has no VmPin line")))
}

fn vm_pin_in(status: &str) -> Option<u64> {
    let rest = status
        .lines()
        .find_map(|line| line.strip_prefix("VmPin:"))?;
    rest.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// `VmPin` of the caller.
pub fn own_vm_pin_kib() -> io::Result<u64> {
    vm_pin_kib(std::process::id() as i32)
}

/// The page frame behind an address of the caller, if there is one. Root only.
pub fn frame(addr: u64) -> io::Result<Option<u64>> {
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    let mut entry = [0; 8];
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entry, addr / PAGE * 8)?;
    let entry = u64::from_ne_bytes(entry);
    Ok((entry & PRESENT != 0).then_some(entry & FRAME))
}

/// A counter of the module, by its name in `rds_mr/stats` of debugfs.
pub fn counter(name: &str) -> io::Result<u64> {
    counter_in(&fs::read_to_string("/sys/kernel/debug/rds_mr/stats")?, name)
}

fn counter_in(stats: &str, name: &str) -> io::Result<u64> {
    stats
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
        .ok_or_else(|| bad(format!("rds_mr/stats has no number for {name}")))
}

/// MRs that the HCAs hold, idle ones and those of user space too, by the count of
/// rdma(8).
pub fn mrs() -> io::Result<u64> {
    let output = Command::new("rdma").args(["resource", "show"]).output()?;
    Ok(mrs_in(&String::from_utf8_lossy(&output.stdout)))
}

fn mrs_in(text: &str) -> u64 {
    let words: Vec<&str> = text.split_whitespace().collect();
    words
        .windows(2)
        .filter(|pair| pair[0] == "mr")
        .filter_map(|pair| pair[1].parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    #[test]
    fn mrs_are_added_up() {
        let text = "0: rxe0: pd 1 cq 0 qp 1 cm_id 0 mr 12 ctx 0 srq 0\n1: rxe1: pd 0 mr 3 ctx 0\n";
        assert_eq!(super::mrs_in(text), 15);
        assert_eq!(super::mrs_in(""), 0);
    }

    #[test]
    fn counters_have_whole_names() {
        let stats = "leaked 1\nleaked_pages 12\n";
        assert_eq!(super::counter_in(stats, "leaked").unwrap(), 1);
        assert_eq!(super::counter_in(stats, "leaked_pages").unwrap(), 12);
        assert!(super::counter_in(stats, "leak").is_err());
    }

    use super::*;

    #[test]
    fn pins_are_acquired_minus_released() {
        let text = "nr_foll_pin_acquired 120\nnr_foll_pin_released 100\nother 7\n";
        assert_eq!(pins_in(text).unwrap(), 20);
        assert!(pins_in("nr_foll_pin_acquired 1\n").is_err());
    }

    #[test]
    fn a_touched_page_has_a_frame() {
        let map = crate::Mapping::anonymous(PAGE).unwrap();
        assert_eq!(frame(map.at(0)).unwrap(), None);
        map.fill(1);
        assert!(frame(map.at(0)).unwrap().is_some());
    }

    #[test]
    fn vm_pin_is_read_from_its_line() {
        assert_eq!(
            vm_pin_in("VmLck:\t 4 kB\nVmPin:\t    1028 kB\n"),
            Some(1028)
        );
        assert_eq!(vm_pin_in("VmLck:\t 4 kB\n"), None);
    }
}
