// SPDX-License-Identifier: GPL-2.0
//! Every register of the PMU and of EBBs that a program can name, even if it may not access it.
//!
//! An access that the processor refuses causes SIGILL, and the handler of [`survive`] steps over
//! it.

use ebb_selftests::trap;
use ktap::Outcome;
use std::arch::asm;

/// Value of a read that was refused.
const REFUSED: u64 = 0xdead_5eed_dead_5eed;

/// A register that has a number in problem state.
pub struct Register {
    /// Name in the ISA.
    pub name: &'static str,
    read: unsafe fn() -> u64,
    write: unsafe fn(u64),
}

impl Register {
    /// Returns the value, if this process may read it.
    pub fn read(&self) -> Option<u64> {
        // SAFETY: A read has no effect; if it is refused, the signal's handler steps over it.
        let value = unsafe { (self.read)() };
        (value != REFUSED).then_some(value)
    }

    /// Writes the register, if this process may.
    ///
    /// # Safety
    ///
    /// When it writes BESCR, BESCRS or EBBHR: while GE is on, EBBHR must have the address of a
    /// handler. EBBRR must not be written while a handler runs.
    pub unsafe fn write(&self, value: u64) {
        // SAFETY: The caller guarantees it for the registers that change where the program
        // continues; no other register does.
        unsafe { (self.write)(value) }
    }
}

macro_rules! registers {
    ($($name:ident = $number:literal),* $(,)?) => {
        [$(Register {
            name: stringify!($name),
            read: || {
                let mut value = REFUSED;
                // SAFETY: mfspr changes nothing but its target.
                unsafe { asm!("mfspr {}, {}", inout(reg) value, const $number, options(nostack)) };
                value
            },
            // SAFETY: `Register::write` passes on its caller's guarantee.
            write: |value| unsafe {
                asm!("mtspr {}, {}", const $number, in(reg) value, options(nostack));
            },
        }),*]
    };
}

/// PMC1 to PMC6.
pub static PMCS: [Register; 6] = registers![
    PMC1 = 771,
    PMC2 = 772,
    PMC3 = 773,
    PMC4 = 774,
    PMC5 = 775,
    PMC6 = 776
];

/// MMCR0 as programs see it.
pub static MMCR0: [Register; 1] = registers![MMCR0 = 779];

/// MMCR2 as programs see it.
pub static MMCR2: [Register; 1] = registers![MMCR2 = 769];

/// EBBHR, EBBRR, BESCR.
pub static EBB: [Register; 3] = registers![EBBHR = 804, EBBRR = 805, BESCR = 806];

/// Registers with addresses, which must not be those of another process.
pub static ADDRESSES: [Register; 2] = registers![SIAR = 780, SDAR = 781];

/// Registers that programs may at most read, then the numbers with which the kernel accesses the
/// same and other registers, and BESCRRU, which only resets bits.
pub static OTHERS: [Register; 26] = registers![
    SIER = 768,
    MMCRA = 770,
    MMCR1 = 782,
    SIER2 = 736,
    SIER3 = 737,
    MMCR3 = 738,
    BESCRR = 802,
    BESCRRU = 803,
    KERNEL_SIER = 784,
    KERNEL_MMCR2 = 785,
    KERNEL_MMCRA = 786,
    KERNEL_PMC1 = 787,
    KERNEL_PMC2 = 788,
    KERNEL_PMC3 = 789,
    KERNEL_PMC4 = 790,
    KERNEL_PMC5 = 791,
    KERNEL_PMC6 = 792,
    KERNEL_MMCR0 = 795,
    KERNEL_SIAR = 796,
    KERNEL_SDAR = 797,
    KERNEL_MMCR1 = 798,
    KERNEL_SIER2 = 752,
    KERNEL_SIER3 = 753,
    KERNEL_MMCR3 = 754,
    KERNEL_MMCRC = 851,
    KERNEL_HFSCR = 190,
];

/// Returns all registers of this file.
pub fn all() -> impl Iterator<Item = &'static Register> {
    let own = EBB.iter().chain(&PMCS).chain(&MMCR0).chain(&MMCR2);
    own.chain(&ADDRESSES).chain(&OTHERS)
}

/// Number of entries to read of the BHRB: as many as any processor has, plus one that none has.
pub const BHRB_ENTRIES: usize = 33;

/// Reads the BHRB, if this process may. It does not branch between two entries: a recorded branch
/// would shift the older entries.
pub fn bhrb() -> Option<[u64; BHRB_ENTRIES]> {
    let mut entries = [REFUSED; BHRB_ENTRIES];
    // SAFETY: mfbhrbe changes nothing but its target; the array has room for the entries that are
    // stored.
    unsafe {
        asm!(
            "mfbhrbe {entry}, 0",
            "cmpd {entry}, {refused}",
            // If one is refused all are, and each would cause a signal.
            "beq 2f",
            ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, \
             22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
            "mfbhrbe {entry}, \\n",
            "std {entry}, 8 * \\n({entries})",
            ".endr",
            "mfbhrbe {entry}, 1023",
            "std {entry}, 8 * 32({entries})",
            "2:",
            entry = inout(reg) REFUSED => _,
            refused = in(reg) REFUSED,
            entries = in(reg_nonzero) entries.as_mut_ptr(),
            out("cr0") _,
            options(nostack),
        );
    }
    (entries[0] != REFUSED).then_some(entries)
}

/// Clears the BHRB, if this process may.
pub fn clear_bhrb() {
    // SAFETY: clrbhrb changes no other register and no memory.
    unsafe { asm!("clrbhrb", options(nostack)) };
}

/// Returns whether this program tries such an instruction although it may be refused.
fn may_be_refused(instruction: u32) -> bool {
    let (primary, extended) = (instruction >> 26, instruction >> 1 & 0x3ff);
    match primary {
        // mfbhrbe, mfspr, clrbhrb, mtspr.
        31 => [302, 339, 430, 467].contains(&extended),
        // rfebb.
        19 => extended == 146,
        _ => false,
    }
}

extern "C" fn step_over(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: The kernel passed the context, and nothing else refers to its registers. NIP is the
    // address of the instruction that was refused. If that cannot be read, or is no such
    // instruction, the process ends by a signal.
    unsafe {
        let nip = &mut (*trap::registers(context))[trap::NIP];
        let instruction = std::ptr::with_exposed_provenance::<u32>(*nip as usize);
        match may_be_refused(instruction.read()) {
            true => *nip += 4,
            false => {
                libc::signal(libc::SIGILL, libc::SIG_DFL);
            }
        }
    }
}

/// Handles a signal by doing nothing.
extern "C" fn ignore(_: libc::c_int) {}

/// Makes this process survive all that it does to itself: refused instructions, and signals of
/// timers and of events.
pub fn survive() -> Outcome {
    // An EBB may come while the handler runs, and an access in its handler may be refused.
    action(
        libc::SIGILL,
        step_over as *const () as usize,
        libc::SA_SIGINFO | libc::SA_NODEFER,
    )?;
    for signal in [
        libc::SIGTRAP,
        libc::SIGIO,
        libc::SIGALRM,
        libc::SIGUSR1,
        libc::SIGHUP,
    ] {
        action(signal, ignore as *const () as usize, libc::SA_RESTART)?;
    }
    Ok(())
}

fn action(signal: libc::c_int, handler: usize, flags: libc::c_int) -> Outcome {
    // SAFETY: Zeroes are a valid sigaction; each handler takes the arguments that its flags
    // announce.
    ktap::os_result(unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigaction(signal, &action, std::ptr::null_mut())
    })?;
    Ok(())
}

/// Sends this process a signal repeatedly. Adds 500 microseconds to the interval, or the program
/// would make no progress.
pub fn set_timer(microseconds: u64) {
    let time = libc::timeval {
        tv_sec: 0,
        tv_usec: 500 + microseconds as i64,
    };
    let value = libc::itimerval {
        it_interval: time,
        it_value: time,
    };
    // SAFETY: The kernel only reads the structure, and a null pointer requests no old value.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &value, std::ptr::null_mut()) };
}
