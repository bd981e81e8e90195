// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ebbprof collect`: writes the samples of a program that records itself. Only `ebbprof_start` of
//! libebbprof runs it (`tools/libebbprof/src/collector.rs`).

use std::fs;
use std::fs::File;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Instant;

use crate::Failure;
use crate::clock::Clock;
use crate::memory::Memory;
use crate::perfdata::Event;
use crate::perfdata::Thread;
use crate::perfdata::Writer;
use crate::processes::Processes;
use crate::record::LOOK;
use crate::record::PAUSE;
use crate::system;

/// The descriptors that it inherits: a socket for requests, and the memory.
const SOCKET: i32 = 3;
const MEMORY: i32 = 4;

/// Every time this many looks have passed, the program's mappings are checked.
const LOOKS_FOR_EXEC: u32 = 8;

/// Requests and answers of the library's protocol; the second byte of an answer is an errno.
const DUMP: u8 = b'd';
const DONE: [u8; 2] = [0, 0];
const FAILED: u8 = 1;
/// The answer if the library has another version.
const OTHER: [u8; 2] = [3, libc::EPROTO as u8];

#[derive(clap::Args)]
pub struct Options {
    /// Process ID of the program
    process: u32,
    /// File to write
    output: PathBuf,
}

/// A request of the program.
enum Wanted {
    Nothing,
    Dump,
    /// The program has requested the end, or has ended.
    End,
}

/// The program that records itself.
struct Program {
    socket: File,
    /// Readable once the program has ended; its children may keep the socket open.
    process: OwnedFd,
}

impl Program {
    /// Waits for a request, for at most `milliseconds`.
    fn wanted(&mut self, milliseconds: i32) -> io::Result<Wanted> {
        let entry = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut fds = [
            entry(self.socket.as_raw_fd()),
            entry(self.process.as_raw_fd()),
        ];
        // SAFETY: `fds` has two elements.
        match unsafe { libc::poll(fds.as_mut_ptr(), 2, milliseconds) } {
            -1 => return Err(io::Error::last_os_error()),
            0 => return Ok(Wanted::Nothing),
            _ => {}
        }
        let mut request = [0];
        let asked =
            fds[0].revents & libc::POLLIN != 0 && matches!(self.socket.read(&mut request), Ok(1));
        Ok(match asked && request[0] == DUMP {
            true => Wanted::Dump,
            false => Wanted::End,
        })
    }

    fn answer(&mut self, result: &Result<(), Failure>) {
        let answer = match result {
            Ok(()) => DONE,
            Err(error) => {
                let error = error.downcast_ref::<io::Error>();
                let errno = error.and_then(io::Error::raw_os_error);
                // CAST: An errno of Linux is at most 133.
                [FAILED, errno.unwrap_or(libc::EIO) as u8]
            }
        };
        self.send(answer);
    }

    fn send(&mut self, answer: [u8; 2]) {
        // Fails if the program has ended; then no one needs the answer.
        let _ = self.socket.write_all(&answer);
    }
}

/// Runs until the program has ended the recording or itself. Ignores signals that are sent to all
/// processes of a service or a session: they are for the program, whose last samples must be
/// written.
pub fn run(options: &Options) -> Result<(), Failure> {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: SIG_IGN installs no function.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // SAFETY: The call takes no pointers.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, options.process, 0) };
    if process < 0 {
        return Err(io::Error::last_os_error().into());
    }
    // CAST: A descriptor fits in an int.
    // SAFETY: The first was just opened, and this process has inherited the other two.
    let (process, socket, memory) = unsafe {
        (
            OwnedFd::from_raw_fd(process as i32),
            File::from_raw_fd(SOCKET),
            File::from_raw_fd(MEMORY),
        )
    };
    let mut program = Program { socket, process };
    let Ok(memory) = Memory::of_program(memory) else {
        program.send(OTHER);
        return Ok(());
    };
    let event = Event::new(&memory.event(), memory.period(), memory.has_callers(), None);
    let writer = match Writer::new(&options.output, event) {
        Ok(writer) => writer,
        Err(error) => {
            program.answer(&Err(error.into()));
            return Ok(());
        }
    };
    program.answer(&Ok(()));
    let mut processes = Processes::new(&memory, Clock::new()?, writer);
    let line = fs::read(format!("/proc/{}/cmdline", options.process)).unwrap_or_default();
    let words = line.split_inclusive(|&byte| byte == 0);
    let command: Vec<_> = words
        .map(|word| String::from_utf8_lossy(word.strip_suffix(b"\0").unwrap_or(word)).into())
        .collect();
    let done = collect(&mut processes, &mut program, options.process, &command);
    memory.stop();
    if done.is_err() {
        // The error that led here is the one to report.
        let _ = processes.writer.cut();
        // It is reported with the next request.
        let _ = program.wanted(-1);
    }
    program.answer(&done);
    Ok(())
}

/// Returns whether the program no longer has mapped the memory, as far as the system shows its
/// mappings.
fn has_left(memory: &Memory, process: u32) -> bool {
    let (pid, tid) = (process, process);
    let maps = system::maps(Thread { pid, tid });
    maps.is_ok_and(|maps| !memory.is_mapped_in(&maps))
}

/// Reads the rings until the recording ends.
fn collect(
    processes: &mut Processes<'_>,
    program: &mut Program,
    process: u32,
    command: &[String],
) -> Result<(), Failure> {
    let (mut looked, mut looks) = (Instant::now(), 0_u32);
    loop {
        // Must be read before the rings: a request that comes in between then ends the wait below
        // at once.
        let asked = processes.memory.asked();
        let wanted = program.wanted(0)?;
        let filled = processes.drain()?;
        match wanted {
            Wanted::Nothing => processes.writer.keep_readable(),
            Wanted::Dump => {
                let done = processes.writer.complete(command);
                program.answer(&done.map_err(Failure::from));
            }
            Wanted::End => {
                processes.drain_dead()?;
                return Ok(processes.writer.complete(command)?);
            }
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            looks += 1;
            // An exec has closed the socket. The mappings show it even if a child keeps the socket
            // open.
            if looks.is_multiple_of(LOOKS_FOR_EXEC) && has_left(processes.memory, process) {
                processes.drain_dead()?;
                processes.drain()?;
                return Ok(processes.writer.complete(command)?);
            }
            processes.drain_dead()?;
            processes.look_for_names()?;
            processes.resume_evicted();
        }
        if filled < 0.25 {
            // The library wakes this up with each request, too.
            processes.memory.wait(asked, PAUSE);
        }
    }
}
