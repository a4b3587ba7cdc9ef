// SPDX-License-Identifier: GPL-2.0
//! Files of the kernel that take a word: in debugfs, in a control group.

use std::fs;
use std::io;
use std::path::Path;

/// Write `text`; the error says what and where.
pub fn write(path: impl AsRef<Path>, text: &str) -> io::Result<()> {
    let path = path.as_ref();
    fs::write(path, text).map_err(|error| {
        let text = format!("writing \"{text}\" to {}: {error}", path.display());
        io::Error::new(error.kind(), text)
    })
}

/// Write several files of `dir`, in this order.
pub fn write_all(dir: impl AsRef<Path>, all: &[(&str, &str)]) -> io::Result<()> {
    all.iter()
        .try_for_each(|(name, text)| write(dir.as_ref().join(name), text))
}
