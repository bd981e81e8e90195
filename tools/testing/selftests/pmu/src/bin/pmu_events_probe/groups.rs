// SPDX-License-Identifier: GPL-2.0
//! The groups that the probe opens, to find out which events fit together. Those with perf's
//! generic events show which codes stand for these.

use std::collections::BTreeSet;
use std::io;
use std::io::Write;

use pmu_selftests::open_until_refused;
use pmu_selftests::prelude::*;
use pmu_selftests::stricter::Asked;
use pmu_selftests::stricter::rule_for;
use pmu_selftests::stricter::rule_for_group;

use crate::PMC;
use crate::Probe;
use crate::attr;
use crate::name_of;

impl Probe {
    /// Opens all pairs of events, and random groups of up to seven codes.
    pub fn groups(&mut self, codes: &BTreeSet<u64>) -> io::Result<()> {
        let mut codes: Vec<u64> = codes.iter().copied().collect();
        // Add codes on other counters, and codes with selects on which a group has to agree.
        codes.extend([1, 2, 3, 4].map(|pmc| pmc << PMC | 0x1e));
        codes.extend([0x70_001e, 0x12_001e, 0x24_001e]);
        codes.extend([0x400_011e, 0x800_011e, 0x13_2001_011e]);
        codes.retain(|&code| rule_for(self.cpu, &Asked::raw(code)).is_none());
        let codes: Vec<Asked> = codes.into_iter().map(Asked::raw).collect();
        for (index, &first) in codes.iter().enumerate() {
            for &second in codes.iter().skip(index) {
                self.group(&[first, second])?;
            }
            for number in 0..u64::from(sys::PERF_COUNT_HW_MAX) {
                self.group(&[first, Asked::new(sys::PERF_TYPE_HARDWARE, number)])?;
            }
            for cell in crate::cache_cells(0) {
                self.group(&[first, Asked::new(sys::PERF_TYPE_HW_CACHE, cell)])?;
            }
        }
        // In these groups one event needs an alternative code, and others are events of the bus.
        self.group(&[0x400fa, 0x4001e, 0x300fc, 0x17082].map(Asked::raw))?;
        self.group(&[0x400fa, 0x49082, 0x400f0, 0x17082].map(Asked::raw))?;
        // Random numbers from a fixed sequence (Lehmer's generator), so that all runs open the same
        // groups.
        let mut number = 1;
        for size in (3..=7).cycle().take(500) {
            let group: Vec<Asked> = (0..size)
                .map(|_| {
                    number = number * 48_271 % 0x7fff_ffff;
                    codes[number % codes.len()]
                })
                .collect();
            self.group(&group)?;
        }
        Ok(())
    }

    /// Opens a group, and prints the errno of the first event that does not fit to those before it.
    fn group(&mut self, group: &[Asked]) -> io::Result<()> {
        let (open, end) = open_until_refused(group.iter().map(attr));
        let outcome = match end {
            Ok(()) => "opened".into(),
            Err(error) => format!("{}-at-{}", name_of(&error), open.len() + 1),
        };
        let label: Vec<String> = group
            .iter()
            .map(|asked| match asked.kind {
                sys::PERF_TYPE_HARDWARE => format!("generic={:#x}", asked.config),
                sys::PERF_TYPE_HW_CACHE => format!("cache={:#x}", asked.config),
                _ => format!("{:#x}", asked.config),
            })
            .collect();
        let rule = rule_for_group(self.cpu, group).map_or("same", |rule| rule.name);
        writeln!(self.out, "group {} {outcome} {rule}", label.join(","))
    }
}
