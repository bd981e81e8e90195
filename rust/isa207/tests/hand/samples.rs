// SPDX-License-Identifier: GPL-2.0

//! Decodes SIER, SIER2 and MMCRA of samples.

use isa207::{
    DataSource,
    Distance::*,
    InstructionType,
    MemoryAccess,
    MemoryLevel::*,
    MemoryOperation,
    SampleRegisters,
    Weight, //
};

use super::*;

const ALL: [u32; 4] = [POWER8, POWER9, POWER10, POWER11];

/// Returns a sample's registers with SIER\[TYPE\], \[LDST\] and \[DATA_SRC\] as given. All other
/// bits of SIER are set, to check that they have no effect.
fn registers(kind: u64, far: u64, source: u64) -> SampleRegisters {
    let others = !(7 << 15 | 7 << 1 | 7 << 53);
    SampleRegisters {
        sier: others | kind << 15 | far << 1 | source << 53,
        ..SampleRegisters::default()
    }
}

#[test]
fn instruction_types() {
    for pvr in ALL {
        let kind = |kind| model(pvr).instruction_type(&registers(kind, 0, 0));
        let known = [
            InstructionType::Load,
            InstructionType::Store,
            InstructionType::Branch,
            InstructionType::FloatingPoint,
            InstructionType::FixedPoint,
            InstructionType::ConditionOrSystem,
        ];
        assert_eq!([1, 2, 3, 4, 5, 6].map(kind), known.map(Some));
        assert_eq!(kind(0), None);
        let reservation = [POWER10, POWER11].contains(&pvr);
        let expected = reservation.then_some(InstructionType::Reservation);
        assert_eq!(kind(7), expected);
    }
}

#[test]
fn operations() {
    for pvr in ALL {
        let access = |kind, mmcra| {
            let registers = SampleRegisters {
                mmcra,
                ..registers(kind, 1, 0)
            };
            let access = model(pvr).memory_access(&registers)?;
            Some((access.operation, access.reservation))
        };
        assert_eq!(access(1, 0), Some((MemoryOperation::Load, false)));
        assert_eq!(access(2, 0), Some((MemoryOperation::Store, false)));
        for kind in [0, 3, 4, 5, 6] {
            assert_eq!(access(kind, 0x70), None);
        }
        // larx and stcx differ by the eligibility in bits 57 to 59 of MMCRA.
        let reservation = [0, 5, 7, 4].map(|eligible| access(7, eligible << 4 | !0x70));
        if [POWER8, POWER9].contains(&pvr) {
            assert_eq!(reservation, [None; 4]);
        } else {
            use MemoryOperation::*;
            let expected = [Unknown, Load, Store, Unknown];
            assert_eq!(
                reservation,
                expected.map(|operation| Some((operation, true)))
            );
        }
        // MMCRA does not turn a load into a store.
        assert_eq!(access(1, 0x70), Some((MemoryOperation::Load, false)));
    }
}

/// Returns the data source of a load.
fn source(pvr: u32, far: u64, source: u64) -> Option<DataSource> {
    let access = model(pvr).memory_access(&registers(1, far, source));
    let MemoryAccess {
        operation, source, ..
    } = access.unwrap();
    assert_eq!(operation, MemoryOperation::Load);
    source
}

#[test]
fn caches_of_the_core() {
    for pvr in ALL {
        for code in 0..8 {
            let own = |level| {
                Some(DataSource {
                    level,
                    distance: Local,
                    modified: false,
                })
            };
            assert_eq!(source(pvr, 0, code), None);
            assert_eq!(source(pvr, 1, code), own(L1));
            assert_eq!(source(pvr, 2, code), own(L2));
            assert_eq!(source(pvr, 3, code), own(L3));
            assert_eq!(source(pvr, 7, code), own(BeyondL1));
        }
    }
}

#[test]
fn memory() {
    let old = [
        Local, Local, Remote, Distant, Distant, Distant, Distant, Distant,
    ];
    let old = old.map(|distance| Some((Memory, distance)));
    let new = [
        None,
        Some((Memory, Local)),
        Some((AttachedMemory, Local)),
        Some((AttachedMemory, Local)),
        Some((Memory, Remote)),
        Some((AttachedMemory, Remote)),
        Some((Memory, Distant)),
        Some((AttachedMemory, Distant)),
    ];
    for (pvr, expected) in [(POWER8, old), (POWER9, old), (POWER10, new), (POWER11, new)] {
        for (code, expected) in (0..).zip(expected) {
            let expected = expected.map(|(level, distance)| DataSource {
                level,
                distance,
                modified: false,
            });
            assert_eq!(source(pvr, 4, code), expected, "{pvr:#x} {code}");
        }
    }
}

#[test]
fn caches_of_others() {
    // The level, and whether the data was modified.
    let chip = [(L2, false), (L2, true), (L3, false), (L3, true)].map(Some);
    let [a, b, c, d] = chip;
    let old = [a, b, c, d, c, d, None, None];
    let new = [a, b, c, d, a, b, c, d];
    for (pvr, expected) in [(POWER8, old), (POWER9, old), (POWER10, new), (POWER11, new)] {
        for (code, expected) in (0..).zip(expected) {
            let expected = expected.map(|(level, modified)| DataSource {
                level,
                distance: OtherCore,
                modified,
            });
            assert_eq!(source(pvr, 5, code), expected, "{pvr:#x} {code}");
        }
        let beyond = [0, 1, 2, 3, 4, 5, 6, 7].map(|code| source(pvr, 6, code));
        let there = |distance, modified| {
            Some(DataSource {
                level: L2OrL3,
                distance,
                modified,
            })
        };
        let [a, b] = [false, true].map(|modified| there(Remote, modified));
        let [c, d] = [false, true].map(|modified| there(Distant, modified));
        assert_eq!(beyond, [a, b, c, d, None, None, None, None]);
    }
}

#[test]
fn weights() {
    // Mantissa 0x7f or, with bit 37, 0xff; exponent 3.
    let mmcra = 3 << 27 | 0xff << 19;
    for (pvr, latency) in [(POWER8, 127), (POWER9, 127), (POWER10, 255), (POWER11, 255)] {
        let weight = |kind| {
            let registers = SampleRegisters {
                mmcra,
                ..registers(kind, 1, 0)
            };
            model(pvr).weight(&registers)
        };
        let expected = Weight {
            latency: latency << 6,
            ..Weight::default()
        };
        for kind in 1..=6 {
            assert_eq!(weight(kind), expected);
        }
        assert_eq!(weight(0), Weight::default());
        let v31 = [POWER10, POWER11].contains(&pvr);
        assert_eq!(weight(7), if v31 { expected } else { Weight::default() });
    }
    // All bits except the counter's; then the largest value and the smallest ones.
    let latency = |pvr, mmcra| {
        let registers = SampleRegisters {
            mmcra,
            ..registers(1, 1, 0)
        };
        model(pvr).weight(&registers).latency
    };
    assert_eq!(latency(POWER9, !(7 << 27 | 0x7f << 19)), 0);
    assert_eq!(latency(POWER10, !(7 << 27 | 0xff << 19)), 0);
    assert_eq!(latency(POWER9, u64::MAX), 127 << 14);
    assert_eq!(latency(POWER10, u64::MAX), 255 << 14);
    assert_eq!(latency(POWER9, 1 << 19), 1);
    assert_eq!(latency(POWER9, 1 << 27 | 1 << 19), 4);
}

#[test]
fn cycle_counts_of_the_struct_form() {
    let registers = SampleRegisters {
        // The cycle counts are in bits 27 to 37 and 3 to 13.
        sier2: 0x123 << 26 | 0x456 << 50,
        ..registers(1, 1, 0)
    };
    let cycles = |pvr, registers| {
        let weight = model(pvr).weight(&registers);
        (weight.finish_cycles, weight.dispatch_cycles)
    };
    assert_eq!(cycles(POWER10, registers), (0x123, 0x456));
    assert_eq!(cycles(POWER11, registers), (0x123, 0x456));
    assert_eq!(cycles(POWER9, registers), (0, 0));
    let all = SampleRegisters {
        sier2: u64::MAX,
        ..registers
    };
    assert_eq!(cycles(POWER10, all), (0x7ff, 0x7ff));
    let others = SampleRegisters {
        sier2: !(0x7ff << 26 | 0x7ff << 50),
        ..registers
    };
    assert_eq!(cycles(POWER10, others), (0, 0));
}
