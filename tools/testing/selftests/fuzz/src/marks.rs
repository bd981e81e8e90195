// SPDX-License-Identifier: GPL-2.0
//! Marks that a process leaves wherever it can write, so that another process can detect that it
//! sees foreign data: values of counters, a value of MMCR2, addresses of branches.
//!
//! A process has a number below [`NUMBERS`], which its children and threads share.

use std::arch::asm;
use std::arch::global_asm;
use std::io;
use std::ptr;

use ebb::reg::Mmcr2;
use ktap::Failure;
use pmu_selftests::machine;

use pmu_selftests::random::Random;

/// Count of numbers of processes. A counter that overflows soon has no mark.
pub const NUMBERS: u64 = 23;

/// Counters with a mark are in [COUNTERS, COUNTERS + NUMBERS << COUNTER_SHIFT): a process writes
/// the first value of its part. The time for which it has run limits how far it may have counted
/// from there ([`Pace`]).
const COUNTERS: u64 = 0x2000_0000;
const COUNTER_SHIFT: u32 = 26;

/// Values without a mark are at most this, or negative.
const UNMARKED: u64 = 0x03ff_ffff;
const NEGATIVE: u64 = 0x8000_0000;

/// Each process has a page with branches, at ADDRESSES plus 2^24 times (its number + 1). The
/// compiler puts these addresses, and sums of them, into registers and stacks of every process, so
/// the branches are at an offset in the page.
const ADDRESSES: u64 = 0x5e5a_0000_0000;
const ADDRESS_SHIFT: u32 = 24;
const PAGE: usize = 0x1_0000;
const CODE: usize = 128;

/// Returns the value that a process writes to its counters.
pub fn counter(number: u64) -> u64 {
    COUNTERS + (number << COUNTER_SHIFT)
}

/// Returns how far a counter with this process's mark has counted; `None` if it has no mark. The
/// caller has checked that it has no mark of another process.
pub fn counted(number: u64, value: u64) -> Option<u64> {
    value
        .checked_sub(counter(number))
        .filter(|_| value < COUNTERS + (NUMBERS << COUNTER_SHIFT))
}

/// Returns `value` changed into one without a mark.
pub fn unmarked(value: u64) -> u64 {
    value & (NEGATIVE | UNMARKED)
}

/// Returns whether `value`, read from a counter, has the mark of another process, and the calling
/// thread cannot have counted there itself, in at most `most` counts from a value that it wrote.
pub fn is_foreign_counter(number: u64, value: u64, most: u64) -> bool {
    let part = value.wrapping_sub(COUNTERS) >> COUNTER_SHIFT;
    if part >= NUMBERS || part == number {
        return false;
    }
    let is_own = |written: u64| value.wrapping_sub(written) <= most;
    !is_own(counter(number)) && !is_own(UNMARKED)
}

/// Returns the percentage of other processes' marks that a thread would recognise.
pub fn told(number: u64, most: u64) -> u64 {
    let is_told = |&other: &u64| is_foreign_counter(number, counter(other), most);
    (0..NUMBERS).filter(is_told).count() as u64 * 100 / (NUMBERS - 1)
}

/// Highest speed of a counter: counts in each nanosecond that its thread runs. Events are on the
/// PMU only in that time.
#[derive(Clone, Copy)]
pub struct Pace(u64);

impl Pace {
    /// Returns the speed on this machine. An emulator counts one cycle, or one instruction with its
    /// instruction clock, in a nanosecond; a processor of 5 GHz completes eight in each cycle.
    pub fn of_machine() -> io::Result<Self> {
        Ok(Self(if machine::is_emulated()? { 1 } else { 40 }))
    }

    /// Returns whether this machine is an emulator.
    pub fn is_of_emulator(self) -> bool {
        self.0 == 1
    }

    /// Returns the most that the calling thread's counters can have counted so far. The kernel
    /// measures the thread's time from one task switch to the next, and the PMU also runs for some
    /// instructions before and after: twice the time is more than enough.
    pub fn most_counted(self) -> u64 {
        2 * self.0 * time_run()
    }
}

/// Returns for how many nanoseconds the calling thread has run.
pub fn time_run() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the value that a process writes to MMCR2: its number plus one, in the bits that programs
/// may change.
pub fn mmcr2(number: u64) -> u64 {
    let bits = (0..6).map(|bit| (1 << 62 >> (9 * bit)) * ((number + 1) >> bit & 1));
    bits.sum()
}

/// Returns whether `value`, read from MMCR2, is neither 0 nor this process's mark.
pub fn is_foreign_mmcr2(number: u64, value: u64) -> bool {
    value != 0 && value != mmcr2(number) || value & !Mmcr2::USER.0 != 0
}

/// Returns the address of this process's page, which is its mark.
pub fn address(number: u64) -> u64 {
    ADDRESSES + ((number + 1) << ADDRESS_SHIFT)
}

/// Returns the number of the process whose mark the address `value` is.
fn marked_by(value: u64) -> Option<u64> {
    let part = value.wrapping_sub(ADDRESSES) >> ADDRESS_SHIFT;
    let is_code = value & ((1 << ADDRESS_SHIFT) - 1) >= CODE as u64;
    (is_code && (1..=NUMBERS).contains(&part)).then(|| part - 1)
}

/// Returns whether `value` is an address with the mark of another process.
pub fn is_foreign_address(number: u64, value: u64) -> bool {
    marked_by(value).is_some_and(|other| other != number)
}

/// Returns whether `value` is an address with the mark of this process.
pub fn is_address(number: u64, value: u64) -> bool {
    marked_by(value) == Some(number)
}

unsafe extern "C" {
    /// In each of r3 rounds: a direct branch, an indirect one and a conditional one. The program
    /// executes only the copy in its page.
    safe fn fuzz_branches();
    safe fn fuzz_branches_end();
}

global_asm!(
    ".pushsection .text.fuzz_branches, \"ax\", @progbits",
    ".globl fuzz_branches",
    "fuzz_branches:",
    "mflr 0",
    "2:",
    "bcl 20, 31, 3f",
    "3: mflr 4",
    "addi 4, 4, 16",
    "mtlr 4",
    "blr",
    "nop",
    "addi 3, 3, -1",
    "cmpdi 3, 0",
    "bgt 2b",
    "mtlr 0",
    "blr",
    ".globl fuzz_branches_end",
    "fuzz_branches_end:",
    "nop",
    ".popsection",
);

/// This process's page with branches.
#[derive(Clone, Copy)]
pub struct Page(u64);

impl Page {
    /// Maps the page of process `number` and copies the branches into it.
    pub fn map(number: u64) -> Result<Self, Failure> {
        let address = ptr::with_exposed_provenance_mut(address(number) as usize);
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: The flags allow a new mapping only where no other is.
        let page = unsafe { libc::mmap(address, PAGE, protection, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        let code = fuzz_branches as *const u8;
        let length = fuzz_branches_end as *const () as usize - code as usize;
        // SAFETY: The code lies within the program and is shorter than the page, which is ours; it
        // refers to nothing outside of itself. It fits into one cache line of 128 bytes, which the
        // instructions below make visible to instruction fetch.
        unsafe {
            let start = page.cast::<u8>().add(CODE);
            ptr::copy_nonoverlapping(code, start, length);
            asm!("dcbst 0, {0}", "sync", "icbi 0, {0}", "isync", in(reg) start);
            Ok(Self(start as u64))
        }
    }

    /// Returns the address of one of the branches, which the compiler cannot know.
    pub fn any(self, random: &mut Random) -> u64 {
        self.0 + 4 * random.below(8)
    }

    /// Executes `rounds` rounds of the branches.
    pub fn branch(self, rounds: u64) {
        // SAFETY: The page holds a copy of `fuzz_branches`, which uses only registers that a
        // function may change.
        unsafe {
            asm!(
                "mtctr {page}",
                "bctrl",
                page = in(reg) self.0,
                inout("r3") rounds.max(1) => _,
                out("r4") _,
                out("r0") _,
                out("lr") _,
                out("ctr") _,
                out("cr0") _,
            );
        }
    }
}
