// SPDX-License-Identifier: GPL-2.0
//! File systems for a while, seen by this process and its children only.

use crate::check;
use std::ffi::CString;
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

    /// What mkfs has made in a file. mount(8) finds a loop device for it, which
    /// goes away with the mount.
    pub fn image(kind: &str, image: &Path, at: &Path) -> io::Result<Self> {
        fs::create_dir_all(at)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", kind, "-o", "loop"]).arg(image).arg(at);
        let output = mount.output()?;
        if output.status.success() {
            return Ok(Volume(at.to_path_buf()));
        }
        let text = String::from_utf8_lossy(&output.stderr).trim().to_string();
        Err(io::Error::other(text))
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
