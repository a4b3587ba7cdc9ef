// SPDX-License-Identifier: GPL-2.0
//! File systems to map files from.

use crate::check::{fail, skip, Check, End};
use rdsmr::errno::{describe, ENODEV};
use rdsmr::volume::private_mounts;
use rdsmr::Volume;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

#[derive(Clone, Copy, Debug)]
pub enum Disk {
    Tmpfs,
    Ramfs,
    Ext4,
    Xfs,
}

/// What every byte of a new file is.
pub const CONTENT: u8 = 0x5a;

const IMAGE: &str = "/tmp/rds-mr-image";
const IMAGE_BYTES: u64 = 64 << 20;
const MOUNT_POINT: &str = "/tmp/rds-mr-volume";

/// A file system of that kind, for this process and its children; skips where
/// the machine has none.
pub fn mount(disk: Disk) -> Result<Volume, End> {
    private_mounts().must("unshare(CLONE_NEWNS)")?;
    let at = Path::new(MOUNT_POINT);
    match disk {
        Disk::Tmpfs => Volume::mount("tmpfs", "none", at, "").must("mounting a tmpfs"),
        Disk::Ramfs => Volume::mount("ramfs", "none", at, "").must("mounting a ramfs"),
        // Without a journal it is what older ones would make; the driver is ext4's.
        Disk::Ext4 => image("ext4", &["mke2fs", "-F"]),
        // So small, only for a test.
        Disk::Xfs => image("xfs", &["mkfs.xfs", "--unsupported", "-q", "-f"]),
    }
}

fn image(kind: &str, mkfs: &[&str]) -> Result<Volume, End> {
    let file = File::create(IMAGE).must(format!("creating {IMAGE}"))?;
    file.set_len(IMAGE_BYTES).must("ftruncate")?;
    let output = match Command::new(mkfs[0]).args(&mkfs[1..]).arg(IMAGE).output() {
        Ok(output) => output,
        Err(error) => return skip(format!("no {}: {}", mkfs[0], describe(&error))),
    };
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return fail(mkfs.join(" "), "exit status 0", text);
    }
    for module in ["loop", kind] {
        // Built in, or not there: then the mount says so.
        let _ = Command::new("modprobe").arg(module).output();
    }
    let volume = Volume::image(kind, Path::new(IMAGE), Path::new(MOUNT_POINT));
    std::fs::remove_file(IMAGE).must("removing the image")?;
    match volume {
        Err(error) if error.raw_os_error() == Some(ENODEV) => skip(format!("no {kind} here")),
        volume => volume.must(format!("mounting {kind}")),
    }
}

/// A new file with something in it, which has been written to the disk.
pub fn file(volume: &Volume, bytes: u64) -> Result<File, End> {
    let path = volume.path("file");
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(true);
    let mut file = options.open(&path).must(format!("opening {path:?}"))?;
    file.write_all(&vec![CONTENT; bytes as usize])
        .must("writing a file")?;
    file.sync_all().must("fsync")?;
    Ok(file)
}
