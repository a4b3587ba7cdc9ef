// SPDX-License-Identifier: GPL-2.0
//! What the kernel says while something is tried.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// Severe enough to be an error.
pub const ERROR: u32 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// 0 (emergency) to 7 (debug).
    pub level: u32,
    pub text: String,
}

#[derive(Debug)]
pub struct Log(File);

impl Log {
    /// Everything from now on.
    pub fn from_now() -> io::Result<Self> {
        let mut options = File::options();
        let mut file = options
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg")?;
        file.seek(SeekFrom::End(0))?;
        Ok(Log(file))
    }

    /// What came since.
    pub fn lines(&mut self) -> io::Result<Vec<Line>> {
        let (mut lines, mut record) = (Vec::new(), [0; 8192]);
        loop {
            match self.0.read(&mut record) {
                Ok(len) => lines.extend(parse(&String::from_utf8_lossy(&record[..len]))),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(lines),
                // Some lines were overwritten before they could be read.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// `priority,sequence,time,flags;text`, and lines of its dictionary behind it.
fn parse(record: &str) -> Option<Line> {
    let (head, text) = record.split_once(';')?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    Some(Line {
        level: priority & 7,
        text: text.lines().next()?.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_its_level_and_its_text() {
        let line = parse("11,339,5140900,-;rds_mr: no; not now\n SUBSYSTEM=x\n").unwrap();
        assert_eq!(
            (line.level, line.text.as_str()),
            (ERROR, "rds_mr: no; not now")
        );
        assert_eq!(parse("junk"), None);
    }
}
