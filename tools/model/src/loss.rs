// SPDX-License-Identifier: GPL-2.0

//! Idle states and hypervisors that drop registers.
//!
//! What is dropped is [`FOREIGN`] afterwards, a value that nobody writes, as somebody else's would
//! be there.

use crate::{
    Facility, Isa,
    fields::{mmcr0, mmcra},
};

/// What a register holds that was dropped. As a counter it is not negative.
pub const FOREIGN: u64 = 0x5afe_1e55_5afe_1e54;

/// How deep a thread of a bare metal machine sleeps, by the states that the kernel enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Nothing is lost.
    Shallow,
    /// The deepest state that an idle CPU enters.
    Deep,
    /// The deepest state that a CPU enters which is taken offline.
    Offline,
}

/// What a partition's kernel shares with the hypervisor about a virtual processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lppaca {
    /// The hypervisor is to keep the facility's registers.
    pub pmcregs_in_use: bool,
    /// Grows whenever the processor is taken away and given back; odd while it is away.
    pub yield_count: u32,
}

impl Facility {
    /// The thread of a bare metal machine sleeps, and wakes up.
    ///
    /// | processor | idle | offline |
    /// |---|---|---|
    /// | POWER8 | nothing is lost ("Fast sleep does not lose SPRs") | all is, as in winkle: `power7_idle_insn()` restores no register of the facility |
    /// | POWER9 | all but MMCR0, MMCR1, MMCR2 and MMCRA, which `power9_idle_stop()` restores | likewise |
    /// | later | nothing: the kernel leaves out states with such a loss ("No deep loss driver implemented") | likewise |
    ///
    /// \[kernel\] `powernv/idle.c`. \[memory\]: the event-based branch registers, which the context
    /// switch restores, and the BHRB are lost too; a thread that was without power begins with an
    /// MMCR0 of 0.
    pub fn sleep(&mut self, idle: Idle) {
        match (self.processor.isa(), idle) {
            (Isa::V207, Idle::Offline) => {
                self.drop_registers();
                self.write_mmcr0(0);
            }
            (Isa::V300, Idle::Deep | Idle::Offline) => {
                let saved = (self.mmcr0, self.mmcr1, self.mmcr2, self.mmcra);
                self.drop_registers();
                (self.mmcr1, self.mmcr2, self.mmcra) = (saved.1, saved.2, saved.3);
                self.write_mmcr0(saved.0);
            }
            _ => {}
        }
    }

    /// The hypervisor runs another partition on the thread, and comes back.
    ///
    /// With `pmcregs_in_use` it keeps all but the BHRB, for which it has no code; else it freezes
    /// the facility, and what the registers hold is somebody else's. An exception that waited goes
    /// with MMCR0\[PMAO\].
    ///
    /// \[KVM\] `switch_pmu_to_host()`, `switch_pmu_to_guest()` and `freeze_pmu()` in
    /// `book3s_hv_p9_perf.c`; \[kernel\] `asm/lppaca.h`, `asm/paravirt.h` for `yield_count`.
    pub fn preempt(&mut self, lppaca: &mut Lppaca) {
        lppaca.yield_count = lppaca.yield_count.wrapping_add(2);
        if lppaca.pmcregs_in_use {
            self.drop_bhrb();
            return;
        }
        self.drop_all_but_ebb();
        let v31 = self.processor.isa() >= Isa::V31;
        self.mmcra = if v31 { mmcra::BHRBRD } else { 0 };
        self.write_mmcr0(mmcr0::FC | if v31 { mmcr0::PMCCEXT } else { 0 });
    }

    /// The kernel of a bare metal machine enters a guest of its own, and comes back. If the host has
    /// the registers in use (`pmcregs_in_use` of the paca), KVM puts them back; else they are the
    /// guest's, here frozen and closed to problem state.
    ///
    /// \[KVM\] as [`Facility::preempt`].
    pub fn run_guest(&mut self, host: &Lppaca) {
        if host.pmcregs_in_use {
            self.drop_bhrb();
            return;
        }
        self.drop_all_but_ebb();
        self.write_mmcr0(mmcr0::FC | 0b01 << 18);
    }

    /// What another kernel's programs leave: the context switch keeps the registers of EBBs.
    fn drop_all_but_ebb(&mut self) {
        let ebb = (self.bescr, self.ebbhr, self.ebbrr);
        self.drop_registers();
        (self.bescr, self.ebbhr, self.ebbrr) = ebb;
    }

    fn drop_registers(&mut self) {
        self.pmc = [FOREIGN as u32; 6];
        (self.mmcr1, self.mmcr2, self.mmcr3, self.mmcra) = (FOREIGN, FOREIGN, FOREIGN, FOREIGN);
        (self.siar, self.sdar) = (FOREIGN, FOREIGN);
        (self.sier, self.sier2, self.sier3) = (FOREIGN, FOREIGN, FOREIGN);
        (self.bescr, self.ebbhr, self.ebbrr) = (FOREIGN, FOREIGN, FOREIGN);
        self.drop_bhrb();
    }

    fn drop_bhrb(&mut self) {
        for _ in 0..crate::BHRB_ENTRIES {
            self.bhrb.push(FOREIGN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Processor, spr};

    const KEPT_BY_IDLE: [u32; 4] = [spr::MMCR0, spr::MMCR1, spr::MMCR2, spr::MMCRA];

    fn running(processor: Processor) -> Facility {
        let mut facility = Facility::new(processor);
        for number in spr::PMC1..=spr::PMC6 {
            facility.mtspr(number, 5);
        }
        for number in [
            spr::MMCR1,
            spr::MMCR2,
            spr::MMCRA,
            spr::SIAR,
            spr::SIER,
            spr::SDAR,
        ] {
            facility.mtspr(number, 7);
        }
        facility.mtspr(spr::MMCR0, mmcr0::PMC1CE);
        facility
    }

    #[test]
    fn sleep_loses_what_the_kernel_does_not_restore() {
        for processor in Processor::ALL {
            let before = running(processor);
            for idle in [Idle::Shallow, Idle::Deep, Idle::Offline] {
                let mut facility = before.clone();
                facility.sleep(idle);
                let (loses, keeps_mmcr) = match processor {
                    Processor::Power8 | Processor::Power8E => (idle == Idle::Offline, false),
                    Processor::Power9 => (idle != Idle::Shallow, true),
                    Processor::Power10 | Processor::Power11 => (false, true),
                };
                if !loses {
                    assert_eq!(facility, before);
                    continue;
                }
                for number in KEPT_BY_IDLE {
                    let kept = facility.mfspr(number) == before.mfspr(number);
                    assert_eq!(kept, keeps_mmcr, "{processor:?} {idle:?} {number}");
                }
                for number in spr::PMC1..=spr::PMC6 {
                    assert_eq!(facility.mfspr(number), FOREIGN & 0xffff_ffff);
                }
                assert_eq!(facility.mfspr(spr::SIAR), FOREIGN);
            }
        }
    }

    #[test]
    fn a_hypervisor_keeps_registers_in_use_but_not_the_bhrb() {
        for processor in Processor::ALL {
            let before = running(processor);
            let mut facility = before.clone();
            let mut lppaca = Lppaca {
                pmcregs_in_use: true,
                yield_count: 4,
            };
            facility.preempt(&mut lppaca);
            assert_eq!(lppaca.yield_count, 6);
            assert_eq!(facility.mfbhrbe(0), FOREIGN);
            facility.clrbhrb();
            assert_eq!(facility, before);
        }
    }

    #[test]
    fn a_guest_leaves_its_registers_where_the_host_uses_none() {
        for processor in Processor::ALL {
            for pmcregs_in_use in [false, true] {
                let mut facility = running(processor);
                let host = Lppaca {
                    pmcregs_in_use,
                    ..Lppaca::default()
                };
                facility.run_guest(&host);
                let expected = if pmcregs_in_use {
                    5
                } else {
                    FOREIGN & 0xffff_ffff
                };
                assert_eq!(facility.mfspr(spr::PMC1), expected);
                assert_eq!(facility.mfbhrbe(0), FOREIGN);
            }
        }
    }

    #[test]
    fn a_hypervisor_drops_and_freezes_registers_not_in_use() {
        for processor in Processor::ALL {
            let mut facility = running(processor);
            facility.preempt(&mut Lppaca::default());
            assert_eq!(facility.mfspr(spr::MMCR0) & mmcr0::FC, mmcr0::FC);
            assert_eq!(facility.mfspr(spr::MMCR1), FOREIGN);
            assert_eq!(facility.mfspr(spr::PMC1), FOREIGN & 0xffff_ffff);
            assert_eq!(facility.mfspr(spr::EBBHR), 0);
        }
    }
}
