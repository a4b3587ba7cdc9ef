// SPDX-License-Identifier: GPL-2.0
//! rds-mr-systest: the module seen from user space, as TAP.
//!
//! Needs root, a loaded rds_mr.ko (or rds_mr_kunit.ko for the hammer), and an
//! RDMA device at RDS_MR_ADDR and RDS_MR_ADDR6; some tests need a second one at
//! RDS_MR_PEER_ADDR, which they unplug. What a test cannot have it skips, with
//! the reason.

mod alloc;
mod blocked;
mod ceiling;
mod cgroup;
mod check;
mod compat;
mod death;
mod device;
mod exact;
mod free_mr;
mod get_mr;
mod get_mr_bad;
mod hammer;
mod hca;
mod hca_rest;
mod huge;
mod inject;
mod late;
mod leak;
mod links;
mod memlock;
mod memory_kinds;
mod memory_life;
mod module;
mod observers;
mod opts;
mod order;
mod plug;
mod probe;
mod quota;
mod races;
mod reload;
mod revoked;
mod runner;
mod site;
mod sock_bind;
mod sock_calls;
mod sock_port;
mod starved;
mod trace_order;
mod victim;
mod volumes;

use runner::Test;
use std::process::ExitCode;

const THEMES: &[&[Test]] = &[
    sock_calls::TESTS,
    sock_bind::TESTS,
    sock_port::TESTS,
    opts::TESTS,
    get_mr::TESTS,
    get_mr_bad::TESTS,
    free_mr::TESTS,
    probe::TESTS,
    quota::TESTS,
    memlock::TESTS,
    memory_kinds::TESTS,
    memory_life::TESTS,
    death::TESTS,
    races::TESTS,
    blocked::TESTS,
    compat::TESTS,
    hammer::TESTS,
    order::TESTS,
    trace_order::TESTS,
    late::TESTS,
    hca::TESTS,
    hca_rest::TESTS,
    revoked::TESTS,
    alloc::TESTS,
    starved::TESTS,
    device::TESTS,
    plug::TESTS,
    links::TESTS,
    ceiling::TESTS,
    exact::TESTS,
    cgroup::TESTS,
    module::TESTS,
];

const USAGE: &str =
    "usage: rds-mr-systest [--list] [--filter SUBSTRING]... [--except SUBSTRING]...";

struct Options {
    list: bool,
    filters: Vec<String>,
    except: Vec<String>,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        list: false,
        filters: Vec::new(),
        except: Vec::new(),
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--list" => options.list = true,
            "--filter" => options
                .filters
                .push(args.next().ok_or("--filter needs a substring")?),
            "--except" => options
                .except
                .push(args.next().ok_or("--except needs a substring")?),
            _ => return Err(format!("unknown argument {arg}")),
        }
    }
    Ok(options)
}

fn selected(filters: &[String], except: &[String]) -> Vec<&'static Test> {
    // What a machine does not recover from runs only when it is asked for.
    if filters.iter().any(|part| part == "leak.") {
        return leak::TESTS.iter().collect();
    }
    let named = |list: &[String], test: &Test| list.iter().any(|part| test.name.contains(part));
    let wanted =
        |test: &&Test| (filters.is_empty() || named(filters, test)) && !named(except, test);
    THEMES.iter().copied().flatten().filter(wanted).collect()
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(text) => {
            eprintln!("rds-mr-systest: {text}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let tests = selected(&options.filters, &options.except);
    if options.list {
        tests.iter().for_each(|test| println!("{}", test.name));
        return ExitCode::SUCCESS;
    }
    if rdsmr::kmod::current().is_none() {
        println!("Bail out! Neither rds_mr nor rds_mr_kunit is loaded: insmod one of them first.");
        return ExitCode::FAILURE;
    }
    match runner::run_all(&tests) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("Bail out! The test machine itself fails: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_say_their_theme() {
        let all = selected(&[], &[]);
        let names: HashSet<_> = all.iter().map(|test| test.name).collect();
        assert_eq!(names.len(), all.len());
        assert!(names.iter().all(|name| name.contains('.')));
    }

    #[test]
    fn filters_add_up_and_may_match_nothing() {
        let filters = |list: &[&str]| list.iter().map(|s| s.to_string()).collect::<Vec<_>>();
        assert!(selected(&filters(&["no such test"]), &[]).is_empty());
        let one = selected(&filters(&["bind."]), &[]).len();
        assert!(one > 0);
        assert_eq!(
            selected(&filters(&["bind.", "no such test"]), &[]).len(),
            one
        );
        let all = selected(&[], &[]).len();
        assert_eq!(selected(&[], &filters(&["bind."])).len(), all - one);
    }

    #[test]
    fn arguments_are_checked() {
        let parse = |list: &[&str]| parse(list.iter().map(|s| s.to_string()));
        assert!(parse(&["--list"]).unwrap().list);
        assert_eq!(
            parse(&["--filter", "a", "--filter", "b"]).unwrap().filters,
            ["a", "b"]
        );
        assert!(parse(&["--filter"]).is_err());
        assert!(parse(&["--lost"]).is_err());
    }
}
