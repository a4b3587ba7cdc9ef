// SPDX-License-Identifier: GPL-2.0
//! Loading and unloading the module itself.

use crate::check;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub const PRODUCTION: &str = "rds_mr";
pub const TEST: &str = "rds_mr_kunit";

/// `MODULE_INIT_COMPRESSED_FILE` of `<linux/module.h>`.
const COMPRESSED: i32 = 4;

/// A socket's last reference to the module is dropped after an RCU grace period.
const UNLOAD_LIMIT: Duration = Duration::from_secs(10);

fn sysfs(name: &str) -> PathBuf {
    Path::new("/sys/module").join(name)
}

pub fn is_loaded(name: &str) -> bool {
    // Built-in code has a directory there, too, but no state.
    sysfs(name).join("initstate").exists()
}

/// Which of the two modules owns the address family now.
pub fn current() -> Option<&'static str> {
    [TEST, PRODUCTION].into_iter().find(|name| is_loaded(name))
}

/// A parameter's value, as a load with it would write it.
pub fn param(module: &str, name: &str) -> io::Result<String> {
    let text = fs::read_to_string(sysfs(module).join("parameters").join(name))?;
    Ok(text.trim_end().to_string())
}

/// Everything the module was loaded with, as `name=value ...`.
pub fn params(module: &str) -> io::Result<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(sysfs(module).join("parameters"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        all.push(format!("{name}={}", param(module, &name)?));
    }
    all.sort();
    Ok(all.join(" "))
}

/// The same list with some parameters replaced.
pub fn with_params(all: &str, changes: &str) -> String {
    let name = |pair: &str| pair.split('=').next().unwrap_or_default().to_string();
    let changed: Vec<String> = changes.split_whitespace().map(name).collect();
    let kept = all
        .split_whitespace()
        .filter(|pair| !changed.contains(&name(pair)));
    kept.chain(changes.split_whitespace())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Where the file of a module is: next to the others of this project, or where
/// the running kernel keeps its own.
pub fn find(name: &str) -> Option<PathBuf> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let tree = Path::new("/lib/modules").join(release.trim());
    let ours = std::env::var_os("RDS_MR_MODULE_DIR").map(PathBuf::from);
    ours.into_iter()
        .chain([PathBuf::from("/lib/rds_mr"), tree])
        .find_map(|dir| find_below(&dir, name))
}

fn find_below(dir: &Path, name: &str) -> Option<PathBuf> {
    let mut dirs = Vec::new();
    for entry in fs::read_dir(dir).ok()?.flatten() {
        let path = entry.path();
        let file = entry.file_name().to_string_lossy().replace('-', "_");
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            dirs.push(path);
        } else if file
            .strip_prefix(name)
            .is_some_and(|rest| rest == ".ko" || rest == ".ko.xz")
        {
            return Some(path);
        }
    }
    dirs.iter().find_map(|dir| find_below(dir, name))
}

pub fn insert(path: &Path, params: &str) -> io::Result<()> {
    let compressed = path.extension().is_some_and(|suffix| suffix == "xz");
    let flags = if compressed { COMPRESSED } else { 0 };
    let file = File::open(path)?;
    let params = CString::new(params)?;
    // SAFETY: an open file and a terminated string.
    check(unsafe {
        libc::syscall(
            libc::SYS_finit_module,
            file.as_raw_fd(),
            params.as_ptr(),
            flags,
        )
    })?;
    Ok(())
}

/// One attempt; EAGAIN while somebody uses the module.
pub fn try_remove(name: &str) -> io::Result<()> {
    let name = CString::new(name)?;
    // SAFETY: a terminated string.
    check(unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) })?;
    Ok(())
}

/// Remove a module that nobody uses any more.
pub fn remove(name: &str) -> io::Result<()> {
    let end = Instant::now() + UNLOAD_LIMIT;
    loop {
        match try_remove(name) {
            Err(error) if is_in_use(&error) && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

pub fn is_in_use(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_replace_what_was_there() {
        let all = "mr_pool=64 proof=auto strict_access=Y";
        assert_eq!(
            with_params(all, "proof=inv"),
            "mr_pool=64 strict_access=Y proof=inv"
        );
        assert_eq!(with_params(all, ""), all);
        assert_eq!(with_params("", "a=1 b=2"), "a=1 b=2");
    }

    #[test]
    fn modules_are_found_below_a_directory() {
        let dir = std::env::temp_dir().join(format!("rdsmr-kmod-{}", std::process::id()));
        fs::create_dir_all(dir.join("kernel/net")).unwrap();
        fs::write(dir.join("kernel/net/some-name.ko.xz"), "").unwrap();
        fs::write(dir.join("kernel/net/some_name_2.ko"), "").unwrap();
        let found = find_below(&dir, "some_name");
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(found, Some(dir.join("kernel/net/some-name.ko.xz")));
    }
}
