// SPDX-License-Identifier: GPL-2.0
//! A task's first EBB event starts from zero: no value of its parent's, or of
//! whoever had the PMU before, shows in its registers.

use ebb::EventBuilder;
use ebb::Pmc;
use ebb::pmc;
use ebb::reg::Mmcr0;
use ebb::reg::Mmcr2;
use ebb::spr;
use ebb_selftests::OrFail;
use ebb_selftests::process::Peer;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ktap::Outcome;
use ktap::check;

/// Opens this task's first event and looks at everything it can read.
fn look() -> Outcome {
    let event = EventBuilder::ebb(CYCLES).open().or_fail("open")?;
    event.enable().or_fail("enable")?;
    event.check_scheduled().or_fail("schedule")?;
    let mmcr0 = Mmcr0::read();
    check!(mmcr0 == Mmcr0::PMAE, "{mmcr0:?}");
    check!(Mmcr2::read() == Mmcr2(0), "{:?}", Mmcr2::read());
    let sampled = [pmc::siar(), pmc::sdar(), pmc::sier()];
    check!(sampled == [0; 3], "SIAR, SDAR, SIER: {sampled:x?}");
    let own = Pmc::Pmc1.read();
    check!(own < 0x1000_0000, "PMC1: {own:#x}");
    for pmc in &Pmc::ALL[1..] {
        check!(pmc.read() == 0, "{pmc:?}: {:#x}", pmc.read());
    }
    if session::isa_v31() {
        // SAFETY: reading them has no effect.
        let v31 = unsafe {
            [
                spr::read::<{ spr::MMCR3 }>(),
                spr::read::<{ spr::SIER2 }>(),
                spr::read::<{ spr::SIER3 }>(),
            ]
        };
        check!(v31 == [0; 3], "MMCR3, SIER2, SIER3: {v31:x?}");
    }
    Ok(())
}

/// The parent has an EBB event and leaves its marks while the child begins.
fn child_of_an_ebb_task() -> Outcome {
    let event = session::begin(CYCLES, 5000, session::count_only)?;
    session::wait_for(20, 5000)?;
    Mmcr0::FC.write();
    Mmcr2::USER.write();
    for pmc in Pmc::ALL {
        pmc.write(0x3333_3333);
    }
    Peer::spawn(|_| look())?.join()?;
    check!(Mmcr2::read() == Mmcr2::USER, "parent's {:?}", Mmcr2::read());
    let own = Pmc::Pmc1.read();
    check!(own == 0x3333_3333, "parent's PMC1: {own:#x}");
    session::end(event);
    Ok(())
}

/// Somebody else counted and sampled on this CPU before.
fn after_ordinary_events() -> Outcome {
    session::require_ebb()?;
    for code in [CYCLES, 0x2001e, 0x600f4, 0x500fa] {
        let event = EventBuilder::raw(code).open().or_fail("open")?;
        event.enable().or_fail("enable")?;
        for _ in 0..100 {
            session::work();
        }
        event.close();
    }
    look()
}

fn main() {
    ktap::run(&[
        ("child_of_an_ebb_task", child_of_an_ebb_task),
        ("after_ordinary_events", after_ordinary_events),
    ])
}
