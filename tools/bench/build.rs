// SPDX-License-Identifier: GPL-2.0
//! Links libibverbs and the soft-RoCE provider statically, so that the program
//! runs in a guest that has neither.

use std::fs;

const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

fn main() {
    // The provider's name carries the private ABI number of its release.
    let provider = fs::read_dir(LIBRARIES)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter_map(|name| Some(name.strip_prefix("lib")?.strip_suffix(".a")?.to_string()))
        .find(|name| name.starts_with("rxe-"));
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-search=native={LIBRARIES}");
    let Some(provider) = provider else {
        panic!("no librxe-*.a in {LIBRARIES}: install libibverbs-dev");
    };
    for library in [provider.as_str(), "ibverbs", "nl-route-3", "nl-3"] {
        println!("cargo:rustc-link-lib=static={library}");
    }
}
