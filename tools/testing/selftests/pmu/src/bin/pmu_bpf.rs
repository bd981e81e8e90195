// SPDX-License-Identifier: GPL-2.0
//! BPF programs on samples (PERF_EVENT_IOC_SET_BPF). Such a program runs at each sample, reads the
//! event's count, the sample's period and the registers of the interrupted program, and decides
//! whether the kernel keeps the sample.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use ktap::Failure;
use pmu_selftests::check_status;
use pmu_selftests::fields::sample::IP;
use pmu_selftests::known;
use pmu_selftests::known_samples::PAGES;
use pmu_selftests::known_samples::PERIOD;
use pmu_selftests::known_samples::run;
use pmu_selftests::known_samples::sampling;
use pmu_selftests::prelude::*;

/// Commands of bpf(2) and their arguments (linux/bpf.h).
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const PROG_LOAD: libc::c_int = 5;
const MAP_TYPE_ARRAY: u32 = 2;
const PROG_TYPE_PERF_EVENT: u32 = 7;
const PSEUDO_MAP_FD: u8 = 1;
const FUNC_MAP_LOOKUP_ELEM: i32 = 1;
const FUNC_PERF_PROG_READ_VALUE: i32 = 56;
/// PERF_EVENT_IOC_SET_BPF.
const SET_BPF: libc::Ioctl = 0x8004_2408_u32 as libc::Ioctl;

/// Offsets in `struct bpf_perf_event_data`: `regs` is a `struct user_pt_regs` of 44 words.
const NIP: i16 = 32 * 8;
const SAMPLE_PERIOD: i16 = 44 * 8;

/// Value in the BPF program's map.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    /// Number of runs of the BPF program.
    runs: u64,
    /// Sum of the samples' periods.
    periods: u64,
    /// Number of runs that interrupted the known loop.
    in_loop: u64,
    /// The event's count at the last run, and its times enabled and running.
    count: [u64; 3],
}

/// Calls bpf(2).
fn bpf(command: libc::c_int, attr: &mut [u64]) -> io::Result<libc::c_int> {
    // SAFETY: The memory that `attr` points to belongs to the callers, and lives during the call.
    let status =
        unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_mut_ptr(), size_of_val(attr)) };
    // CAST: The result is a descriptor or -1. Both fit into an int.
    ktap::os_result(status as libc::c_int)
}

fn descriptor(number: libc::c_int) -> OwnedFd {
    // SAFETY: The kernel has just created the descriptor, and no other value owns it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Encodes an instruction (`struct bpf_insn`).
fn insn(code: u8, registers: [u8; 2], offset: i16, immediate: i32) -> u64 {
    let [dst, src] = registers;
    u64::from(code)
        | u64::from(dst | src << 4) << 8
        | u64::from(offset as u16) << 16
        | u64::from(immediate as u32) << 32
}

/// Encodes the load of a 64-bit constant, or of a map that is given by its descriptor.
fn load_constant(dst: u8, kind: u8, value: u64) -> [u64; 2] {
    let low = insn(0x18, [dst, kind], 0, value as u32 as i32);
    [low, insn(0, [0, 0], 0, (value >> 32) as u32 as i32)]
}

fn move_register(dst: u8, src: u8) -> u64 {
    insn(0xbf, [dst, src], 0, 0)
}

fn move_constant(dst: u8, value: i32) -> u64 {
    insn(0xb7, [dst, 0], 0, value)
}

fn load(dst: u8, src: u8, offset: i16) -> u64 {
    insn(0x79, [dst, src], offset, 0)
}

/// Encodes an atomic addition of register `src` to a word of memory.
fn add_to_memory(dst: u8, offset: i16, src: u8) -> u64 {
    insn(0xdb, [dst, src], offset, 0)
}

fn call(function: i32) -> u64 {
    insn(0x85, [0, 0], 0, function)
}

/// Returns the BPF program. Its r6 points to the context, r7 to the [`Seen`] in the map, and r10 to
/// the end of its stack.
fn program(map: &OwnedFd, keeps_samples: bool) -> Vec<u64> {
    const JUMP_IF_ZERO: u8 = 0x15;
    const JUMP_IF_NOT_LESS: u8 = 0x3d;
    const JUMP_IF_LESS: u8 = 0xad;
    const EXIT: u8 = 0x95;
    let code = known::code();
    let mut text = vec![
        move_register(6, 1),
        // Store the key 0 below the end of the stack.
        insn(0x62, [10, 0], -4, 0),
        move_register(2, 10),
        insn(0x07, [2, 0], 0, -4),
    ];
    text.extend(load_constant(1, PSEUDO_MAP_FD, map.as_raw_fd() as u64));
    text.extend([
        call(FUNC_MAP_LOOKUP_ELEM),
        // An array has every key, but the verifier requires a check of the result.
        insn(JUMP_IF_ZERO, [0, 0], 20, 0),
        move_register(7, 0),
        move_constant(1, 1),
        add_to_memory(7, 0, 1),
        load(1, 6, SAMPLE_PERIOD),
        add_to_memory(7, 8, 1),
        load(1, 6, NIP),
    ]);
    text.extend(load_constant(2, 0, code.start));
    text.extend([insn(JUMP_IF_LESS, [1, 2], 5, 0)]);
    text.extend(load_constant(2, 0, code.end));
    text.extend([
        insn(JUMP_IF_NOT_LESS, [1, 2], 2, 0),
        move_constant(1, 1),
        add_to_memory(7, 16, 1),
        move_register(1, 6),
        move_register(2, 7),
        insn(0x07, [2, 0], 0, 24),
        move_constant(3, 24),
        call(FUNC_PERF_PROG_READ_VALUE),
        move_constant(0, i32::from(keeps_samples)),
        insn(EXIT, [0, 0], 0, 0),
    ]);
    text
}

/// A BPF program and its map. The program is attached until the event is closed.
struct Attached {
    map: OwnedFd,
    _program: OwnedFd,
}

impl Attached {
    /// Attaches the program to the event. Skips the test where the kernel has no BPF.
    fn attach(event: &Event, keeps_samples: bool) -> Result<Self, Failure> {
        // CAST: The size is 48 bytes.
        let value = size_of::<Seen>() as u32;
        let mut attr = [pair(MAP_TYPE_ARRAY, 4), pair(value, 1), 0];
        let map = match bpf(MAP_CREATE, &mut attr) {
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                return Err(Failure::Skip("the kernel has no BPF".into()));
            }
            number => descriptor(number?),
        };
        let mut text = program(&map, keeps_samples);
        let license = c"GPL";
        let mut log = vec![0_u8; 16384];
        let mut attr = [
            // CAST: The program has 29 instructions.
            pair(PROG_TYPE_PERF_EVENT, text.len() as u32),
            text.as_mut_ptr() as u64,
            license.as_ptr() as u64,
            pair(1, log.len() as u32),
            log.as_mut_ptr() as u64,
            0,
        ];
        let loaded = bpf(PROG_LOAD, &mut attr);
        if loaded.is_err() {
            println!("{}", String::from_utf8_lossy(&log).trim_end_matches('\0'));
        }
        let program = descriptor(loaded?);
        // SAFETY: The call passes two descriptors and no pointer.
        check_status(unsafe { libc::ioctl(event.as_raw_fd(), SET_BPF, program.as_raw_fd()) })?;
        Ok(Attached {
            map,
            _program: program,
        })
    }

    fn seen(&self) -> io::Result<Seen> {
        let (key, mut seen) = (0_u32, Seen::default());
        let mut attr = [
            self.map.as_raw_fd() as u64,
            &raw const key as u64,
            &raw mut seen as u64,
            0,
        ];
        bpf(MAP_LOOKUP_ELEM, &mut attr)?;
        Ok(seen)
    }
}

/// Samples the known loop. Returns the number of samples, the event's count and what the program
/// recorded. Fails if samples were lost.
fn sampled(attr: Attr, keeps_samples: bool) -> Result<(usize, u64, Seen), Failure> {
    let mut recorder = Recorder::open(attr, PAGES)?;
    let program = Attached::attach(&recorder.event, keeps_samples)?;
    let records = recorder.records(run)?;
    let samples = records.iter().filter(|record| record.is_sample()).count();
    check!(
        records.iter().all(|record| !record.is_loss()),
        "records were lost"
    );
    let (count, seen) = (recorder.event.read()?.value, program.seen()?);
    println!("{samples} samples, count {count}, {seen:?}");
    check!(seen.runs > 0, "the program did not run");
    Ok((samples, count, seen))
}

fn runs_at_each_sample() -> Outcome {
    let (samples, count, seen) = sampled(sampling(IP), true)?;
    check!(seen.runs == samples as u64, "{} runs", seen.runs);
    check!(
        seen.periods <= count && seen.periods == seen.runs * PERIOD,
        "{} events in {} periods",
        seen.periods,
        seen.runs
    );
    Ok(())
}

fn sees_the_programs_registers() -> Outcome {
    let (_, _, seen) = sampled(sampling(IP), true)?;
    check!(
        seen.in_loop * 4 >= seen.runs * 3,
        "{} of {} runs in the loop",
        seen.in_loop,
        seen.runs
    );
    Ok(())
}

fn reads_the_count() -> Outcome {
    let (_, count, seen) = sampled(sampling(IP), true)?;
    let [value, enabled, running] = seen.count;
    check!(
        value >= seen.periods && value <= count,
        "{value} at the last run, {count} at the end"
    );
    check!(enabled > 0 && running == enabled, "{running} of {enabled}");
    Ok(())
}

fn drops_samples() -> Outcome {
    let (samples, _, _) = sampled(sampling(IP), false)?;
    check!(samples == 0, "{samples} samples are there");
    Ok(())
}

/// Tests an event of a CPU, which samples any task.
fn of_a_cpu() -> Outcome {
    cpu::pin_to(0)?;
    let (samples, _, seen) = sampled(sampling(IP).on_cpu(0), true)?;
    check!(seen.runs == samples as u64, "{} runs", seen.runs);
    Ok(())
}

ktap::main! {
    runs_at_each_sample, sees_the_programs_registers, reads_the_count, drops_samples, of_a_cpu,
}
