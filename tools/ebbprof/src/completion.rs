// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ebbprof completion`: what a shell needs to complete commands and options. The files that
//! `completion/` has for shells run it, so that they fit the program that is installed.

use clap::Command;
use clap_complete::Shell;

use crate::Failure;
use crate::report;

#[derive(clap::Args)]
pub struct Options {
    /// The shell: its own script is written to standard output
    shell: Shell,
}

pub fn run(options: &Options, mut command: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut command, "ebbprof", &mut script);
    report::write_out(None, &String::from_utf8(script)?)
}
