// SPDX-License-Identifier: GPL-2.0
//! Events that a process has open, and what it does with them.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;

use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use perf_event::Event;
use pmu_selftests::regs;
use pmu_selftests::ring::Record;
use pmu_selftests::ring::Ring;

use crate::attr;
use crate::attr::Limits;
use crate::children;
use crate::marks;
use crate::marks::Pace;
use crate::tally::Count;
use crate::tally::Tally;
use pmu_selftests::random::Random;

/// Most events that a process has open.
const MOST: usize = 10;

/// PERF_EVENT_IOC_PAUSE_OUTPUT and _MODIFY_ATTRIBUTES, as powerpc numbers them.
const PAUSE_OUTPUT: libc::Ioctl = 0x8004_2409_u32 as libc::Ioctl;
const MODIFY_ATTRIBUTES: libc::Ioctl = 0x8008_240b_u32 as libc::Ioctl;

/// An event and its buffer.
struct Slot {
    event: Event,
    ring: Option<Ring>,
    /// Whether the buffer contains samples of this process only.
    own: bool,
}

impl Slot {
    fn is_ebb(&self) -> bool {
        self.event.attr().as_raw().config & ebb::config::EBB != 0
    }
}

/// The events of a process.
pub struct Events {
    number: u64,
    pace: Pace,
    slots: Vec<Slot>,
    /// Whether the process has opened an EBB event for itself.
    pub had_ebb: bool,
}

impl Events {
    /// Creates the empty set of events of a process with this number.
    pub fn new(number: u64, pace: Pace) -> Self {
        Self {
            number,
            pace,
            slots: Vec::new(),
            had_ebb: false,
        }
    }

    /// Returns a random open event.
    fn any(&mut self, random: &mut Random) -> Option<&mut Slot> {
        let index = random.any() as usize;
        let length = self.slots.len();
        (length > 0).then(|| &mut self.slots[index % length])
    }

    /// Tries to open a random event, mostly for this process.
    pub fn open(&mut self, random: &mut Random, limits: Limits, tally: &Tally) {
        let member = random.once_in(3);
        let attr = attr::any(random, limits, member);
        let target = random.below(12);
        let (cpu, other) = (random.below(4) as libc::c_int, random.any());
        let (leader, keep, map) = (random.any() as usize, random.once_in(4), random.once_in(2));
        let is_ebb = attr.as_raw().config & ebb::config::EBB != 0;
        let leaves_user_out = is_ebb && attr.as_raw().exclude_user() != 0;
        let (mut own, mut target_with_ebb) = (true, None);
        let mut whose = tally.entry(self.number);
        let attr = match target {
            0 => attr.cpu(cpu),
            1 => {
                own = false;
                attr.pid(-1).cpu(cpu)
            }
            2 => {
                own = false;
                let target = tally.entry(other % marks::NUMBERS);
                let pid = target.pid.load(Relaxed);
                // A process that has ended has 0 here, which stands for the caller.
                if pid != 0 {
                    whose = target;
                    target_with_ebb = is_ebb.then_some(pid);
                }
                attr.pid(pid)
            }
            _ => attr,
        };
        if let Some(pid) = target_with_ebb {
            // An EBB may come before this process continues, so count the event before it is open.
            whose.add_ebb_event(pid, 1);
        }
        if leaves_user_out {
            whose.kernel_mmcr2.store(true, Relaxed);
        }
        // Newest event of the same kind, with which a member mostly forms a group.
        let fits = self.slots.iter().rev().find(|slot| slot.is_ebb() == is_ebb);
        let leader = match leader % 8 {
            _ if !member => None,
            0 => self.slots.get(leader / 8 % MOST),
            _ => fits,
        };
        let entry = tally.entry(self.number);
        match attr.open_in(leader.map(|slot| &slot.event)) {
            Ok(event) => {
                self.had_ebb |= is_ebb && target_with_ebb.is_none();
                entry.add(Count::Opened, 1);
                if keep {
                    // SAFETY: The descriptor belongs to the event; it stays open over execve.
                    unsafe { libc::fcntl(event.as_raw_fd(), libc::F_SETFD, 0) };
                }
                if self.slots.len() == MOST {
                    self.slots.remove(other as usize % MOST);
                }
                let samples = attr.as_raw().sample_type != 0 && attr.as_raw().write_backward() == 0;
                let ring = (samples && map).then(|| map_ring(&event, 1)).flatten();
                self.slots.push(Slot { event, ring, own });
            }
            Err(_) => {
                if let Some(pid) = target_with_ebb {
                    whose.add_ebb_event(pid, -1);
                }
                entry.add(Count::Refused, 1);
            }
        }
    }

    /// Closes a random event.
    pub fn close(&mut self, random: &mut Random) {
        let index = random.any() as usize;
        if !self.slots.is_empty() {
            self.slots.swap_remove(index % self.slots.len());
        }
    }

    /// Describes the open events for the report of a failure.
    pub fn describe(&self) -> String {
        let texts = self.slots.iter().map(|slot| {
            let raw = slot.event.attr().as_raw();
            let of = if slot.own { "" } else { " of others" };
            format!(" {}:{:x}{of}", raw.type_, raw.config)
        });
        texts.collect()
    }

    /// Closes all events. A leader may be closed before its members.
    pub fn close_all(&mut self) {
        self.slots.clear();
    }

    /// Adapts the set in a child after a fork: it has the events, but not their buffers.
    pub fn forked(&mut self) {
        self.had_ebb = false;
        for slot in &mut self.slots {
            // Another mapping may be at the address by now, so do not unmap it.
            std::mem::forget(slot.ring.take());
        }
    }

    /// Changes a random event with an ioctl.
    pub fn control(&mut self, random: &mut Random, limits: Limits) {
        let (what, value) = (random.below(12), random.up_to_bits(8));
        let (period, rate) = (limits.period(random), 1000 + random.below(1500));
        let attr = attr::any(random, limits, false);
        let other = random.any() as usize;
        let Some(index) = self
            .slots
            .len()
            .checked_sub(1)
            .map(|most| random.any() as usize % (most + 1))
        else {
            return;
        };
        let event = &self.slots[index].event;
        // A refused request changes nothing, which other tests check.
        let _ = match what {
            0 | 1 => event.enable(),
            2 => event.disable(),
            3 => event.reset(),
            4 => event.refresh(value as i32),
            5 if event.attr().as_raw().freq() != 0 => event.set_period(rate),
            5 => event.set_period(period),
            6 => event.enable_group(),
            7 => event.reset_group(),
            8 => {
                let other = other % self.slots.len();
                let own = self.slots[index].own;
                let done = self.slots[index]
                    .event
                    .redirect_to(&self.slots[other].event);
                self.slots[other].own &= own;
                done
            }
            9 => event.id().map(drop),
            10 => {
                // SAFETY: The ioctl takes no pointer.
                unsafe { libc::ioctl(event.as_raw_fd(), PAUSE_OUTPUT, value & 1) };
                Ok(())
            }
            _ => {
                // SAFETY: The kernel only reads the structure, and the structure contains its size.
                unsafe { libc::ioctl(event.as_raw_fd(), MODIFY_ATTRIBUTES, attr.as_raw()) };
                Ok(())
            }
        };
    }

    /// Enables or disables all events that this thread has opened.
    pub fn control_all(random: &mut Random) {
        let _ = match random.below(3) {
            0 => perf_event::disable_all(),
            _ => perf_event::enable_all(),
        };
    }

    /// Enables the first open EBB event; returns whether that succeeded.
    pub fn enable_ebb(&self) -> bool {
        let slot = self.slots.iter().find(|slot| slot.is_ebb());
        slot.is_some_and(|slot| slot.event.enable().is_ok())
    }

    /// Reads a random number of bytes of a random event.
    pub fn read(&mut self, random: &mut Random) {
        let mut buffer = [0; 1024];
        let length = random.below(1024) as usize;
        if let Some(slot) = self.any(random) {
            let _ = slot.event.read_bytes(&mut buffer[..length]);
        }
    }

    /// Maps or unmaps the buffer of a random event.
    pub fn map(&mut self, random: &mut Random) {
        let pages = [0, 1, 1, 2][random.below(4) as usize];
        if let Some(slot) = self.any(random) {
            slot.ring = match slot.ring {
                // The end of a buffer that is written backward is not where `Ring` looks for it.
                None if slot.event.attr().as_raw().write_backward() == 0 => {
                    map_ring(&slot.event, pages)
                }
                _ => None,
            };
        }
    }

    /// Makes a random event send a signal when its buffer has data.
    pub fn notify(&mut self, random: &mut Random) {
        let signal = random.pick(&[0, libc::SIGUSR1, libc::SIGHUP]);
        if let Some(slot) = self.any(random) {
            let fd = slot.event.as_raw_fd();
            // SAFETY: None of these calls takes a pointer; the process survives the signals.
            unsafe {
                libc::fcntl(fd, libc::F_SETOWN, libc::getpid());
                libc::fcntl(fd, F_SETSIG, signal);
                libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK);
            }
        }
    }

    /// Empties the buffers. Fails if a record contains something that can only belong to another
    /// process.
    pub fn look(&mut self, tally: &Tally) -> Outcome {
        for slot in &mut self.slots {
            let Some(ring) = &mut slot.ring else { continue };
            let records = ring.take();
            let samples = records.iter().filter(|record| record.is_sample());
            tally
                .entry(self.number)
                .add(Count::Samples, samples.clone().count() as u64);
            if !slot.own {
                continue;
            }
            let request = slot.event.attr().as_raw();
            // Registers of the kernel may hold what belonged to another program a moment before.
            if request.exclude_kernel() != 0 {
                for record in &records {
                    check_addresses(self.number, record)?;
                }
            }
            if request.sample_type == attr::SAMPLE_REGS_INTR {
                for sample in samples {
                    check_counters(
                        self.number,
                        self.pace.most_counted(),
                        request.sample_regs_intr,
                        &sample.words,
                    )?;
                }
            }
        }
        Ok(())
    }
}

/// Fails if a record of a program's own event has an address of another program.
fn check_addresses(number: u64, record: &Record) -> Outcome {
    let mut foreign = record.words.iter();
    if let Some(address) = foreign.find(|&&word| marks::is_foreign_address(number, word)) {
        check!(
            false,
            "record {}: {address:#x} is another program's",
            record.kind
        );
    }
    Ok(())
}

/// Fails if a sample, which consists of the registers `mask`, has another program's mark in a
/// counter without an event. Counters with an event are not checked: the event may belong to
/// another process and follow the CPU, and count to the value of any mark.
fn check_counters(number: u64, most: u64, mask: u64, words: &[u64]) -> Outcome {
    let register = |number: u32| {
        let before = (mask & ((1 << number) - 1)).count_ones() as usize;
        // The first word is the ABI.
        let value = words.get(1 + before).copied();
        value.filter(|_| mask >> number & 1 == 1)
    };
    let Some(mmcr1) = register(regs::MMCR1) else {
        return Ok(());
    };
    for n in 0..4 {
        let selector = mmcr1 >> (24 - 8 * n) & 0xff;
        let value = register(regs::PMC1 + n).filter(|_| selector == 0);
        check!(
            value.is_none_or(|value| !marks::is_foreign_counter(number, value, most)),
            "sample: PMC{} is another program's: {value:x?}",
            n + 1
        );
    }
    Ok(())
}

/// Maps an event's buffer, and writes to its page with signals blocked. The kernel handles the
/// first write in two steps (`___do_page_fault` in arch/powerpc/mm/fault.c), and starts again if a
/// signal is pending by then. If an event sent a signal for each page fault, the write would never
/// finish. SIGTRAP is not blocked: one that a traced process gets for a single step would kill it.
fn map_ring(event: &Event, pages: usize) -> Option<Ring> {
    let signals = [libc::SIGIO, libc::SIGUSR1, libc::SIGHUP];
    children::block(&signals, libc::SIG_BLOCK);
    let mut ring = Ring::map(event, pages);
    if let Ok(ring) = &mut ring {
        ring.take_until(0);
    }
    children::block(&signals, libc::SIG_UNBLOCK);
    ring.ok()
}

/// F_SETSIG of fcntl(2), which the libc crate does not have.
const F_SETSIG: libc::c_int = 10;

/// Makes the caller run on some CPUs only, or on all.
pub fn move_to(random: &mut Random, cpus: usize) {
    let mask = random.any();
    let chosen = (0..cpus).filter(|cpu| mask >> cpu & 1 == 1);
    // The chosen CPUs may be offline.
    let _ = cpu::set_affinity(0, chosen);
}
