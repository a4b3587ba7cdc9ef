// SPDX-License-Identifier: GPL-2.0
//! Programs: lists of typed calls, and their text form.
//!
//! A call is one line, `name field=value ...`. The type of a field says which
//! values are interesting; any other can stand there, too.

use rdsmr::abi::*;

/// What a field means, and so what may stand in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A descriptor of the program, by its place in a table.
    Slot,
    /// A cookie that a GET_MR of the program got, by its place in a table.
    Cookie,
    /// An address: a region of [`REGIONS`] and an offset.
    Addr,
    /// The name of a socket option.
    Option,
    Level,
    Command,
    /// The length of a buffer.
    Len,
    /// A count of bytes to register.
    Bytes,
    Flags,
    /// A small number, such as a choice among ways to do it.
    Small,
    /// An address of [`crate::space::IPS`].
    Ip,
    Family,
    Any,
}

pub struct Op {
    pub name: &'static str,
    pub fields: &'static [(&'static str, Kind)],
}

const fn op(name: &'static str, fields: &'static [(&'static str, Kind)]) -> Op {
    Op { name, fields }
}

use Kind::*;

/// Every call there is. Programs refer to them by place.
pub const OPS: &[Op] = &[
    op("socket", &[("s", Slot), ("type", Small), ("proto", Small)]),
    op("open", &[("s", Slot), ("ip", Ip)]),
    op("close", &[("s", Slot)]),
    op("dup", &[("s", Slot), ("to", Slot)]),
    op("bind", NAME),
    op("connect", NAME),
    op(
        "getname",
        &[
            ("s", Slot),
            ("peer", Small),
            ("at", Addr),
            ("len", Len),
            ("len_at", Addr),
        ],
    ),
    op(
        "set",
        &[
            ("s", Slot),
            ("level", Level),
            ("opt", Option),
            ("at", Addr),
            ("len", Len),
            ("value", Any),
        ],
    ),
    op(
        "get",
        &[
            ("s", Slot),
            ("level", Level),
            ("opt", Option),
            ("at", Addr),
            ("len", Len),
            ("len_at", Addr),
        ],
    ),
    op(
        "get_mr",
        &[
            ("s", Slot),
            ("addr", Addr),
            ("bytes", Bytes),
            ("cookie_at", Addr),
            ("flags", Flags),
            ("at", Addr),
            ("len", Len),
            ("dest", Small),
            ("keep", Cookie),
        ],
    ),
    op(
        "free_mr",
        &[
            ("s", Slot),
            ("cookie", Cookie),
            ("xor", Any),
            ("flags", Flags),
            ("at", Addr),
            ("len", Len),
        ],
    ),
    op(
        "quota",
        &[
            ("s", Slot),
            ("keys", Any),
            ("pages", Any),
            ("flags", Flags),
            ("at", Addr),
            ("len", Len),
            ("ioctl", Small),
        ],
    ),
    op(
        "probe",
        &[
            ("s", Slot),
            ("cookie", Cookie),
            ("xor", Any),
            ("offset", Bytes),
            ("flags", Flags),
            ("at", Addr),
        ],
    ),
    op(
        "ioctl",
        &[("s", Slot), ("cmd", Command), ("at", Addr), ("value", Any)],
    ),
    op(
        "send",
        &[("s", Slot), ("at", Addr), ("len", Len), ("flags", Flags)],
    ),
    op(
        "recv",
        &[("s", Slot), ("at", Addr), ("len", Len), ("flags", Flags)],
    ),
    op("poll", &[("s", Slot), ("events", Any)]),
    op("misc", &[("s", Slot), ("what", Small)]),
    op("map", &[("addr", Addr), ("pages", Small), ("how", Small)]),
    op("churn", &[("addr", Addr), ("pages", Small)]),
    op("still", &[]),
    op("fork", &[("what", Small), ("s", Slot), ("cookie", Cookie)]),
    op("race", &[]),
];

const NAME: &[(&str, Kind)] = &[
    ("s", Slot),
    ("family", Family),
    ("ip", Ip),
    ("port", Any),
    ("scope", Small),
    ("at", Addr),
    ("len", Len),
];

pub const SLOTS: u64 = 4;
pub const COOKIES: u64 = 8;

/// Where an address can lie. The upper byte of a value is the region and the
/// rest a signed offset; [`crate::space`] knows what is there.
pub const REGIONS: &[&str] = &[
    "null",
    "rw",
    "arg",
    "ro",
    "none",
    "hole",
    "kernel",
    "noncanonical",
    "top",
    "max",
];

pub const fn addr(region: u64, offset: i64) -> u64 {
    (region << 56) | (offset as u64 & OFFSET)
}

const OFFSET: u64 = (1 << 56) - 1;

pub fn region(value: u64) -> usize {
    (value >> 56) as usize % REGIONS.len()
}

pub fn offset(value: u64) -> i64 {
    ((value << 8) as i64) >> 8
}

/// Options that the module knows, and some that it does not.
pub const OPTIONS: &[i32] = &[
    RDS_CANCEL_SENT_TO,
    RDS_GET_MR,
    RDS_FREE_MR,
    RDS_RECVERR,
    RDS_CONG_MONITOR,
    RDS_GET_MR_FOR_DEST,
    SO_RDS_TRANSPORT,
    SO_RDS_MSG_RXPATH_LATENCY,
    SO_TIMESTAMP_OLD,
    SO_TIMESTAMP_NEW,
    RDS_MR_QUOTA,
    4,
    0,
    RDS_INFO_FIRST,
    RDS_INFO_LAST,
    RDS_MR_QUOTA + 1,
    -1,
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub op: usize,
    pub args: Vec<u64>,
}

pub type Program = Vec<Call>;

pub fn find(name: &str) -> std::option::Option<usize> {
    OPS.iter().position(|op| op.name == name)
}

impl Call {
    pub fn name(&self) -> &'static str {
        OPS[self.op].name
    }

    /// The value of a field that the call has.
    pub fn arg(&self, field: &str) -> u64 {
        let at = OPS[self.op]
            .fields
            .iter()
            .position(|(name, _)| *name == field);
        at.map_or(0, |at| self.args[at])
    }

    pub fn text(&self) -> String {
        let op = &OPS[self.op];
        let field = |((name, kind), value): (&(&str, Kind), &u64)| match kind {
            Addr => {
                let offset = offset(*value);
                let sign = if offset < 0 { "-" } else { "+" };
                format!(
                    " {name}={}{sign}{:#x}",
                    REGIONS[region(*value)],
                    offset.unsigned_abs()
                )
            }
            _ => format!(" {name}={value:#x}"),
        };
        op.fields
            .iter()
            .zip(&self.args)
            .map(field)
            .fold(op.name.to_string(), |line, f| line + &f)
    }

    pub fn parse(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let op = find(name).ok_or(format!("there is no call {name}"))?;
        let mut args = Vec::new();
        for (field, kind) in OPS[op].fields {
            let word = words.next().unwrap_or_default();
            let value = word
                .strip_prefix(field)
                .and_then(|rest| rest.strip_prefix('='));
            let value = value.and_then(|text| {
                if *kind == Addr {
                    address(text)
                } else {
                    number(text)
                }
            });
            args.push(value.ok_or(format!("{name}: expected {field}=..., got \"{word}\""))?);
        }
        match words.next() {
            None => Ok(Call { op, args }),
            Some(word) => Err(format!("{name}: \"{word}\" is too much")),
        }
    }
}

fn number(text: &str) -> std::option::Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn address(text: &str) -> std::option::Option<u64> {
    let at = text.find(['+', '-'])?;
    let region = REGIONS.iter().position(|name| *name == &text[..at])? as u64;
    let offset = number(&text[at + 1..])? as i64;
    let offset = if text[at..].starts_with('-') {
        -offset
    } else {
        offset
    };
    Some(addr(region, offset))
}

pub fn text(program: &[Call]) -> String {
    program.iter().map(|call| call.text() + "\n").collect()
}

/// One call a line; `#` begins a comment.
pub fn parse(text: &str) -> Result<Program, String> {
    let code = |line: &str| {
        line.split('#')
            .next()
            .unwrap_or_default()
            .trim()
            .to_string()
    };
    let lines = text.lines().map(code).filter(|line| !line.is_empty());
    lines.map(|line| Call::parse(&line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let program = "open s=0x0 ip=0x0\nset s=0x0 level=0x114 opt=0x2 at=arg-0x20 len=0x20 value=0x0\nrace\n";
        let parsed = parse(&format!("# a comment\n\n{program}")).unwrap();
        assert_eq!(text(&parsed), program);
        assert_eq!(offset(parsed[1].arg("at")), -32);
        assert_eq!(REGIONS[region(parsed[1].arg("at"))], "arg");
    }

    #[test]
    fn mistakes_are_named() {
        assert!(parse("opne s=0x0").unwrap_err().contains("opne"));
        assert!(parse("open s=0x0").unwrap_err().contains("ip"));
        assert!(parse("still x=1").unwrap_err().contains("x=1"));
        assert!(parse("close s=zero").is_err());
    }
}
