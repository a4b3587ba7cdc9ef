// SPDX-License-Identifier: GPL-2.0
//! New programs, and old ones changed.

use crate::call::{addr, find, offset, region, Call, Kind, Program, COOKIES, OPS, OPTIONS, SLOTS};
use rdsmr::abi::*;
use rdsmr::rng::Rng;
use rdsmr::PAGE;

const MOST_CALLS: usize = 24;

/// Names of calls by how often they are wanted.
const USUAL: &[&str] = &[
    "open", "get_mr", "get_mr", "get_mr", "free_mr", "free_mr", "probe", "quota", "bind",
    "connect", "set", "set", "get", "ioctl", "map", "fork",
];

const RW: u64 = 1;
const ARG: u64 = 2;

fn any(rng: &mut Rng) -> u64 {
    const EDGES: &[u64] = &[
        0,
        1,
        2,
        3,
        4,
        7,
        8,
        15,
        16,
        17,
        31,
        32,
        33,
        127,
        128,
        255,
        256,
        257,
        4095,
        4096,
        4097,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        0x1_0000_0000,
        1 << 62,
        1 << 63,
        u64::MAX - 4095,
        u64::MAX - 1,
        u64::MAX,
    ];
    match rng.below(8) {
        0 => rng.next(),
        1 => 1 << rng.below(64),
        _ => rng.pick(EDGES),
    }
}

/// Mostly where there is something, and near the edges of pages.
fn address(rng: &mut Rng) -> u64 {
    const NEAR: &[i64] = &[
        0, 1, 8, 4088, 4095, 4096, -1, -4, -8, -16, -24, -32, -160, -4096,
    ];
    let region = match rng.below(10) {
        0..5 => RW,
        5..8 => ARG,
        _ => rng.index(crate::call::REGIONS.len()) as u64,
    };
    let pages = if region == RW {
        rng.below(300) as i64 * PAGE as i64
    } else {
        0
    };
    addr(region, pages + rng.pick(NEAR))
}

fn field(kind: Kind, rng: &mut Rng) -> u64 {
    match kind {
        Kind::Slot => rng.next() % SLOTS,
        Kind::Cookie => rng.next() % COOKIES,
        Kind::Addr => address(rng),
        Kind::Option => rng.pick(OPTIONS) as u64 & 0xffff_ffff,
        Kind::Level if rng.one_in(8) => rng.pick(&[0, 6, 41, 275, 277, 0xffff_ffff]),
        Kind::Level => SOL_RDS as u64,
        Kind::Command if rng.one_in(6) => {
            rng.pick(&[0, 0x5421, 0x541b, 0x8906, 0x89ef, 0xffff_ffff])
        }
        Kind::Command => u64::from(SIOCRDSSETTOS) + rng.next() % 12,
        Kind::Len => rng.pick(&[
            0,
            1,
            2,
            4,
            8,
            12,
            15,
            16,
            17,
            20,
            24,
            27,
            28,
            29,
            31,
            32,
            33,
            128,
            159,
            160,
            161,
            4096,
            0xffff_ffff,
        ]),
        Kind::Bytes => match rng.below(4) {
            0 => any(rng),
            1 => rng.pick(&[
                1,
                PAGE - 1,
                PAGE,
                PAGE + 1,
                MAX_BYTES - 1,
                MAX_BYTES,
                MAX_BYTES + 1,
                257 * PAGE,
            ]),
            _ => 1 + rng.next() % (16 * PAGE),
        },
        Kind::Flags if rng.one_in(6) => any(rng),
        Kind::Flags => rng.next() % 2,
        Kind::Small => rng.next() % 8,
        Kind::Ip if rng.one_in(2) => 0,
        Kind::Ip => rng.next() % crate::space::IPS.len() as u64,
        Kind::Family => rng.pick(&[2, 2, 2, 10, 10, 10, 0, 1, 21, 0xffff]),
        Kind::Any => any(rng),
    }
}

/// What a call needs to get past its first checks stands there as often as not.
fn usual(call: &mut Call, rng: &mut Rng) {
    let len = match call.name() {
        "get_mr" if call.arg("dest") % 4 == 1 => 160,
        "get_mr" => 32,
        "free_mr" | "quota" => 16,
        "bind" | "connect" if call.arg("family") == 10 => 28,
        "bind" | "connect" => 16,
        _ => 0,
    };
    let set = |call: &mut Call, name: &str, value: u64| {
        let at = OPS[call.op]
            .fields
            .iter()
            .position(|(field, _)| *field == name);
        if let Some(at) = at {
            call.args[at] = value;
        }
    };
    if len != 0 && !rng.one_in(6) {
        set(call, "len", len);
        set(call, "at", addr(ARG, -(len as i64)));
    }
    if !rng.one_in(6) {
        set(call, "xor", 0);
        set(call, "type", 5);
        set(call, "proto", 0);
        set(call, "cookie_at", addr(RW, 8 * (rng.next() % 4) as i64));
    }
    if call.name() != "open" && !rng.one_in(3) {
        set(call, "s", 0);
    }
}

fn call(rng: &mut Rng) -> Call {
    let op = if rng.one_in(3) {
        rng.index(OPS.len())
    } else {
        find(rng.pick(USUAL)).unwrap_or(0)
    };
    let args = OPS[op]
        .fields
        .iter()
        .map(|(_, kind)| field(*kind, rng))
        .collect();
    let mut call = Call { op, args };
    usual(&mut call, rng);
    call
}

pub fn fresh(rng: &mut Rng) -> Program {
    let open = Call {
        op: find("open").unwrap_or(0),
        args: vec![0, 0],
    };
    let count = 2 + rng.below(10);
    std::iter::once(open)
        .chain((0..count).map(|_| call(rng)))
        .collect()
}

fn once(program: &mut Program, corpus: &[Program], rng: &mut Rng) {
    let at = rng.index(program.len() + 1);
    match rng.below(10) {
        0..3 => program.insert(at, call(rng)),
        3 if program.len() > 1 => {
            program.remove(rng.index(program.len()));
        }
        4 if !corpus.is_empty() => {
            let other = &corpus[rng.index(corpus.len())];
            program.truncate(at);
            program.extend_from_slice(&other[rng.index(other.len())..]);
        }
        5 if !program.is_empty() => {
            let copy = program[rng.index(program.len())].clone();
            program.insert(at, copy);
        }
        _ => {
            let len = program.len();
            if let Some(call) = program.get_mut(at.min(len.saturating_sub(1))) {
                let fields = OPS[call.op].fields;
                if !fields.is_empty() {
                    tweak(call, rng.index(fields.len()), rng);
                }
            }
        }
    }
}

fn tweak(call: &mut Call, which: usize, rng: &mut Rng) {
    let kind = OPS[call.op].fields[which].1;
    let value = match rng.below(4) {
        0 => call.args[which].wrapping_add(rng.pick(&[1, u64::MAX, 8, 4096])),
        _ => field(kind, rng),
    };
    // Of an address there is one way to write each.
    call.args[which] = match kind {
        Kind::Addr => addr(region(value) as u64, offset(value)),
        _ => value,
    };
}

pub fn mutated(program: &Program, corpus: &[Program], rng: &mut Rng) -> Program {
    let mut program = program.clone();
    for _ in 0..1 + rng.below(4) {
        once(&mut program, corpus, rng);
    }
    program.truncate(MOST_CALLS);
    if program.is_empty() {
        program = fresh(rng);
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_program_and_another_seed_another() {
        let make = |seed| fresh(&mut Rng::new(seed));
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
    }

    #[test]
    fn whatever_is_made_can_be_written_and_read() {
        let mut rng = Rng::new(7);
        let mut corpus = vec![fresh(&mut rng)];
        for _ in 0..2000 {
            let next = mutated(&corpus[rng.index(corpus.len())], &corpus, &mut rng);
            assert!(!next.is_empty() && next.len() <= MOST_CALLS);
            let text = crate::call::text(&next);
            assert_eq!(crate::call::parse(&text).unwrap(), next, "{text}");
            corpus.push(next);
        }
    }
}
