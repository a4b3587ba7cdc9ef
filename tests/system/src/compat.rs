// SPDX-License-Identifier: GPL-2.0
//! 32-bit programs: a small C program that lies beside this one does the calls.

use crate::check::{fail, skip, Check, Outcome};
use crate::runner::Test;
use crate::site;
use rdsmr::errno::ENOEXEC;
use std::process::Command;

pub const TESTS: &[Test] = &[Test::new("compat.32_bit_program", compat32)];

const PROGRAM: &str = "rds-mr-compat32";

fn compat32() -> Outcome {
    let me = std::env::current_exe().must("finding this program")?;
    let program = me.with_file_name(PROGRAM);
    if !program.exists() {
        return skip(format!("no {}", program.display()));
    }
    let output = match Command::new(&program).arg(site::v4().to_string()).output() {
        Err(error) if error.raw_os_error() == Some(ENOEXEC) => {
            return skip("this kernel runs no 32-bit programs");
        }
        output => output.must(format!("running {}", program.display()))?,
    };
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().for_each(|line| println!("# {line}"));
    if output.status.success() {
        return Ok(());
    }
    fail(
        PROGRAM,
        "exit status 0",
        format!("{}, see the lines above", output.status),
    )
}
