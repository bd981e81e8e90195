// SPDX-License-Identifier: GPL-2.0

//! Idle states and hypervisors that drop registers.
//!
//! A dropped register then holds [`DROPPED`], which no code writes, as if the value of another
//! program were there. A dropped counter holds one of [`DROPPED_PMC`].

use crate::{
    Facility, Isa,
    facility::NEGATIVE,
    fields::{mmcr0, mmcra},
};

/// Value of a register that was dropped.
pub const DROPPED: u64 = 0x5afe_1e55_5afe_1e54;

/// Values of counters that were dropped: far from negative, almost negative, and negative.
pub const DROPPED_PMC: [u32; 3] = [DROPPED as u32, NEGATIVE - 2, DROPPED as u32 | NEGATIVE];

/// Values that a guest leaves in the control registers when it returns to its host.
#[derive(Clone, Copy, Debug)]
pub struct Guest {
    /// MMCR0.
    pub mmcr0: u64,
    /// MMCRA.
    pub mmcra: u64,
}

impl Guest {
    /// A guest whose program with EBBs has a pending alert. The facility is frozen, so KVM
    /// considers it harmless.
    pub const WITH_EBBS: Self = Self {
        mmcr0: mmcr0::FC
            | mmcr0::FCECE
            | mmcr0::EBE
            | mmcr0::BHRBA
            | 0b10 << 18
            | mmcr0::PMCCEXT
            | mmcr0::PMAO,
        mmcra: mmcra::BHRBRD,
    };

    /// A guest with an alert that its kernel has not handled yet.
    pub const WITH_ALERT: Self = Self {
        mmcr0: mmcr0::FC | mmcr0::FCECE | mmcr0::PMC1CE | mmcr0::PMCCEXT | mmcr0::PMAO,
        mmcra: mmcra::BHRBRD,
    };

    /// A guest that counts and marks instructions.
    pub const COUNTING: Self = Self {
        mmcr0: mmcr0::PMAE | mmcr0::FCECE | mmcr0::PMC1CE | mmcr0::PMCJCE,
        mmcra: mmcra::SAMPLE_ENABLE,
    };

    /// Returns the values that KVM leaves of the guest's. From POWER9 on it keeps them if the
    /// facility is frozen, marks no instructions and, on v3.1, has PMCCEXT and BHRBRD set.
    /// Otherwise it sets only these bits.
    ///
    /// \[KVM\] `freeze_pmu()` in `book3s_hv_p9_perf.c`; on POWER8 `kvmhv_save_guest_pmu`.
    fn frozen(self, isa: Isa) -> Self {
        let v31 = isa >= Isa::V31;
        let closed = self.mmcr0 & mmcr0::PMCCEXT != 0 && self.mmcra & mmcra::BHRBRD != 0;
        let stays = self.mmcr0 & mmcr0::FC != 0
            && self.mmcra & mmcra::SAMPLE_ENABLE == 0
            && (closed || !v31);
        if stays && isa >= Isa::V300 {
            return self;
        }
        Self {
            mmcr0: mmcr0::FC | if v31 { mmcr0::PMCCEXT } else { 0 },
            mmcra: if v31 { mmcra::BHRBRD } else { 0 },
        }
    }
}

/// Sleep states of a thread of a bare metal machine, as the kernel uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// A state that loses nothing.
    Shallow,
    /// The deepest state that an idle CPU enters.
    Deep,
    /// The deepest state that a CPU enters when it is taken offline.
    Offline,
}

/// The part of the lppaca that a partition's kernel shares with the hypervisor about a virtual
/// processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lppaca {
    /// The hypervisor must preserve the facility's registers.
    pub pmcregs_in_use: bool,
    /// Grows whenever the processor is taken away and given back; odd while it is taken away.
    pub yield_count: u32,
}

impl Facility {
    /// Puts the thread of a bare metal machine to sleep, and wakes it up.
    ///
    /// | processor | idle | offline |
    /// |---|---|---|
    /// | POWER8 | loses nothing ("Fast sleep does not lose SPRs") | loses all, as winkle does: `power7_idle_insn()` restores no register of the facility |
    /// | POWER9 | loses all but MMCR0, MMCR2, MMCRA and the lower half of MMCR1, which `power9_idle_stop()` restores: `struct p9_sprs` has 32 bits for MMCR1, so the upper half becomes 0 | same as idle |
    /// | later | loses nothing: the kernel avoids states that lose registers ("No deep loss driver implemented") | same as idle |
    ///
    /// \[kernel\] `powernv/idle.c`; \[OPAL\] `hw/slw.c`: POWER9 loses registers from stop4 on.
    /// \[memory\]: the BHRB and the event-based branch registers, which the context switch
    /// restores, are lost too; a thread that was without power starts with an MMCR0 of 0.
    pub fn sleep(&mut self, idle: Idle) {
        match (self.processor.isa(), idle) {
            (Isa::V207, Idle::Offline) => {
                self.drop_registers();
                self.write_mmcr0(0);
            }
            (Isa::V300, Idle::Deep | Idle::Offline) => {
                let saved = (self.mmcr0, self.mmcr1, self.mmcr2, self.mmcra);
                self.drop_registers();
                (self.mmcr1, self.mmcr2, self.mmcra) = (saved.1 as u32 as u64, saved.2, saved.3);
                self.write_mmcr0(saved.0);
            }
            _ => {}
        }
    }

    /// Lets the hypervisor run another partition on the thread, and returns to this one.
    ///
    /// With `pmcregs_in_use` it preserves all but the BHRB, for which it has no code. Otherwise it
    /// freezes the facility, and the registers hold values of the other partition. A pending
    /// exception is lost with MMCR0\[PMAO\].
    ///
    /// \[KVM\] `switch_pmu_to_host()`, `switch_pmu_to_guest()` and `freeze_pmu()` in
    /// `book3s_hv_p9_perf.c`; \[kernel\] `asm/lppaca.h`, `asm/paravirt.h` for `yield_count`.
    pub fn preempt(&mut self, lppaca: &mut Lppaca) {
        lppaca.yield_count = lppaca.yield_count.wrapping_add(2);
        self.synchronize();
        if lppaca.pmcregs_in_use {
            self.drop_bhrb();
            return;
        }
        self.drop_all_but_ebb();
        // The hypervisor freezes what it leaves, although the other partition was counting.
        self.leave(Guest { mmcr0: 0, mmcra: 0 });
    }

    /// Lets the hypervisor take the thread away for work of its own, and give it back. No other
    /// code uses the facility, which does not count in the meantime.
    ///
    /// \[KVM\] `freeze_pmu()` in `book3s_hv_p9_perf.c` clears PMAE, without which the BHRB records
    /// nothing, and from v3.1 on disables its recording.
    pub fn interrupt_by_hypervisor(&mut self, lppaca: &mut Lppaca) {
        lppaca.yield_count = lppaca.yield_count.wrapping_add(2);
        self.synchronize();
    }

    /// Lets the kernel of a bare metal machine run a guest of its own. If the host has the
    /// registers in use (`pmcregs_in_use` of the paca), KVM restores them; otherwise they hold the
    /// guest's values.
    ///
    /// \[KVM\] `switch_pmu_to_guest()` and `switch_pmu_to_host()` in `book3s_hv_p9_perf.c`.
    pub fn run_guest(&mut self, host: &Lppaca, guest: Guest) {
        if host.pmcregs_in_use {
            self.drop_bhrb();
            return;
        }
        self.drop_all_but_ebb();
        self.leave(guest);
    }

    fn leave(&mut self, guest: Guest) {
        let left = guest.frozen(self.processor.isa());
        self.mmcra = left.mmcra;
        self.write_mmcr0(left.mmcr0);
    }

    /// Drops all registers but those of EBBs, which the context switch of another kernel's programs
    /// restores.
    fn drop_all_but_ebb(&mut self) {
        let ebb = (self.bescr, self.ebbhr, self.ebbrr);
        self.drop_registers();
        (self.bescr, self.ebbhr, self.ebbrr) = ebb;
    }

    fn drop_registers(&mut self) {
        let some = (self.random.bits() >> 32) as usize;
        self.pmc = core::array::from_fn(|pmc| DROPPED_PMC[(some + pmc) % DROPPED_PMC.len()]);
        (self.mmcr1, self.mmcr2, self.mmcr3, self.mmcra) = (DROPPED, DROPPED, DROPPED, DROPPED);
        (self.siar, self.sdar) = (DROPPED, DROPPED);
        (self.sier, self.sier2, self.sier3) = (DROPPED, DROPPED, DROPPED);
        (self.bescr, self.ebbhr, self.ebbrr) = (DROPPED, DROPPED, DROPPED);
        self.drop_bhrb();
    }

    fn drop_bhrb(&mut self) {
        for _ in 0..crate::BHRB_ENTRIES {
            self.bhrb.push(DROPPED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Processor, spr};

    const KEPT_BY_IDLE: [u32; 4] = [spr::MMCR0, spr::MMCR1, spr::MMCR2, spr::MMCRA];

    fn is_dropped_counter(facility: &Facility, number: u32) -> bool {
        DROPPED_PMC.contains(&(facility.mfspr(number) as u32))
    }

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
                    assert!(is_dropped_counter(&facility, number));
                }
                assert_eq!(facility.mfspr(spr::SIAR), DROPPED);
            }
        }
    }

    #[test]
    fn a_stop_state_of_power9_loses_half_of_mmcr1() {
        let mut facility = running(Processor::Power9);
        facility.mtspr(spr::MMCR1, 0x1234_5678_9abc_def0);
        facility.sleep(Idle::Deep);
        assert_eq!(facility.mfspr(spr::MMCR1), 0x9abc_def0);
    }

    #[test]
    fn a_guest_that_is_frozen_leaves_mmcr0_too_but_on_power8() {
        let left = |processor, guest| {
            let mut facility = running(processor);
            facility.run_guest(&Lppaca::default(), guest);
            facility.mfspr(spr::MMCR0)
        };
        let guest = Guest::WITH_EBBS;
        for processor in Processor::ALL {
            let v31 = processor.isa() >= Isa::V31;
            let frozen = mmcr0::FC | if v31 { mmcr0::PMCCEXT } else { 0 };
            let power8 = processor.isa() == Isa::V207;
            let expected = if power8 { frozen } else { guest.mmcr0 };
            assert_eq!(left(processor, guest), expected, "{processor:?}");
            let (mmcr0, mmcra) = (guest.mmcr0, guest.mmcra);
            for (mmcr0, mmcra, v31_only) in [
                (mmcr0 & !mmcr0::FC, mmcra, false),
                (mmcr0, mmcra | mmcra::SAMPLE_ENABLE, false),
                (mmcr0 & !mmcr0::PMCCEXT, mmcra, true),
                (mmcr0, 0, true),
            ] {
                let expected = if v31 || power8 || !v31_only {
                    frozen
                } else {
                    mmcr0
                };
                let guest = Guest { mmcr0, mmcra };
                assert_eq!(left(processor, guest), expected, "{processor:?} {guest:x?}");
            }
        }
    }
}
