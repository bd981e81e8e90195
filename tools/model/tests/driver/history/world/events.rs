// SPDX-License-Identifier: GPL-2.0

//! Operations that open events or inherit them.

use super::*;
use pmu_model::Isa;

/// `PERF_REG_POWERPC_*`: SIER2, SIER3, PMC1 to PMC6, SDAR, SIAR.
const REGISTERS: u64 = 0b11 << 49 | 0x3f << 51 | 0b11 << 57;

/// Returns whether an event with a code cannot count, or can only count together with others.
pub(super) fn cannot_count(code: u64) -> bool {
    let processor = with_machine(|machine| machine.kind.processor);
    // Before v3.1 codes have no data source. A code for EBBs must name a counter.
    let is_unknown = code >> 45 & 0x7fff != 0 && processor.isa() < Isa::V31;
    let lacks_counter = code & EBB != 0 && code >> 16 & 0xf == 0;
    // Events of POWER9's bus need PMC4.
    let is_on_bus = code >> 12 & 0xf == 6 && code >> 16 & 0xf != 4;
    is_unknown || lacks_counter || is_on_bus && processor == Processor::Power9
}

impl World {
    pub(super) fn attr(code: u64, period: u64) -> perf_event_attr {
        let mut attr = perf_event_attr {
            type_: perf_type_id_PERF_TYPE_RAW,
            config: code,
            ..perf_event_attr::default()
        };
        attr.__bindgen_anon_1.sample_period = period;
        attr
    }

    pub(super) fn open(&mut self, task: u8, wish: Wish) {
        let (code, _) = CODES[usize::from(wish.code) % CODES.len()];
        let mut attr = Self::attr(code, wish.period);
        attr.set_exclude_kernel(wish.exclude_kernel.into());
        attr.set_exclude_user(wish.exclude_user.into());
        attr.set_exclude_hv(wish.exclude_hv.into());
        attr.set_exclude_idle(wish.exclude_idle.into());
        attr.set_exclude_host(wish.exclude_host.into());
        attr.set_disabled(wish.disabled.into());
        attr.set_inherit(wish.inherit.into());
        attr.set_inherit_stat(u64::from(wish.inherit && wish.inherit_stat));
        attr.sample_type = perf_event_sample_format_PERF_SAMPLE_IP.into();
        if wish.addr {
            attr.sample_type |= u64::from(perf_event_sample_format_PERF_SAMPLE_ADDR);
        }
        if wish.registers {
            attr.sample_type |= u64::from(perf_event_sample_format_PERF_SAMPLE_REGS_INTR);
            attr.sample_regs_intr = REGISTERS;
        }
        if wish.data_src {
            attr.sample_type |= u64::from(perf_event_sample_format_PERF_SAMPLE_DATA_SRC);
        }
        attr.sample_type |= match wish.weight {
            1 => perf_event_sample_format_PERF_SAMPLE_WEIGHT.into(),
            2 => perf_event_sample_format_PERF_SAMPLE_WEIGHT_STRUCT.into(),
            _ => 0,
        };
        if wish.branches != 0 && wish.period > 0 {
            attr.sample_type |= u64::from(perf_event_sample_format_PERF_SAMPLE_BRANCH_STACK);
            attr.branch_sample_type = branches::sample_type(wish.branches, wish.branch_flags);
            attr.sample_max_stack = 32;
        }
        let task = self.task(task);
        let mut place = (Some(task), wish.bound.map(|cpu| self.cpu(cpu)));
        if wish.of_cpu {
            place = (None, Some(task % CPUS as usize));
        }
        let leads =
            |event: &&Rc<Event>| event.is_leader() && (event.task.get(), event.cpu) == place;
        let leader = self
            .open
            .iter()
            .chain(&self.others)
            .rev()
            .find(leads)
            .filter(|_| wish.member)
            .cloned();
        if leader.is_none() {
            attr.set_pinned(wish.pinned.into());
            attr.set_exclusive(wish.exclusive.into());
        }
        self.add(attr, place, leader.as_ref());
    }

    /// Returns a task that has not exited, for a number.
    pub(super) fn task(&self, number: u8) -> usize {
        self.live[usize::from(number) % self.live.len()]
    }

    /// Opens an EBB event, which joins the task's first EBB group if there is one.
    pub(super) fn join_ebb(&mut self, task: u8, code: u64, flags: u8) {
        let task = self.task(task);
        let leads = |event: &&Rc<Event>| is_ebb(event) && event.is_leader();
        let mut leaders = self.open.iter().filter(leads);
        let leader = leaders
            .find(|event| event.task.get() == Some(task))
            .cloned();
        let cpu = leader.as_ref().and_then(|leader| leader.cpu);
        self.open_ebb((task, cpu), code, flags, leader);
    }

    /// Opens an EBB event of a task, on any CPU or on one only, as a member of a group or as a
    /// leader.
    pub(super) fn open_ebb(
        &mut self,
        (task, cpu): (usize, Option<usize>),
        code: u64,
        flags: u8,
        leader: Option<Rc<Event>>,
    ) {
        // The programs use different filters of the BHRB.
        let bhrb = match flags & 0x80 {
            0 => 0,
            _ => BHRB | (task as u64 & 0b11) << 60,
        };
        let counts_kernel = flags & 0x60 == 0x60;
        let excludes_more = flags & 0x10 != 0;
        let mut attr = Self::attr(code | EBB | bhrb, 0);
        attr.set_exclude_kernel(u64::from(!counts_kernel));
        // Otherwise the event would count the hypervisor, but not the kernel.
        attr.set_exclude_hv(u64::from(!counts_kernel || excludes_more));
        attr.set_exclude_idle(u64::from(excludes_more));
        if leader.is_none() {
            attr.set_pinned(1);
            attr.set_exclusive(1);
        }
        self.add(attr, (Some(task), cpu), leader.as_ref());
    }

    pub(super) fn add(
        &mut self,
        attr: perf_event_attr,
        place: (Option<usize>, Option<usize>),
        leader: Option<&Rc<Event>>,
    ) {
        let offline = place.1.is_some_and(|cpu| !self.core.online[cpu].get());
        if self.open.len() + self.others.len() >= MOST_EVENTS || offline {
            return;
        }
        match self.core.open(attr, place, leader, None) {
            Ok(event) => {
                if self.core.has_built_in() && !is_ebb(&event) {
                    return self.others.push(event);
                }
                self.oracle.open(&event);
                if leader.is_some_and(|leader| self.seen.contains(&leader.id)) {
                    self.seen.insert(event.id);
                }
                self.open.push(event);
            }
            Err(errno) => {
                let may_be_refused = leader.is_some() || cannot_count(attr.config);
                assert!(may_be_refused, "{:#x} is refused: {errno}", attr.config);
            }
        }
    }

    pub(super) fn fork(&mut self, cpu: usize) {
        let Some(parent) = self.core.running[cpu].get() else {
            return;
        };
        let events = self.open.len() + self.others.len();
        if self.live.len() >= MOST_TASKS || events >= MOST_EVENTS {
            return;
        }
        let child = self.core.fork(parent);
        self.live.push(child);
        let of_child = |event: &&Rc<Event>| event.task.get() == Some(child);
        let inherited: Vec<_> = self
            .core
            .all
            .borrow()
            .iter()
            .filter(of_child)
            .cloned()
            .collect();
        for event in inherited {
            if self.core.has_built_in() {
                self.others.push(event);
                continue;
            }
            self.oracle.open(&event);
            self.open.push(event);
        }
    }
}
