// SPDX-License-Identifier: GPL-2.0

//! Random steps of the model.

use pmu_model::{
    Branch, BranchForm, Context, Facility, Instruction, Processor, Random, mmcr0, mmcr2, mmcra,
    sier, spr,
};

/// The registers of the RTL, in the order of its answers.
pub const REGISTERS: [(&str, u32); 13] = [
    ("PMC1", spr::PMC1),
    ("PMC2", spr::PMC1 + 1),
    ("PMC3", spr::PMC1 + 2),
    ("PMC4", spr::PMC1 + 3),
    ("PMC5", spr::PMC1 + 4),
    ("PMC6", spr::PMC6),
    ("MMCR0", spr::MMCR0),
    ("MMCR1", spr::MMCR1),
    ("MMCR2", spr::MMCR2),
    ("MMCRA", spr::MMCRA),
    ("SIAR", spr::SIAR),
    ("SDAR", spr::SDAR),
    ("SIER", spr::SIER),
];

/// The place of MMCR0 among them, after those of the counters.
const MMCR0: usize = 6;

/// Codes of PMC1 to PMC4 that mean the same to both. Those without a name count
/// [`Instruction::others`].
const CODES: [&[u64]; 4] = [
    &[0, 0xf4, 0xf6, 0xf8, 0xfc, 0xfe],
    &[0, 0xf0, 0xf2, 0xf4, 0xf6, 0xf8, 0xfa, 0xfc, 0xfe],
    &[0, 0xf0, 0xf2, 0xf4, 0xf6, 0xfe],
    &[0, 0xf0, 0xf2, 0xf6, 0xf8, 0xfa, 0xfc, 0xfe],
];

/// Fields of MMCR2 that the RTL ignores, of PMC1.
const NOT_IN_RTL: u64 = mmcr2::FCM0 | mmcr2::FCWAIT;

/// State of the registers after a step.
pub struct Expected {
    /// The step, in a line of text.
    pub what: String,
    /// The value of each register, and its bits that are compared.
    pub registers: [(u64, u64); REGISTERS.len()],
    /// An interrupt is due.
    pub interrupt: bool,
    /// An alert occurred.
    pub alert: bool,
}

/// The input of a clock of the RTL, see `testbench.vhdl`.
#[derive(Default)]
struct Clock {
    completes: bool,
    write: Option<(u32, u64)>,
    time_base: bool,
}

/// A model that takes random steps.
pub struct Walk {
    model: Facility,
    random: Random,
    /// The instruction that completed last, and the state it ran in.
    last: (Instruction, Context),
    /// The bits of SIER that the model and the RTL define, as it was set last.
    defined_in_sier: u64,
    /// The number of registers that were written. Those of the RTL have no value before.
    written: usize,
}

impl Walk {
    /// Creates a model of a processor, before its first step.
    pub fn new(processor: Processor, seed: u64) -> Self {
        let mut model = Facility::new(processor);
        model.randomize(!seed);
        // The RTL raises its line whatever MSR[EE] says.
        model.context.ee = true;
        Self {
            model,
            random: Random::new(seed),
            last: (Instruction::at(0), Context::KERNEL),
            defined_in_sier: 0,
            written: 0,
        }
    }

    /// Takes a step. Returns the same step as a line for the RTL, and the state that must follow.
    pub fn step(&mut self) -> (String, Expected) {
        let alerts = self.model.alerts();
        let (clock, what) = match self.random.below(12) {
            _ if self.written < REGISTERS.len() => self.write_first(),
            0..6 => self.execute(),
            6 | 7 => self.write(MMCR0),
            8 => {
                let at = self.random.below(MMCR0 as u64) as usize;
                self.write(at)
            }
            9 | 10 => {
                let others = (REGISTERS.len() - MMCR0 - 1) as u64;
                let at = MMCR0 + 1 + self.random.below(others) as usize;
                self.write(at)
            }
            _ => self.pass_time(),
        };
        let alert = self.model.alerts() != alerts;
        if alert {
            self.defined_in_sier = self.defined_by_alert();
        }
        let expected = Expected {
            what,
            registers: REGISTERS.map(|(_, number)| (self.model.mfspr(number), self.mask(number))),
            interrupt: self.model.interrupt_is_due(),
            alert,
        };
        (self.line(clock), expected)
    }

    /// Completes an instruction, in another state now and then.
    fn execute(&mut self) -> (Clock, String) {
        let random = &mut self.random;
        let context = &mut self.model.context;
        for state in [&mut context.problem, &mut context.pmm, &mut context.run] {
            *state ^= random.one_in(4);
        }
        let address = self.last.0.next();
        let target = 0x1000 + 4 * random.below(1000);
        let instruction = Instruction {
            branch: random
                .one_in(4)
                .then(|| Branch::taken(BranchForm::I, target)),
            others: random.below(2) as u32,
            data: random.one_in(2).then(|| random.bits()),
            ..Instruction::at(address)
        };
        self.last = (instruction, *context);
        self.model.execute(&instruction);
        let clock = Clock {
            completes: true,
            ..Clock::default()
        };
        let (_, state) = self.last;
        let flags = [
            (instruction.branch.is_some(), ", branch"),
            (instruction.others != 0, ", others"),
            (state.problem, ", PR"),
            (state.pmm, ", PMM"),
            (state.run, ", RUN"),
        ];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set);
        let flags: String = flags.map(|(_, name)| name).collect();
        let what = format!("{address:#x}: data {:x?}{flags}", instruction.data);
        (clock, what)
    }

    /// Writes the next register that has no value yet. MMCR0 is first, with all counters frozen.
    fn write_first(&mut self) -> (Clock, String) {
        let at = (MMCR0 + self.written) % REGISTERS.len();
        let (_, number) = REGISTERS[at];
        self.written += 1;
        self.write_value(at, if number == spr::MMCR0 { mmcr0::FC } else { 0 })
    }

    /// Writes a random value to a register.
    fn write(&mut self, at: usize) -> (Clock, String) {
        let (_, number) = REGISTERS[at];
        let value = self.value(number);
        self.write_value(at, value)
    }

    fn write_value(&mut self, at: usize, value: u64) -> (Clock, String) {
        let (name, number) = REGISTERS[at];
        self.model.mtspr(number, value);
        if number == spr::SIER {
            self.defined_in_sier = !0;
        }
        let clock = Clock {
            write: Some((number, value)),
            ..Clock::default()
        };
        (clock, format!("mtspr {name}, {value:#x}"))
    }

    /// Lets time pass until each bit of the time base has changed from 0 to 1.
    fn pass_time(&mut self) -> (Clock, String) {
        self.model.time_base_event();
        let clock = Clock {
            time_base: true,
            ..Clock::default()
        };
        (clock, "event of the time base".into())
    }

    /// Returns a random value for a register, without what tools/model/README.md lists.
    fn value(&mut self, number: u32) -> u64 {
        let random = &mut self.random;
        let any = random.bits();
        // Each bit is set in one of eight values.
        let few = any & random.bits() & random.bits();
        match number {
            spr::MMCR0 => {
                let alerts = mmcr0::PMAE | mmcr0::PMC1CE | mmcr0::PMCJCE;
                let value = few | any & (alerts | mmcr0::PMCC | mmcr0::TBEE);
                let mut value = value & !(mmcr0::EBE | mmcr0::BHRBA);
                if value & mmcr0::CC56RUN != 0 {
                    value |= mmcr0::FC56;
                }
                let both = mmcr0::TRIGGER | mmcr0::FCECE;
                if value & both == both {
                    value &= !(mmcr0::PMC1CE | mmcr0::PMCJCE);
                }
                value
            }
            spr::MMCR1 => CODES.iter().fold(any << 32, |value, codes| {
                let code = codes[random.below(codes.len() as u64) as usize];
                value & !0xffff_ffff | (value << 8 | code) & 0xffff_ffff
            }),
            spr::MMCR2 => (0..6).fold(few, |value, pmc| value & !(NOT_IN_RTL >> (9 * pmc))),
            spr::MMCRA => any & !(mmcra::SAMPLE_ENABLE | mmcra::TECE),
            spr::PMC1..=spr::PMC6 => match random.below(5) {
                0 => 0,
                1 => 0x8000_0000 + random.below(4),
                2 => 0xffff_ffff,
                3 => any,
                _ => 0x7fff_ffff - random.below(4),
            },
            _ => any,
        }
    }

    /// Returns the bits of SIER that an alert defines in both.
    fn defined_by_alert(&self) -> u64 {
        let samples_data = self.model.mfspr(spr::MMCRA) & mmcra::SDAR_MODE != 0;
        let has_sipr = self.model.processor().has_reliable_sipr();
        [
            (true, sier::SIARV),
            (has_sipr, sier::SIPR),
            (samples_data, sier::SDARV),
        ]
        .into_iter()
        .filter(|(is_defined, _)| *is_defined)
        .fold(0, |bits, (_, bit)| bits | bit)
    }

    /// Returns the bits of a register that are compared.
    fn mask(&self, number: u32) -> u64 {
        match number {
            _ if self.written < REGISTERS.len() => 0,
            spr::SIAR | spr::SDAR | spr::SIER if !self.model.is_known(number) => 0,
            spr::SIER => self.defined_in_sier,
            _ => !0,
        }
    }

    /// Returns a step as a line for the RTL. In a step without an instruction the last one is still
    /// in execution.
    fn line(&self, clock: Clock) -> String {
        let (instruction, context) = self.last;
        let (number, value) = clock.write.unwrap_or_default();
        let flags = [
            context.problem,
            context.pmm,
            context.run && clock.completes,
            clock.completes,
            clock.completes && instruction.branch.is_some(),
            clock.completes && instruction.others != 0,
            instruction.data.is_some(),
            clock.write.is_some(),
            clock.time_base,
        ];
        let set = (0..flags.len()).filter(|at| flags[*at]);
        let flags = set.fold(0, |bits, at| bits | 1 << at);
        let data = instruction.data.unwrap_or_default();
        let address = instruction.address;
        format!("{flags:03x} {number:03x} {value:016x} {address:016x} {data:016x}")
    }
}
