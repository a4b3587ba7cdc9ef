// SPDX-License-Identifier: GPL-2.0
//! File systems for a while, seen by this process and its children only.

use crate::check;
use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Mounts of this process become its own, and end with it.
pub fn private_mounts() -> io::Result<()> {
    // SAFETY: takes no pointer.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    call(
        "none",
        Path::new("/"),
        "none",
        libc::MS_REC | libc::MS_PRIVATE,
        "",
    )
}

/// A mounted file system; its end is that of the mount.
#[derive(Debug)]
pub struct Volume(PathBuf);

impl Volume {
    pub fn mount(kind: &str, source: &str, at: &Path, data: &str) -> io::Result<Self> {
        fs::create_dir_all(at)?;
        call(source, at, kind, 0, data)?;
        Ok(Volume(at.to_path_buf()))
    }

    /// What mkfs has made in a file, over a loop device that ends with the mount.
    ///
    /// Not by `mount -o loop`: it has the device open for writing meanwhile, and
    /// not every kernel mounts what somebody else may write to.
    pub fn image(kind: &str, image: &Path, at: &Path) -> io::Result<Self> {
        let device = losetup(&["-f".as_ref()])?;
        let device = device.trim();
        losetup(&[device.as_ref(), image.as_ref()])?;
        let volume = Self::mount(kind, device, at, "");
        // While it is mounted: its last user takes the device away.
        losetup(&["-d".as_ref(), device.as_ref()])?;
        volume
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Ok(at) = CString::new(self.0.to_string_lossy().as_bytes()) {
            // SAFETY: a terminated string.
            unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
        }
    }
}

/// losetup(8), and what it prints.
fn losetup(args: &[&OsStr]) -> io::Result<String> {
    let output = Command::new("losetup").args(args).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().to_string();
    Err(io::Error::other(format!("losetup {args:?}: {text}")))
}

fn call(source: &str, at: &Path, kind: &str, flags: u64, data: &str) -> io::Result<()> {
    let at = at.to_string_lossy();
    let text = |text: &str| CString::new(text).map_err(io::Error::from);
    let (source, at, kind, data) = (text(source)?, text(&at)?, text(kind)?, text(data)?);
    // SAFETY: terminated strings.
    check(unsafe {
        libc::mount(
            source.as_ptr(),
            at.as_ptr(),
            kind.as_ptr(),
            flags,
            data.as_ptr().cast(),
        )
    })?;
    Ok(())
}
