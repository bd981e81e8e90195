// SPDX-License-Identifier: GPL-2.0
//! A process that is ready for EBBs but has no EBB event. It must get no EBB, must not be able to
//! read a PMU register, and must find its EBB registers as it set them.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ebb::reg::Bescr;
use ebb_selftests::session;
use ktap::Outcome;
use ktap::check;
use ktap::process::NOBODY;
use ktap::process::become_user;
use perf_event::Attr;

use crate::Options;
use crate::children;
use crate::handler;
use crate::marks::Page;
use crate::registers;
use crate::registers::EBB;
use crate::tally::Tally;
use crate::view;
use pmu_selftests::random::Random;

/// BESCR of a bystander.
const OPEN: Bescr = Bescr(Bescr::GE.0 | Bescr::PME.0);

/// Runs as a bystander until all other processes have ended.
pub fn stand_by(number: u64, tally: &Tally, options: Options) -> Outcome {
    children::end_with_parent();
    registers::survive()?;
    let page = Page::map(number)?;
    // Every second bystander counts an event, except while the PMU changes hands.
    let event = Attr::instructions().user_only().enabled();
    let counts = number.is_multiple_of(2) && !options.release;
    let _event = counts.then(|| event.open()).transpose()?;
    if number % 4 < 2 {
        become_user(NOBODY)?;
        children::end_with_parent();
    }
    handler::install(handler::address());
    handler::write_bescr(OPEN);
    let wanted = [handler::address(), 0, OPEN.0].map(Some);
    let mut random = Random::new(options.seed, &[number]);
    while !tally.done.load(Relaxed) {
        page.branch(random.up_to_bits(10));
        session::work_for(random.up_to_bits(14));
        // Looks rarely, as each look takes some signals.
        std::thread::sleep(Duration::from_millis(1));
        if options.unchecked {
            continue;
        }
        let seen = view::look(number, options.pace, false, &mut random)?;
        check!(
            seen.counters.seen() == 0,
            "counters can be read without an EBB event"
        );
        let registers = EBB.each_ref().map(|register| register.read());
        check!(
            registers == wanted,
            "EBBHR, EBBRR, BESCR: {registers:x?}, not {wanted:x?}"
        );
        check!(handler::count() == 0, "an EBB without an EBB event");
    }
    Ok(())
}
