// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ebbprof completion`: prints the script with which a shell completes commands and options. The
//! files in `completion/` run it, so that the completions fit the installed version.

use clap::Command;
use clap_complete::Shell;

use crate::Failure;
use crate::report;

#[derive(clap::Args)]
pub struct Options {
    /// Shell whose completion script is written to standard output
    shell: Shell,
}

pub fn run(options: &Options, mut command: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut command, "ebbprof", &mut script);
    report::write_out(None, &String::from_utf8(script)?)
}
