// SPDX-License-Identifier: GPL-2.0

//! Decodes register images by the manuals' bit numbers, and computes the expected decoding for a
//! group of events.

use isa207::{
    EventCode,
    Isa,
    Mmcr,
    Pmc,
    Request, //
};

use crate::oracle::{
    filters,
    power10_compare, //
};

/// A register that records which bits were read.
struct Register {
    value: u64,
    unread: u64,
}

impl Register {
    fn new(value: u64) -> Self {
        let unread = value;
        Self { value, unread }
    }

    /// Returns bits `first` to `last`; bit 0 is the most significant.
    fn read(&mut self, first: u32, last: u32) -> u64 {
        let width = last - first + 1;
        let mask = ((1u128 << width) - 1) as u64;
        let shift = 63 - last;
        self.unread &= !(mask << shift);
        (self.value >> shift) & mask
    }

    fn read_bit(&mut self, bit: u32) -> bool {
        self.read(bit, bit) == 1
    }
}

/// The settings of one counter.
#[derive(Debug, Default, PartialEq)]
pub struct Counter {
    pub unit: u64,
    pub combine: u64,
    pub event: u64,
    pub source: u64,
    pub frozen_privileged: bool,
    pub frozen_problem: bool,
    pub frozen_problem_of_hypervisor: bool,
    pub frozen_wait: bool,
    pub frozen_hypervisor: bool,
}

/// The settings of the whole PMU.
#[derive(Debug, Default, PartialEq)]
pub struct Decoded {
    pub counters: [Counter; 6],
    pub pmc1_alerts: bool,
    pub others_alert: bool,
    pub user_reads_need_pmcc: bool,
    pub pmc56_ignore_run_latch: bool,
    pub pmc56_frozen: bool,
    pub all_frozen_privileged: bool,
    pub all_frozen_hypervisor: bool,
    pub l1_qualifier: u64,
    pub radix_scope: bool,
    pub fab_match: u64,
    pub l2l3_select: u64,
    pub sdar_mode: u64,
    pub bhrb_off: bool,
    pub branch_filter: u64,
    pub marking: bool,
    pub eligibility: u64,
    pub mode: u64,
    pub thresh_select: u64,
    pub thresh_start: u64,
    pub thresh_stop: u64,
    pub exponent: u64,
    pub mantissa: u64,
    /// Bits that belong to no field, in MMCR0, MMCR1, MMCR2, MMCRA and MMCR3.
    pub unexplained: [u64; 5],
}

pub fn decode(isa: Isa, mmcr: &Mmcr) -> Decoded {
    let Mmcr {
        mmcr0,
        mmcr1,
        mmcr2,
        mmcra,
        mmcr3,
    } = *mmcr;
    let [mut r0, mut r1, mut r2, mut ra, mut r3] =
        [mmcr0, mmcr1, mmcr2, mmcra, mmcr3].map(Register::new);
    let mut all = Decoded::default();

    for (n, counter) in (0..).zip(&mut all.counters) {
        if n < 4 {
            counter.unit = r1.read(4 * n, 4 * n + 3);
            counter.combine = match isa {
                Isa::V207 => r1.read(28 + n, 28 + n),
                _ => r1.read(24 + 2 * n, 25 + 2 * n),
            };
            counter.event = r1.read(32 + 8 * n, 39 + 8 * n);
            if isa == Isa::V31 {
                counter.source = r3.read(15 * n, 15 * n + 14);
            }
        }
        counter.frozen_privileged = r2.read_bit(9 * n);
        counter.frozen_problem = r2.read_bit(9 * n + 1);
        counter.frozen_problem_of_hypervisor = r2.read_bit(9 * n + 2);
        counter.frozen_wait = r2.read_bit(9 * n + 5);
        counter.frozen_hypervisor = r2.read_bit(9 * n + 6);
    }

    all.pmc1_alerts = r0.read_bit(48);
    all.others_alert = r0.read_bit(49);
    all.pmc56_frozen = r0.read_bit(59);
    all.all_frozen_privileged = r0.read_bit(33);
    all.all_frozen_hypervisor = r0.read_bit(63);
    all.l1_qualifier = r1.read(16, 17);
    all.sdar_mode = ra.read(20, 21);
    all.branch_filter = ra.read(32, 33);
    all.thresh_select = ra.read(45, 47);
    all.thresh_start = ra.read(48, 51);
    all.thresh_stop = ra.read(52, 55);
    all.eligibility = ra.read(57, 59);
    all.mode = ra.read(61, 62);
    all.marking = ra.read_bit(63);
    match isa {
        Isa::V207 => {
            all.fab_match = r1.read(20, 27);
            all.exponent = ra.read(22, 24);
            all.mantissa = ra.read(25, 31);
        }
        Isa::V300 => {
            all.exponent = ra.read(9, 11);
            all.mantissa = ra.read(12, 18);
        }
        Isa::V31 => {
            all.exponent = ra.read(8, 10);
            all.mantissa = ra.read(11, 18);
            all.radix_scope = r1.read_bit(18);
            all.l2l3_select = r2.read(56, 60);
            all.bhrb_off = ra.read_bit(26);
            all.user_reads_need_pmcc = r0.read_bit(54);
            all.pmc56_ignore_run_latch = r0.read_bit(55);
        }
    }
    all.unexplained = [r0, r1, r2, ra, r3].map(|register| register.unread);
    all
}

/// Returns whether an event of a partition does not count in the hypervisor: if the request
/// excludes it, or if the owner could otherwise see the hypervisor's branches without the right to
/// see the kernel's.
fn hypervisor_excluded(isa: Isa, req: &Request) -> bool {
    let ebb = req.code >> 63 == 1;
    let branches = ebb || req.branch_filter_ifm.is_some() && !req.exclude.user;
    req.exclude.hv || (req.exclude.kernel && branches && isa != Isa::V31)
}

/// Returns the expected decoding of the images for these events on these counters, with these
/// codes.
pub fn expected(
    isa: Isa,
    group: &[Request],
    placements: &[(Pmc, EventCode)],
    hypervisor_mode: bool,
) -> Decoded {
    let mut all = Decoded {
        pmc56_frozen: true,
        all_frozen_privileged: isa != Isa::V31 && !group.is_empty(),
        all_frozen_hypervisor: isa != Isa::V31 && !group.is_empty(),
        user_reads_need_pmcc: isa == Isa::V31,
        pmc56_ignore_run_latch: isa == Isa::V31,
        bhrb_off: isa == Isa::V31,
        ..Decoded::default()
    };
    let hex = |code: u64, first: u32, width: u32| (code >> first) & ((1 << width) - 1);
    let mut asked_sdar = 0;

    for (req, (pmc, code)) in group.iter().zip(placements) {
        let (n, code) = (pmc.number(), code.0);
        all.pmc1_alerts |= n == 1;
        all.others_alert |= n != 1;
        all.pmc56_frozen &= n < 5;

        let counter = &mut all.counters[n - 1];
        let exclude = req.exclude;
        counter.frozen_problem = exclude.user;
        counter.frozen_wait = exclude.idle;
        if hypervisor_mode {
            counter.frozen_problem_of_hypervisor = exclude.user;
            counter.frozen_hypervisor = exclude.kernel;
        } else {
            counter.frozen_privileged = exclude.kernel;
            counter.frozen_hypervisor = hypervisor_excluded(isa, req);
        }
        all.all_frozen_privileged &= counter.frozen_privileged;
        all.all_frozen_hypervisor &= counter.frozen_hypervisor;
        if n > 4 {
            continue;
        }
        counter.unit = hex(code, 12, 4);
        counter.event = hex(code, 0, 8);
        counter.combine = match isa {
            Isa::V207 => hex(code, 11, 1),
            _ => hex(code, 10, 2),
        };
        let qualified = isa != Isa::V207 || hex(code, 22, 1) == 1;
        if qualified && hex(code, 20, 2) != 0 {
            all.l1_qualifier = hex(code, 20, 2);
        }
        if hex(code, 8, 1) == 1 {
            all.marking = true;
            all.eligibility = hex(code, 26, 3);
            all.mode = hex(code, 24, 2);
        }
        let fab = isa == Isa::V207 && [0x30056, 0x4f052].contains(&(code & 0xff0fe));
        if fab {
            all.fab_match = hex(code, 32, 8);
        } else if hex(code, 29, 3) != 0 {
            all.thresh_select = hex(code, 29, 3);
            all.thresh_stop = hex(code, 32, 4);
            all.thresh_start = hex(code, 36, 4);
            (all.exponent, all.mantissa) = match isa {
                Isa::V31 => power10_compare(req.config1),
                _ => (hex(code, 47, 3), hex(code, 40, 7)),
            };
        }
        match isa {
            Isa::V207 => {}
            Isa::V300 => asked_sdar |= hex(code, 50, 2),
            Isa::V31 => {
                asked_sdar |= hex(code, 22, 2);
                counter.source = hex(code, 45, 15);
                all.radix_scope |= hex(code, 9, 1) == 1;
                all.l2l3_select |= hex(code, 40, 5);
            }
        }
    }
    // FC56 applies to both: a counter without an event counts only in states in which some event
    // counts.
    let on = |n| placements.iter().any(|(pmc, _)| pmc.number() == n);
    if on(5) != on(6) {
        let counter = &mut all.counters[if on(5) { 5 } else { 4 }];
        let every = |excluded: fn(&Request) -> bool| group.iter().all(excluded);
        let kernel = every(|req| req.exclude.kernel);
        counter.frozen_problem = every(|req| req.exclude.user);
        counter.frozen_problem_of_hypervisor = counter.frozen_problem && hypervisor_mode;
        counter.frozen_wait = every(|req| req.exclude.idle);
        counter.frozen_privileged = kernel && !hypervisor_mode;
        counter.frozen_hypervisor = match hypervisor_mode {
            true => kernel,
            false => group.iter().all(|req| hypervisor_excluded(isa, req)),
        };
    }
    let mut filters = filters(group).into_iter();
    match (filters.next(), filters.next()) {
        (None, _) => {}
        (Some(common), None) => {
            all.bhrb_off = false;
            all.branch_filter = common;
        }
        (Some(_), Some(_)) => all.bhrb_off = false,
    }
    all.sdar_mode = match (isa, asked_sdar) {
        _ if group.is_empty() => 0,
        (Isa::V207, _) => 1,
        _ if all.marking => 0,
        (_, 0) => 2,
        (_, asked) => asked,
    };
    all
}
