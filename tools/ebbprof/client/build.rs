// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links programs to libebbprof, from the folder that `make install-ebbprof` has installed it in.

use std::env;

/// The template of ebbprof.pc, which lists the functions that a static program wraps.
const PACKAGE: &str = include_str!("ebbprof.pc.in");

fn main() {
    println!("cargo:rerun-if-env-changed=EBBPROF_LIB_DIR");
    if let Ok(folder) = env::var("EBBPROF_LIB_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
        // A static program contains the library, so it depends on the file.
        println!("cargo:rerun-if-changed={folder}/libebbprof.a");
    }
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    if features.split(',').any(|feature| feature == "crt-static") {
        println!("cargo:rustc-link-lib=static:-bundle=ebbprof");
        // Only for the examples of this crate; other programs pass these options themselves.
        for option in PACKAGE.split_whitespace() {
            if option.starts_with("-Wl,--wrap=") {
                println!("cargo:rustc-link-arg-examples={option}");
            }
        }
    } else {
        println!("cargo:rustc-link-lib=ebbprof");
    }
}
