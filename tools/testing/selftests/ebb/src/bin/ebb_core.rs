// SPDX-License-Identifier: GPL-2.0
//! Core dumps of tasks that use EBB: they hold the state of the task that died and
//! of nobody else, wherever it died.

use ebb::EbbContext;
use ebb::Pmc;
use ebb::reg::Mmcr2;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ebb_selftests::tracee::EbbState;
use ebb_selftests::tracee::NT_PPC_EBB;
use ebb_selftests::tracee::NT_PPC_PMU;
use ebb_selftests::tracee::PmuState;
use ktap::Failure;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::process;
use ktap::process::Peer;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;

const PERIOD: u32 = 5000;
const OTHER_TAG: Mmcr2 = Mmcr2::freeze_problem(Pmc::Pmc4);

/// A tag for each of up to 8 tasks, none of them [`OTHER_TAG`] or 0.
fn tag(number: usize) -> Mmcr2 {
    session::tag(number + 1, &[Pmc::Pmc1, Pmc::Pmc4])
}

const PATTERN: &str = "/proc/sys/kernel/core_pattern";
const FOLDER: &str = "/tmp/ebb_core";

/// Core dumps go to files of ours while this lives.
struct Cores {
    before: String,
}

impl Cores {
    fn collect() -> io::Result<Self> {
        let before = fs::read_to_string(PATTERN)?;
        fs::create_dir_all(FOLDER)?;
        fs::write(PATTERN, format!("{FOLDER}/%p"))?;
        Ok(Self { before })
    }

    /// The notes of the dump of the process `pid`, which must be there.
    fn notes(&self, pid: libc::pid_t) -> Result<Notes, Failure> {
        let path = format!("{FOLDER}/{pid}");
        let dump = fs::read(&path)?;
        notes_of(&dump).ok_or("no notes").or_fail(&path)
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        // Nobody is left to tell of a failure.
        let _ = fs::write(PATTERN, &self.before);
        let _ = fs::remove_dir_all(FOLDER);
    }
}

/// What a core dump has of EBBs, a value for each thread that has it.
#[derive(Debug, Default)]
struct Notes {
    ebb: Vec<EbbState>,
    pmu: Vec<PmuState>,
}

fn number<const N: usize>(data: &[u8], at: usize) -> Option<usize> {
    let bytes: [u8; N] = data.get(at..at + N)?.try_into().ok()?;
    let mut word = [0; 8];
    word.get_mut(..N)?.copy_from_slice(&bytes);
    usize::try_from(u64::from_le_bytes(word)).ok()
}

/// The notes of an ELF file (64 bit, little endian; System V ABI, chapters 4 and 5).
fn notes_of(dump: &[u8]) -> Option<Notes> {
    const PT_NOTE: usize = 4;
    let headers = number::<8>(dump, 32)?;
    let (size, count) = (number::<2>(dump, 54)?, number::<2>(dump, 56)?);
    let segment = (0..count)
        .map(|i| headers + i * size)
        .find(|&header| number::<4>(dump, header) == Some(PT_NOTE))?;
    let offset = number::<8>(dump, segment + 8)?;
    let length = number::<8>(dump, segment + 32)?;
    let segment = dump.get(offset..offset + length)?;

    let mut notes = Notes::default();
    let mut at = 0;
    while at + 12 <= segment.len() {
        let [name, value, kind] =
            [0, 4, 8].map(|field| number::<4>(segment, at + field).unwrap_or(0));
        let begin = at + 12 + name.next_multiple_of(4);
        let words: Vec<u64> = segment
            .get(begin..begin + value)?
            .chunks_exact(8)
            .map(|word| word.try_into().map_or(0, u64::from_le_bytes))
            .collect();
        match u32::try_from(kind).ok()? {
            NT_PPC_EBB => notes.ebb.push(EbbState::from_words(&words)?),
            NT_PPC_PMU => notes.pmu.push(PmuState::from_words(&words)?),
            _ => {}
        }
        at = begin + value.next_multiple_of(4);
    }
    Some(notes)
}

/// Has this process leave a core dump when it dies.
fn leave_a_core() -> Outcome {
    let limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: `limit` lives through the call; the default action is no function.
    ktap::os_result(unsafe {
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        libc::setrlimit(libc::RLIMIT_CORE, &limit)
    })?;
    Ok(())
}

/// The task dies here, after it was off its CPU: what a dump shows is from then.
fn crash() {
    process::give_way();
    // SAFETY: sends a signal to this thread, by which the process ends.
    unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGSEGV) };
}

fn crash_in_handler(context: &mut EbbContext<'_>) {
    if context.number() == 30 {
        // SAFETY: it is not: nothing is there, and the process ends.
        unsafe { std::ptr::without_provenance_mut::<u64>(8).write_volatile(0) };
    }
}

/// A neighbour on this CPU with many EBBs and a tag of its own, until killed.
fn neighbour() -> Result<Peer, Failure> {
    cpu::pin()?;
    let mut peer = Peer::spawn(|parent| {
        let _event = session::cycles(PERIOD)?;
        OTHER_TAG.write();
        parent.tell()?;
        loop {
            session::work();
        }
    })?;
    peer.listen()?;
    Ok(peer)
}

/// Gets EBBs until it dies in its handler.
fn die_in_handler(tag: Mmcr2) -> Outcome {
    leave_a_core()?;
    let _event = session::begin(CYCLES, PERIOD, crash_in_handler)?;
    tag.write();
    session::wait_for(10, PERIOD)?;
    for _ in 0..20 {
        process::give_way();
    }
    session::wait_for(1000, PERIOD)
}

/// Waits until the process has died of a fault; returns what its core dump has.
fn notes_of_the_dead(cores: &Cores, mut peer: Peer) -> Result<Notes, Failure> {
    let pid = peer.pid();
    let status = peer.wait()?;
    let fault = status.signal() == Some(libc::SIGSEGV);
    check!(fault && status.core_dumped(), "{status}");
    cores.notes(pid)
}

/// Eight tasks die in their handlers, all on one CPU.
fn in_handler() -> Outcome {
    let entry = session::handler_address()?;
    let cores = Cores::collect()?;
    let _neighbour = neighbour()?;
    let mut peers = Vec::new();
    for number in 0..8 {
        peers.push(Peer::spawn(|_| die_in_handler(tag(number)))?);
    }
    for (number, peer) in (0..).zip(peers) {
        let notes = notes_of_the_dead(&cores, peer)?;
        check!(notes.ebb.len() == 1 && notes.pmu.len() == 1, "{notes:x?}");
        notes.ebb[0].check_own(entry)?;
        notes.pmu[0].check_own(tag(number))?;
    }
    Ok(())
}

/// A task without EBBs has nothing of them in its dump, although its parent and
/// its neighbour have.
fn without_ebb() -> Outcome {
    let cores = Cores::collect()?;
    let _neighbour = neighbour()?;
    let event = session::cycles(PERIOD)?;
    tag(3).write();
    for _ in 0..5 {
        let child = Peer::spawn(|_| {
            leave_a_core()?;
            crash();
            Ok(())
        })?;
        let notes = notes_of_the_dead(&cores, child)?;
        check!(notes.ebb.is_empty(), "{notes:x?}");
        check!(notes.pmu == [PmuState::default()], "{notes:x?}");
    }
    session::end(event)
}

/// Of two threads one has EBBs, and the other one dies.
fn another_thread() -> Outcome {
    let entry = session::handler_address()?;
    let cores = Cores::collect()?;
    let _neighbour = neighbour()?;
    let child = Peer::spawn(|_| {
        leave_a_core()?;
        let (told, tell) = io::pipe()?;
        std::thread::spawn(move || -> Outcome {
            let _event = session::cycles(PERIOD)?;
            tag(1).write();
            session::wait_for(5, PERIOD)?;
            process::give_way();
            drop(tell);
            loop {
                session::work();
            }
        });
        io::copy(&mut &told, &mut io::sink())?;
        crash();
        Ok(())
    })?;
    let mut notes = notes_of_the_dead(&cores, child)?;
    check!(notes.ebb.len() == 1 && notes.pmu.len() == 2, "{notes:x?}");
    notes.ebb[0].check_own(entry)?;
    notes.pmu.sort_by_key(|pmu| pmu.used_ebb);
    check!(notes.pmu[0] == PmuState::default(), "{notes:x?}");
    notes.pmu[1].check_own(tag(1))
}

/// A task that has closed its event shows what was its own, or nothing.
fn after_close() -> Outcome {
    let entry = session::handler_address()?;
    let cores = Cores::collect()?;
    let _neighbour = neighbour()?;
    let child = Peer::spawn(|_| {
        leave_a_core()?;
        let event = session::cycles(PERIOD)?;
        tag(2).write();
        session::wait_for(5, PERIOD)?;
        session::end(event)?;
        crash();
        Ok(())
    })?;
    let notes = notes_of_the_dead(&cores, child)?;
    notes
        .ebb
        .iter()
        .try_for_each(|ebb| ebb.check_closed(entry))?;
    notes
        .pmu
        .iter()
        .try_for_each(|pmu| pmu.check_closed(tag(2)))
}

ktap::main! {
    first: session::require_ebb;
    in_handler, without_ebb, another_thread, after_close,
}
