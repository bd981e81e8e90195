// SPDX-License-Identifier: GPL-2.0
//! Runs the examples from the documentation of the `ebb` crate.

#[path = "../../../../../ebb/examples/session.rs"]
mod with_session;
#[path = "../../../../../ebb/examples/steps.rs"]
mod with_steps;

use ebb_selftests::session;
use ktap::Outcome;
use ktap::check;

fn with_steps() -> Outcome {
    with_steps::main()?;
    let came = ebb::count();
    check!(came >= 1000, "{came} EBBs");
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    with_session = Ok(with_session::main()?), with_steps,
}
