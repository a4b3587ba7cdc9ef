// SPDX-License-Identifier: GPL-2.0
//! What the kernel does, in order: kprobe events of tracefs.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const TRACING: &str = "/sys/kernel/tracing";
const GROUP: &str = "rdsmr";

/// Whether the running kernel can do it.
pub fn is_there() -> bool {
    Path::new(TRACING).join("kprobe_events").exists()
}

/// One call, or return, of a probed function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its place in the order of all events.
    pub at: u64,
    /// The thread that was running.
    pub thread: i32,
    pub name: String,
    pub fields: HashMap<String, u64>,
}

/// Probes that are set; they go when this is dropped.
#[derive(Debug)]
pub struct Probes {
    buffer: PathBuf,
}

impl Probes {
    /// Each one is a line of `kprobe_events` without its group: `p:NAME FUNCTION
    /// ARGS` for calls, `r:NAME FUNCTION` for returns.
    pub fn set(definitions: &[&str]) -> io::Result<Self> {
        let probes = Probes {
            buffer: Path::new(TRACING).join("instances").join(GROUP),
        };
        probes.clear();
        fs::create_dir(&probes.buffer)?;
        for definition in definitions {
            let line = definition.replacen(':', &format!(":{GROUP}/"), 1);
            append("kprobe_events", &line)
                .map_err(|error| io::Error::other(format!("{definition}: {error}")))?;
        }
        // The order of events, and not their time.
        fs::write(probes.buffer.join("trace_clock"), "counter")?;
        fs::write(probes.buffer.join("events").join(GROUP).join("enable"), "1")?;
        Ok(probes)
    }

    /// All events so far, in order.
    pub fn events(&self) -> io::Result<Vec<Event>> {
        let text = fs::read_to_string(self.buffer.join("trace"))?;
        let lost = text.lines().any(|line| line.contains("LOST"));
        if lost {
            return Err(io::Error::other("the trace buffer has lost events"));
        }
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let mut events: Vec<Event> = lines.filter_map(parse).collect();
        events.sort_by_key(|event| event.at);
        Ok(events)
    }

    fn clear(&self) {
        let events = self.buffer.join("events").join(GROUP).join("enable");
        let _ = fs::write(events, "0");
        let _ = fs::remove_dir(&self.buffer);
        let _ = append("kprobe_events", &format!("-:{GROUP}/"));
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.clear();
    }
}

fn append(file: &str, line: &str) -> io::Result<()> {
    let mut file = fs::File::options()
        .append(true)
        .open(Path::new(TRACING).join(file))?;
    file.write_all(line.as_bytes())
}

/// `   command-123   [001] d..1.  4711: name: (function+0x0/0x10) field=0x1 ...`
fn parse(line: &str) -> Option<Event> {
    let (task, rest) = line.split_once(" [")?;
    let (_, thread) = task.trim_end().rsplit_once('-')?;
    let (head, tail) = rest.split_once(": ")?;
    let at = head.split_whitespace().last()?.parse().ok()?;
    let (name, fields) = tail.split_once(": ")?;
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    let field = |word: &str| {
        let (key, value) = word.split_once('=')?;
        Some((key.to_string(), number(value)?))
    };
    Some(Event {
        at,
        thread: thread.parse().ok()?,
        name: name.trim().to_string(),
        fields: fields.split_whitespace().filter_map(field).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_understood() {
        let line = "   my prog-1-4711    [001] d..2.  99: dereg: (ib_dereg_mr_user+0x0/0x60) rkey=0x1f n=3";
        let event = parse(line).unwrap();
        assert_eq!((event.at, event.thread, &*event.name), (99, 4711, "dereg"));
        assert_eq!(event.fields["rkey"], 0x1f);
        assert_eq!(event.fields["n"], 3);
    }

    #[test]
    fn other_lines_are_not() {
        assert_eq!(parse("# tracer: nop"), None);
        assert_eq!(parse(""), None);
    }
}
