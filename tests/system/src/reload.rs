// SPDX-License-Identifier: GPL-2.0
//! The module with other parameters, for a while.

use crate::check::{fail, skip, Check, End, Outcome};
use rdsmr::kmod;
use std::fs;
use std::io;
use std::path::PathBuf;

/// KUnit's own filter: while it matches nothing, loading the test module again
/// does not run its suites again.
const FILTER: &str = "/sys/module/kunit/parameters/filter_glob";
const NO_SUITE: &str = "no-such-suite";
const ALL_SUITES: &str = "*";

/// What is loaded now, to come back to.
#[derive(Debug, PartialEq, Eq)]
pub struct Loaded(Option<(&'static str, String)>);

impl Loaded {
    pub fn now() -> io::Result<Self> {
        let with_params = |name| Ok::<_, io::Error>((name, kmod::params(name)?));
        Ok(Loaded(kmod::current().map(with_params).transpose()?))
    }

    /// Nothing to do if it is as it was, also after a test that died half-way.
    pub fn restore(&self) -> io::Result<()> {
        if Loaded::now()? == *self {
            return Ok(());
        }
        for name in ["rds_rdma", "rds_tcp", "rds", kmod::TEST, kmod::PRODUCTION] {
            if kmod::is_loaded(name) {
                kmod::remove(name)?;
            }
        }
        match &self.0 {
            Some((name, params)) => quietly(name, params),
            None => Ok(()),
        }
    }
}

fn quietly(name: &str, params: &str) -> io::Result<()> {
    let path = kmod::find(name).ok_or_else(|| {
        io::Error::other(format!(
            "{name}.ko is neither in RDS_MR_MODULE_DIR nor in /lib/rds_mr"
        ))
    })?;
    let filtered = name == kmod::TEST && fs::write(FILTER, NO_SUITE).is_ok();
    let result = kmod::insert(&path, params);
    if filtered {
        fs::write(FILTER, ALL_SUITES)?;
    }
    result
}

/// The file of a module, or the reason to skip.
pub fn file_of(name: &str) -> Result<PathBuf, End> {
    kmod::find(name).map_or_else(
        || {
            skip(format!(
                "no {name}.ko in RDS_MR_MODULE_DIR, /lib/rds_mr or /lib/modules"
            ))
        },
        Ok,
    )
}

/// Unload whatever module of ours is there. The runner brings it back.
pub fn unload() -> Outcome {
    match kmod::current() {
        Some(name) => kmod::remove(name).must(format!("rmmod {name}")),
        None => Ok(()),
    }
}

/// Load the same module again with some parameters changed.
pub fn with_params(changes: &str) -> Outcome {
    let Some(name) = kmod::current() else {
        return fail("the module before a reload", "loaded", "not loaded");
    };
    file_of(name)?;
    let params = kmod::params(name).must(format!("reading the parameters of {name}"))?;
    unload()?;
    let params = kmod::with_params(&params, changes);
    quietly(name, &params).must(format!("insmod {name} {params}"))
}
