// SPDX-License-Identifier: GPL-2.0
//! Kernel functions that return something else than they would: debugfs
//! `fail_function`, for functions marked ALLOW_ERROR_INJECTION.

use std::fs;
use std::io;
use std::path::Path;

const DIR: &str = "/sys/kernel/debug/fail_function";

/// Whether the running kernel can do it.
pub fn is_there() -> bool {
    Path::new(DIR).join("inject").exists()
}

fn set(name: &str, value: &str) -> io::Result<()> {
    fs::write(Path::new(DIR).join(name), value)
}

/// A function that fails; it works again when this is dropped.
#[derive(Debug)]
pub struct Failing(());

impl Failing {
    /// Let `function` return `value` every time, whoever calls it. One function
    /// at a time.
    pub fn always(function: &str, value: i64) -> io::Result<Self> {
        stop()?;
        set("verbose", "0")?;
        set("task-filter", "N")?;
        set("probability", "100")?;
        set("interval", "1")?;
        set("times", "-1")?;
        set("inject", function)?;
        let failing = Failing(());
        set(&format!("{function}/retval"), &value.to_string())?;
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
        set("probability", "0")?;
        set("inject", "\n")?;
    }
    Ok(())
}
