// SPDX-License-Identifier: GPL-2.0
//! BPF programs on samples (PERF_EVENT_IOC_SET_BPF). Such a program runs at each sample, reads the
//! event's count, the sample's period and the registers of the interrupted program, and decides
//! whether the kernel keeps the sample. Others read a CPU's event at each switch of tasks, as those
//! of `perf stat --bpf-counters` do.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use ktap::Failure;
use ktap::process::give_way;
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
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_PERF_EVENT_ARRAY: u32 = 4;
const PROG_TYPE_PERF_EVENT: u32 = 7;
const PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
const PSEUDO_MAP_FD: u8 = 1;
const FUNC_MAP_LOOKUP_ELEM: i32 = 1;
const FUNC_PERF_EVENT_READ_VALUE: i32 = 55;
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

const JUMP_IF_ZERO: u8 = 0x15;
const EXIT: u8 = 0x95;

/// Returns the start of a BPF program, after which r7 points to the map's value. If there is none,
/// the program skips `rest` further instructions. r10 points to the end of its stack.
fn lookup(map: &OwnedFd, rest: i16) -> Vec<u64> {
    let mut text = vec![
        // Store the key 0 below the end of the stack.
        insn(0x62, [10, 0], -4, 0),
        move_register(2, 10),
        insn(0x07, [2, 0], 0, -4),
    ];
    text.extend(load_constant(1, PSEUDO_MAP_FD, map.as_raw_fd() as u64));
    text.extend([
        call(FUNC_MAP_LOOKUP_ELEM),
        // An array has every key, but the verifier requires a check of the result.
        insn(JUMP_IF_ZERO, [0, 0], rest + 1, 0),
        move_register(7, 0),
    ]);
    text
}

/// Returns the BPF program on samples. Its r6 points to the context, r7 to the [`Seen`] in the map.
fn program(map: &OwnedFd, keeps_samples: bool) -> Vec<u64> {
    const JUMP_IF_NOT_LESS: u8 = 0x3d;
    const JUMP_IF_LESS: u8 = 0xad;
    let code = known::code();
    let mut text = vec![move_register(6, 1)];
    text.extend(lookup(map, 19));
    text.extend([
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

/// Creates a map with one value. Skips the test where the kernel has no BPF.
fn create_map(kind: u32, value: u32) -> Result<OwnedFd, Failure> {
    let mut attr = [pair(kind, 4), pair(value, 1), 0];
    match bpf(MAP_CREATE, &mut attr) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            Err(Failure::Skip("the kernel has no BPF".into()))
        }
        number => Ok(descriptor(number?)),
    }
}

/// Gets or sets the value of a map.
fn transfer<T>(command: libc::c_int, map: &OwnedFd, value: &mut T) -> io::Result<()> {
    let key = 0_u32;
    let mut attr = [
        map.as_raw_fd() as u64,
        &raw const key as u64,
        &raw mut *value as u64,
        0,
    ];
    bpf(command, &mut attr).map(|_| ())
}

/// Loads a BPF program.
fn load_program(kind: u32, mut text: Vec<u64>) -> io::Result<OwnedFd> {
    let license = c"GPL";
    let mut log = vec![0_u8; 16384];
    let mut attr = [
        // CAST: A program has at most 29 instructions.
        pair(kind, text.len() as u32),
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
    loaded.map(descriptor)
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
        let map = create_map(MAP_TYPE_ARRAY, size_of::<Seen>() as u32)?;
        let program = load_program(PROG_TYPE_PERF_EVENT, program(&map, keeps_samples))?;
        // SAFETY: The call passes two descriptors and no pointer.
        check_status(unsafe { libc::ioctl(event.as_raw_fd(), SET_BPF, program.as_raw_fd()) })?;
        Ok(Attached {
            map,
            _program: program,
        })
    }

    fn seen(&self) -> io::Result<Seen> {
        let mut seen = Seen::default();
        transfer(MAP_LOOKUP_ELEM, &self.map, &mut seen)?;
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

/// Compares the count that the program read when the test last left its CPU.
fn reads_an_event_at_switches() -> Outcome {
    cpu::pin_to(0)?;
    let event = Attr::instructions().on_cpu(0).enabled().open()?;
    let events = create_map(MAP_TYPE_PERF_EVENT_ARRAY, 4)?;
    transfer(MAP_UPDATE_ELEM, &events, &mut event.as_raw_fd())?;
    // The count, and the times enabled and running.
    let map = create_map(MAP_TYPE_ARRAY, 24)?;
    let mut text = lookup(&map, 7);
    text.extend(load_constant(1, PSEUDO_MAP_FD, events.as_raw_fd() as u64));
    text.extend([
        move_constant(2, 0),
        move_register(3, 7),
        move_constant(4, 24),
        call(FUNC_PERF_EVENT_READ_VALUE),
        move_constant(0, 0),
        insn(EXIT, [0, 0], 0, 0),
    ]);
    let program = load_program(PROG_TYPE_RAW_TRACEPOINT, text)?;
    let name = c"sched_switch";
    let mut attr = [name.as_ptr() as u64, program.as_raw_fd() as u64];
    let _attached = descriptor(bpf(RAW_TRACEPOINT_OPEN, &mut attr)?);
    let mut read = [[0_u64; 3]; 2];
    let mut done = 0;
    for values in &mut read {
        done = work::run(100_000_000);
        give_way();
        transfer(MAP_LOOKUP_ELEM, &map, values)?;
    }
    let [[before, ..], [after, enabled, running]] = read;
    let now = event.read()?;
    println!("{read:?}, now {now:?}");
    expect_within("at switches", after - before, done..done * 6 / 5)?;
    check!(after <= now.value && enabled == running && enabled <= now.enabled);
    Ok(())
}

ktap::main! {
    runs_at_each_sample, sees_the_programs_registers, reads_the_count, drops_samples, of_a_cpu,
    reads_an_event_at_switches,
}
