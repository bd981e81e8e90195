// SPDX-License-Identifier: GPL-2.0
//! Another process under `ptrace(2)`, and the EBB and PMU state that the kernel keeps for it.
//!
//! Layouts: `ebb_get` and `pmu_get` in the kernel's
//! `arch/powerpc/kernel/ptrace/ptrace-view.c`.

use crate::session;
use ebb::reg::Bescr;
use ebb::reg::Mmcr2;
use ktap::Failure;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
use ktap::process::Link;
use ktap::process::Peer;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use std::time::Instant;

/// Register set with [`EbbState`] (`NT_PPC_EBB` in `linux/elf.h`).
const NT_PPC_EBB: u32 = 0x106;
/// Register set with [`PmuState`] (`NT_PPC_PMU`).
const NT_PPC_PMU: u32 = 0x107;
const NT_PRSTATUS: u32 = 1;

/// Bits of MMCR0 that a program may set: FC, PMAE, PMAO.
const MMCR0_USER: u32 = 0x8400_0080;

/// EBBRR, EBBHR and BESCR of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct EbbState {
    /// Address to which the handler returns.
    pub ebbrr: u64,
    /// Address of the handler.
    pub ebbhr: u64,
    /// Enables and occurred exceptions.
    pub bescr: u64,
}

/// PMU state that the kernel keeps for a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PmuState {
    /// Sampled instruction address.
    pub siar: u64,
    /// Sampled data address.
    pub sdar: u64,
    /// Sampled instruction event.
    pub sier: u64,
    /// The task's bits of MMCR2.
    pub mmcr2: u64,
    /// The task's bits of MMCR0.
    pub mmcr0: u32,
    /// Whether the task has had an EBB event. The kernel keeps it beside MMCR0, and so shows both.
    pub used_ebb: u32,
}

impl EbbState {
    /// Converts the words of the register set.
    #[must_use]
    fn from_words(words: &[u64]) -> Option<Self> {
        match *words {
            [ebbrr, ebbhr, bescr] => Some(Self {
                ebbrr,
                ebbhr,
                bescr,
            }),
            _ => None,
        }
    }

    /// Fails unless this is the state of a task with an EBB event and `handler`.
    pub fn check_own(&self, handler: u64) -> Outcome {
        let known = Bescr::GE | Bescr::PME | Bescr::PMEO;
        check!(self.ebbhr == handler, "not {handler:#x}: {self:x?}");
        check!(Bescr(self.bescr).without(known).0 == 0, "{self:x?}");
        Ok(())
    }

    /// Fails unless this is a state that a task may have after it closed its event: EBBs off, and
    /// its own handler or none.
    pub fn check_closed(&self, handler: u64) -> Outcome {
        check!([handler, 0].contains(&self.ebbhr), "{self:x?}");
        check!(!Bescr(self.bescr).has(Bescr::GE), "{self:x?}");
        Ok(())
    }
}

impl PmuState {
    /// Converts the words of the register set.
    #[must_use]
    fn from_words(words: &[u64]) -> Option<Self> {
        match *words {
            [siar, sdar, sier, mmcr2, mmcr0] => Some(Self {
                siar,
                sdar,
                sier,
                mmcr2,
                // CAST: Both fields are halves of a word with 64 bits.
                mmcr0: mmcr0 as u32,
                used_ebb: (mmcr0 >> 32) as u32,
            }),
            _ => None,
        }
    }

    /// Returns a state with all bits that a tracer can set, and `used_ebb`.
    #[must_use]
    pub fn ones(used_ebb: u32) -> Self {
        Self {
            siar: u64::MAX,
            sdar: u64::MAX,
            sier: u64::MAX,
            mmcr2: u64::MAX,
            mmcr0: u32::MAX,
            used_ebb,
        }
    }

    /// Fails if the state has bits that a program may not set.
    pub fn check_user_bits(&self) -> Outcome {
        check!(self.mmcr0 & !MMCR0_USER == 0, "MMCR0: {self:x?}");
        check!(self.mmcr2 & !Mmcr2::USER.0 == 0, "MMCR2: {self:x?}");
        Ok(())
    }

    /// Fails unless this is the state of a task with an EBB event and `mmcr2` in MMCR2.
    pub fn check_own(&self, mmcr2: Mmcr2) -> Outcome {
        check!(self.mmcr2 == mmcr2.0, "not {mmcr2:?}: {self:x?}");
        check!(self.used_ebb == 1, "{self:x?}");
        self.check_user_bits()
    }

    /// Fails unless this is a state that a task may have after it closed its event: its own MMCR2
    /// or none.
    pub fn check_closed(&self, mmcr2: Mmcr2) -> Outcome {
        check!([mmcr2.0, 0].contains(&self.mmcr2), "{self:x?}");
        self.check_user_bits()
    }
}

/// A process that is being traced. It is detached on drop.
pub struct Tracee {
    pid: libc::pid_t,
    attached: bool,
}

impl Tracee {
    /// Stops `pid`, a child, at any instruction.
    pub fn attach(pid: libc::pid_t) -> Result<Self, Failure> {
        // SAFETY: The request takes no pointers.
        unsafe { request(libc::PTRACE_ATTACH, pid, 0, 0) }?;
        let tracee = Self {
            pid,
            attached: true,
        };
        tracee.wait_stopped()?;
        Ok(tracee)
    }

    /// Waits for the next stop; returns its signal.
    pub fn wait_stopped(&self) -> Result<libc::c_int, Failure> {
        let mut status = 0;
        // SAFETY: `status` lives through the call.
        match unsafe { libc::waitpid(self.pid, &mut status, libc::__WALL) } {
            -1 => Err(io::Error::last_os_error().into()),
            _ if libc::WIFSTOPPED(status) => Ok(libc::WSTOPSIG(status)),
            _ => Err(Failure::Fail(format!("the tracee ended: {status:#x}"))),
        }
    }

    /// Runs the process until the next stop, with the signal `signal` or none.
    pub fn go_on(&self, signal: libc::c_int) -> Outcome {
        // SAFETY: The request takes no pointers.
        unsafe { request(libc::PTRACE_CONT, self.pid, 0, signal as usize) }.or_fail("continue")
    }

    /// Runs one instruction, and waits until it is done. Drops signals to stop and to continue,
    /// which `attach` and others send.
    pub fn step(&self) -> Outcome {
        loop {
            // SAFETY: The request takes no pointers.
            unsafe { request(libc::PTRACE_SINGLESTEP, self.pid, 0, 0) }?;
            match self.wait_stopped()? {
                libc::SIGTRAP => return Ok(()),
                libc::SIGSTOP | libc::SIGCONT => {}
                signal => return ktap::fail(format!("signal {signal} in a step")),
            }
        }
    }

    /// Returns the address of the next instruction.
    pub fn nip(&self) -> Result<u64, Failure> {
        const NIP: usize = 32;
        let words = self.words(NT_PRSTATUS)?;
        words.get(NIP).copied().ok_or("short").or_fail("registers")
    }

    /// Returns the memory of the process.
    pub fn memory(&self) -> io::Result<Memory> {
        let path = format!("/proc/{}/mem", self.pid);
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Memory(file))
    }

    /// Returns the EBB registers of the process.
    pub fn ebb(&self) -> io::Result<EbbState> {
        let words = self.words(NT_PPC_EBB)?;
        EbbState::from_words(&words).ok_or_else(|| io::Error::other(format!("{words:x?}")))
    }

    /// Returns the PMU registers of the process.
    pub fn pmu(&self) -> io::Result<PmuState> {
        let words = self.words(NT_PPC_PMU)?;
        PmuState::from_words(&words).ok_or_else(|| io::Error::other(format!("{words:x?}")))
    }

    /// Sets the PMU registers of the process.
    pub fn set_pmu(&self, state: &PmuState) -> io::Result<()> {
        self.set(NT_PPC_PMU, state)
    }

    /// Sets the EBB registers of the process.
    pub fn set_ebb(&self, state: &EbbState) -> io::Result<()> {
        self.set(NT_PPC_EBB, state)
    }

    fn words(&self, set: u32) -> io::Result<Vec<u64>> {
        let mut words = vec![0; 64];
        let mut part = libc::iovec {
            iov_base: words.as_mut_ptr().cast(),
            iov_len: size_of_val(words.as_slice()),
        };
        // SAFETY: The vector describes memory of ours, and lives through the call.
        unsafe { self.regset(libc::PTRACE_GETREGSET, set, &mut part) }?;
        words.truncate(part.iov_len / size_of::<u64>());
        Ok(words)
    }

    fn set<T: Copy>(&self, set: u32, value: &T) -> io::Result<()> {
        let mut value = *value;
        let mut part = libc::iovec {
            iov_base: (&raw mut value).cast(),
            iov_len: size_of::<T>(),
        };
        // SAFETY: The vector describes a variable that lives through the call.
        unsafe { self.regset(libc::PTRACE_SETREGSET, set, &mut part) }
    }

    /// # Safety
    ///
    /// `part` must describe memory that the request may read and write.
    unsafe fn regset(&self, what: u32, set: u32, part: &mut libc::iovec) -> io::Result<()> {
        // SAFETY: The caller guarantees that `part` describes such memory.
        unsafe { request(what, self.pid, set as usize, &raw mut *part as usize) }
    }

    /// Detaches from the process.
    pub fn detach(mut self) -> Outcome {
        self.attached = false;
        // SAFETY: The request takes no pointers.
        unsafe { request(libc::PTRACE_DETACH, self.pid, 0, 0) }.or_fail("detach")
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        if self.attached {
            // SAFETY: The request takes no pointers; it fails if the process has ended, which needs
            // no handling.
            let _ = unsafe { request(libc::PTRACE_DETACH, self.pid, 0, 0) };
        }
    }
}

/// Memory of a process, including its code.
pub struct Memory(File);

impl Memory {
    /// Reads a word.
    pub fn word(&self, address: u64) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.0.read_exact_at(&mut bytes, address)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Writes a word.
    pub fn set_word(&self, address: u64, word: u32) -> io::Result<()> {
        self.0.write_all_at(&word.to_le_bytes(), address)
    }
}

/// # Safety
///
/// `address` and `data` must be what `ptrace(2)` requires for this request.
unsafe fn request(what: u32, pid: libc::pid_t, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: The caller guarantees valid arguments.
    ktap::os_result(unsafe { libc::ptrace(what, pid, address, data) } as libc::c_int)?;
    Ok(())
}

/// Cycles between two EBBs of [`busy_peer`].
pub const PERIOD: u32 = 5000;

/// Takes EBBs with `tag` in MMCR2 until the parent sends a message. Fails unless all EBBs have come
/// by then.
fn busy(parent: &mut Link, tag: Mmcr2) -> Outcome {
    let event = session::cycles(PERIOD)?;
    tag.write();
    session::wait_for(5, PERIOD)?;
    parent.tell()?;
    // The parent sends a message only when its tracing is done.
    while !parent.is_told() {
        session::work_for(50_000);
        check!(Mmcr2::read() == tag, "{:?}", Mmcr2::read());
    }
    parent.listen()?;
    session::wait_for(ebb::count() + 100, PERIOD)?;
    session::end(event)
}

/// Spawns a process that takes EBBs with `tag` in MMCR2 until the caller sends it a message, and
/// waits until it has begun.
pub fn busy_peer(tag: Mmcr2) -> Result<Peer, Failure> {
    let mut peer = Peer::spawn(|parent| busy(parent, tag))?;
    peer.listen()?;
    Ok(peer)
}

/// Waits until all processes have ended. If `progress` does not change for two minutes they hang:
/// then prints the state of each and returns `false`. `pid_of` returns the process of an index.
pub fn watch(
    peers: &[Peer],
    progress: impl Fn() -> u64,
    pid_of: impl Fn(usize) -> libc::pid_t,
) -> bool {
    const SILENCE: Duration = Duration::from_secs(120);
    let mut seen = (0, Instant::now());
    while !peers.iter().all(Peer::has_ended) {
        std::thread::sleep(Duration::from_millis(20));
        let now = progress();
        if now != seen.0 {
            seen = (now, Instant::now());
        } else if seen.1.elapsed() > SILENCE {
            println!("no progress in {} s", SILENCE.as_secs());
            for (number, peer) in peers.iter().enumerate() {
                if !peer.has_ended() {
                    println!("process {number} is {}", whereabouts(pid_of(number)));
                }
            }
            return false;
        }
    }
    true
}

/// Describes where a process is that hangs.
fn whereabouts(pid: libc::pid_t) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    match Tracee::attach(pid) {
        Ok(tracee) => {
            let nip = tracee.nip().unwrap_or(0);
            let (ebb, pmu) = (tracee.ebb(), tracee.pmu());
            format!("in state {state:?} at {nip:#x}, {ebb:x?} {pmu:x?}")
        }
        Err(error) => format!("in state {state:?}, cannot be traced: {error:?}"),
    }
}
