// SPDX-License-Identifier: GPL-2.0
//! How much of the interrupted code's stack an entry uses before it calls the handler: as much as
//! [`Save::stack`] returns and the documentation claims.

use std::arch::asm;
use std::hint::black_box;
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use ebb::EbbContext;
use ebb::Save;
use ktap::Outcome;
use ktap::check;

/// Most bytes that an entry used.
static MOST: AtomicU64 = AtomicU64::new(0);

/// Returns the word at an address of the stack.
fn word(address: u64) -> u64 {
    let address = ptr::with_exposed_provenance::<u64>(address as usize);
    // SAFETY: Callers pass r1, or an address that the back chain leads to from there.
    unsafe { address.read_volatile() }
}

/// Follows the back chain from its own frame to the entry's: the last one below the frame that
/// leads to the interrupted code.
fn look(context: &mut EbbContext<'_>) {
    let mut frame: u64;
    // SAFETY: The instruction copies r1, and changes nothing else.
    unsafe { asm!("mr {}, 1", out(reg_nonzero) frame, options(nomem, nostack)) };
    let interrupted = context.stack_pointer();
    while word(word(frame)) != interrupted {
        frame = word(frame);
    }
    MOST.fetch_max(interrupted - frame, Relaxed);
}

/// Takes an EBB with r1 lower by `BYTES`.
#[inline(never)]
fn at<const BYTES: usize>() -> Outcome {
    let room = [0_u8; BYTES];
    black_box(&room);
    ebb::inject()?;
    black_box(&room);
    Ok(())
}

fn takes_what_it_says(save: Save) -> Outcome {
    MOST.store(0, Relaxed);
    // SAFETY: The handler uses general registers only, and calls nothing that locks or allocates.
    unsafe { ebb::install_saving(save, look)? };
    // Frames are multiples of 16 bytes, and one entry aligns its own to 128, so r1 has eight
    // different positions. These are twice as many functions, as the compiler may give two of them
    // frames of one size.
    let deeper = [
        at::<0>, at::<16>, at::<32>, at::<48>, at::<64>, at::<80>, at::<96>, at::<112>, at::<128>,
        at::<144>, at::<160>, at::<176>, at::<192>, at::<208>, at::<224>, at::<240>,
    ];
    deeper.into_iter().try_for_each(|at| at())?;
    ebb::uninstall()?;
    let most = MOST.load(Relaxed);
    check!(
        most == save.stack() as u64,
        "{save:?}: {most}, not {}",
        save.stack()
    );
    Ok(())
}

fn entry_for_gprs_takes_what_it_says() -> Outcome {
    takes_what_it_says(Save::Gprs)
}

fn entry_for_all_gprs_takes_what_it_says() -> Outcome {
    takes_what_it_says(Save::AllGprs)
}

fn full_entry_takes_what_it_says() -> Outcome {
    takes_what_it_says(Save::Full)
}

/// The documentation contains sentences with these numbers.
fn pages_say_the_same() -> Outcome {
    let (gprs, all) = (Save::Gprs.stack(), Save::AllGprs.stack());
    let full = Save::Full.stack();
    let pages = [
        (
            include_str!("../../../../../../Documentation/man/ebb.7"),
            format!("The entry takes {full} bytes of stack below r1, {gprs} with"),
        ),
        (
            include_str!("../../../../../../Documentation/ebb.md"),
            format!(
                "takes {gprs} bytes with `Save::Gprs`, {all} with `Save::AllGprs`, {full} with `Save::Full`"
            ),
        ),
        (
            include_str!("../../../../../../Documentation/profiling.md"),
            format!("takes {gprs} bytes of stack"),
        ),
    ];
    for (page, sentence) in pages {
        let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
        check!(words.contains(&sentence), "no page says: {sentence}");
    }
    Ok(())
}

ktap::main! {
    entry_for_gprs_takes_what_it_says,
    entry_for_all_gprs_takes_what_it_says,
    full_entry_takes_what_it_says,
    pages_say_the_same,
}
