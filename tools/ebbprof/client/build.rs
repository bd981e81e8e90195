// SPDX-License-Identifier: MIT OR Apache-2.0
//! Says how programs are linked to libebbprof: where `make install-ebbprof` has put it.

use std::env;

/// What `make install-ebbprof` makes ebbprof.pc from: it says what a static program wraps.
const PACKAGE: &str = include_str!("../../libebbprof/ebbprof.pc.in");

fn main() {
    println!("cargo:rerun-if-env-changed=EBBPROF_LIB_DIR");
    if let Ok(folder) = env::var("EBBPROF_LIB_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
        // A static program has it within itself.
        println!("cargo:rerun-if-changed={folder}/libebbprof.a");
    }
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    if features.split(',').any(|feature| feature == "crt-static") {
        println!("cargo:rustc-link-lib=static:-bundle=ebbprof");
        // Of this crate's own examples; other programs say it themselves.
        for option in PACKAGE.split_whitespace() {
            if option.starts_with("-Wl,--wrap=") {
                println!("cargo:rustc-link-arg-examples={option}");
            }
        }
    } else {
        println!("cargo:rustc-link-lib=ebbprof");
    }
}
