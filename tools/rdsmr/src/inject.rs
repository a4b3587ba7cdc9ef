// SPDX-License-Identifier: GPL-2.0
//! Kernel functions that return something else than they would: debugfs
//! `fail_function`, for functions marked ALLOW_ERROR_INJECTION.

use crate::attribute::write_all;
use std::fs;
use std::io;
use std::path::Path;

const DIR: &str = "/sys/kernel/debug/fail_function";

/// Whether the running kernel can do it.
pub fn is_there() -> bool {
    Path::new(DIR).join("inject").exists()
}

/// Let `function` return `value` in so many of a hundred calls, whoever makes
/// them, until [`stop`]. One function at a time.
pub fn fail(function: &str, value: i64, percent: u64) -> io::Result<()> {
    stop()?;
    write_all(DIR, &[("inject", function)])?;
    write_all(
        Path::new(DIR).join(function),
        // The file takes the digits of 64 bits.
        &[("retval", &format!("{:#x}", value as u64))],
    )?;
    write_all(
        DIR,
        &[
            ("interval", "1"),
            ("times", "-1"),
            ("verbose", "0"),
            ("task-filter", "N"),
            ("probability", &percent.to_string()),
        ],
    )
}

/// A function that always fails; it works again when this is dropped.
#[derive(Debug)]
pub struct Failing(());

impl Failing {
    pub fn always(function: &str, value: i64) -> io::Result<Self> {
        let failing = Failing(());
        fail(function, value, 100)?;
        Ok(failing)
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        let _ = stop();
    }
}

/// Let every function work again.
pub fn stop() -> io::Result<()> {
    if is_there() {
        write_all(DIR, &[("probability", "0"), ("inject", "\n")])?;
    }
    Ok(())
}

/// Memory that runs out on purpose: what the kernel says of it between these two
/// lines of its log is no defect (scripts/guest/splats.awk).
const STARVING: &str = "rds_mr tests: allocations fail on purpose";
const FED: &str = "rds_mr tests: allocations fail no more";

pub fn say_starving() -> io::Result<()> {
    fs::write("/dev/kmsg", STARVING)
}

pub fn say_fed() -> io::Result<()> {
    fs::write("/dev/kmsg", FED)
}
