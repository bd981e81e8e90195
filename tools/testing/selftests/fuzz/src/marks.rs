// SPDX-License-Identifier: GPL-2.0
//! What a process leaves wherever it can, by which another one knows that it sees what is not its
//! own: values of counters, a value of MMCR2, addresses of branches.
//!
//! A process has a number, below [`NUMBERS`], that its children and threads have too.

use std::arch::asm;
use std::arch::global_asm;
use std::io;
use std::ptr;

use ebb::reg::Mmcr2;
use ktap::Failure;
use pmu_selftests::machine;

use pmu_selftests::random::Random;

/// Numbers of processes. What a counter has that overflows soon is no mark.
pub const NUMBERS: u64 = 23;

/// Counters with a mark are in [COUNTERS, COUNTERS + NUMBERS << COUNTER_SHIFT): a process writes
/// the first value of its part. By the time that it has run it is known how far it may have counted
/// on from there ([`Pace`]).
const COUNTERS: u64 = 0x2000_0000;
const COUNTER_SHIFT: u32 = 26;

/// Other values that processes write are this or less, or negative.
const UNMARKED: u64 = 0x03ff_ffff;
const NEGATIVE: u64 = 0x8000_0000;

/// Each process has a page with branches, at this address and 2^24 times its number and one. The
/// compiler has such addresses, and sums of them, in everybody's registers and stacks, so that the
/// branches are further on.
const ADDRESSES: u64 = 0x5e5a_0000_0000;
const ADDRESS_SHIFT: u32 = 24;
const PAGE: usize = 0x1_0000;
const CODE: usize = 128;

/// What a process writes to its counters.
pub fn counter(number: u64) -> u64 {
    COUNTERS + (number << COUNTER_SHIFT)
}

/// How far a counter with this one's mark has counted on; `None` if it has no mark, as after a look
/// without failure it has no other one's.
pub fn counted(number: u64, value: u64) -> Option<u64> {
    value
        .checked_sub(counter(number))
        .filter(|_| value < COUNTERS + (NUMBERS << COUNTER_SHIFT))
}

/// `value` as what a process may write to its counters that is no mark.
pub fn unmarked(value: u64) -> u64 {
    value & (NEGATIVE | UNMARKED)
}

/// Whether `value`, of a counter, has another one's mark, and cannot be what the calling thread
/// wrote and has counted on from, by no more than `most`.
pub fn is_foreign_counter(number: u64, value: u64, most: u64) -> bool {
    let part = value.wrapping_sub(COUNTERS) >> COUNTER_SHIFT;
    if part >= NUMBERS || part == number {
        return false;
    }
    let is_own = |written: u64| value.wrapping_sub(written) <= most;
    !is_own(counter(number)) && !is_own(UNMARKED)
}

/// Of the others' marks those, in percent, that a thread would know as such.
pub fn told(number: u64, most: u64) -> u64 {
    let is_told = |&other: &u64| is_foreign_counter(number, counter(other), most);
    (0..NUMBERS).filter(is_told).count() as u64 * 100 / (NUMBERS - 1)
}

/// How fast a counter counts at most: so many in each nanosecond that its thread runs. Events are on
/// the PMU only then.
#[derive(Clone, Copy)]
pub struct Pace(u64);

impl Pace {
    /// That of this machine. An emulator counts one cycle, or with its instruction clock one
    /// instruction, in a nanosecond; a processor of 5 GHz completes eight in each cycle.
    pub fn of_machine() -> io::Result<Self> {
        Ok(Self(if machine::is_emulated()? { 1 } else { 40 }))
    }

    /// Whether this machine is an emulator's.
    pub fn is_of_emulator(self) -> bool {
        self.0 == 1
    }

    /// The most that the calling thread's counters have counted so far. The kernel measures its time
    /// from one switch of tasks to the next, and the PMU runs some instructions later on either
    /// side: twice that is more than enough.
    pub fn most_counted(self) -> u64 {
        2 * self.0 * time_run()
    }
}

/// The nanoseconds that the calling thread has run.
pub fn time_run() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What a process writes to MMCR2: the bits of its number and one, of those that programs have.
pub fn mmcr2(number: u64) -> u64 {
    let bits = (0..6).map(|bit| (1 << 62 >> (9 * bit)) * ((number + 1) >> bit & 1));
    bits.sum()
}

/// Whether `value`, of MMCR2, is neither this one's nor none.
pub fn is_foreign_mmcr2(number: u64, value: u64) -> bool {
    value != 0 && value != mmcr2(number) || value & !Mmcr2::USER.0 != 0
}

/// An address that is this process's mark.
pub fn address(number: u64) -> u64 {
    ADDRESSES + ((number + 1) << ADDRESS_SHIFT)
}

/// Whose mark the address `value` has.
fn marked_by(value: u64) -> Option<u64> {
    let part = value.wrapping_sub(ADDRESSES) >> ADDRESS_SHIFT;
    let is_code = value & ((1 << ADDRESS_SHIFT) - 1) >= CODE as u64;
    (is_code && (1..=NUMBERS).contains(&part)).then(|| part - 1)
}

/// Whether `value` is an address that has another one's mark.
pub fn is_foreign_address(number: u64, value: u64) -> bool {
    marked_by(value).is_some_and(|other| other != number)
}

/// Whether it is one that has this one's.
pub fn is_address(number: u64, value: u64) -> bool {
    marked_by(value) == Some(number)
}

unsafe extern "C" {
    /// Each round of r3 is a direct branch, an indirect one and a conditional one. It is never
    /// executed here.
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

/// The page with branches of this process.
#[derive(Clone, Copy)]
pub struct Page(u64);

impl Page {
    /// Maps it.
    pub fn map(number: u64) -> Result<Self, Failure> {
        let address = ptr::with_exposed_provenance_mut(address(number) as usize);
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: a new mapping where nothing is.
        let page = unsafe { libc::mmap(address, PAGE, protection, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        let code = fuzz_branches as *const u8;
        let length = fuzz_branches_end as *const () as usize - code as usize;
        // SAFETY: the code is within the program and shorter than the page, which is ours; it
        // refers to nothing outside of itself. The caches are told of it, a line of 128 bytes.
        unsafe {
            let start = page.cast::<u8>().add(CODE);
            ptr::copy_nonoverlapping(code, start, length);
            asm!("dcbst 0, {0}", "sync", "icbi 0, {0}", "isync", in(reg) start);
            Ok(Self(start as u64))
        }
    }

    /// An address of its branches, which the compiler cannot know.
    pub fn any(self, random: &mut Random) -> u64 {
        self.0 + 4 * random.below(8)
    }

    /// Executes `rounds` of its branches.
    pub fn branch(self, rounds: u64) {
        // SAFETY: the page holds a function of this kind, which uses registers only that a
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
