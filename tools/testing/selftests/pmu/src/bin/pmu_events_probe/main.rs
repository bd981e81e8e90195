// SPDX-License-Identifier: GPL-2.0
//! Opens events of every kind and prints the outcomes, so that `events_compare.sh` can compare them
//! between two drivers.
//!
//! ```text
//! pmu_events_probe           SECTION LABEL OUTCOME RULE, one line an open
//! pmu_events_probe rules     NAME ERRNO REASON, one line a deliberate difference
//! ```
//!
//! OUTCOME is the least count over work of about [`WORK`] instructions; `waits` if the event never
//! got a counter; `opened` if the event was not meant to count; or the errno, for a group followed
//! by the number of the refused event. RULE is the name of the difference in `stricter.rs` that
//! applies, or `same`.
//!
//! Exit status: 0 done, 1 perf events do not behave, 2 wrong arguments.

mod groups;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::io::Write;
use std::process::ExitCode;

use perf_event::Error;
use perf_event::errno_name;
use pmu_selftests::least_count;
use pmu_selftests::prelude::*;
use pmu_selftests::stricter::Asked;
use pmu_selftests::stricter::Processor;
use pmu_selftests::stricter::RULES;
use pmu_selftests::stricter::WRONG_ON_DD22;
use pmu_selftests::stricter::rule_for;

/// Large enough that the kernel's share of the count is small.
const WORK: u64 = 1 << 20;

/// The largest number of counts taken with one event.
const TRIES: usize = 5;

const EVENTS: &str = "/sys/bus/event_source/devices/cpu/events";

const BHRB: u64 = 1 << 62;
const IFM: u32 = 60;
const PMC: u32 = 16;

/// Codes that have no names in sysfs: equivalents of cycles and instructions, further cache events,
/// alternatives, events of the units beyond the L1, marked events, fabric matches (hexadecimal).
const MORE_CODES: &str = "1e 2 600f4 500fa 200f4 400fa 100fe 100f0 200f2 300f2 3e054 400f0 408c \
    1e054 46080 17082 48080 49082 401e0 301e2 4013c 30056 4f052 3f00000001c040";

/// Values within and beyond the range of a threshold.
const CONFIG1_VALUES: [u64; 8] = [
    1,
    0xff,
    0x100,
    261_120,
    261_121,
    0x3_ffff,
    0x4_0000,
    1 << 63,
];

/// A function that sets a field of a request.
type Set = fn(&mut Asked, u64);

/// A name, and a function that changes a request.
type Extra = (&'static str, fn(Attr) -> Attr);

/// Codes in which one field at a time is changed: plain, marked, marked with a mode, with a
/// threshold, of units 6, 8 and 9, a fabric match, PMC5.
const BASES: [u64; 9] = [
    0x1001e,
    0x1011e,
    0x401_011e,
    0x13_2001_011e,
    0x4601e,
    0x4801e,
    0x4911e,
    0x30056,
    0x500fa,
];

/// Returns the error's name, as in the table of rules.
fn name_of(error: &Error) -> String {
    error
        .errno()
        .map_or("not-scheduled".into(), |errno| errno_name(errno).into())
}

struct Probe {
    cpu: Processor,
    out: io::BufWriter<io::Stdout>,
}

impl Probe {
    fn print(
        &mut self,
        section: &str,
        label: &str,
        asked: &Asked,
        outcome: &str,
    ) -> io::Result<()> {
        let rule = rule_for(self.cpu, asked).map_or("same", |rule| rule.name);
        writeln!(self.out, "{section} {label} {outcome} {rule}")
    }

    /// Opens an event for this task, counts with it, and prints the outcome.
    fn count(&mut self, section: &str, label: &str, asked: &Asked) -> io::Result<()> {
        let outcome = match attr(asked).open() {
            Err(error) => name_of(&error),
            Ok(event) => counted(&event)?,
        };
        self.print(section, label, asked, &outcome)
    }

    fn named(&mut self) -> io::Result<()> {
        for (name, code) in named_events()? {
            self.count("name", &format!("{name}={code:#x}"), &Asked::raw(code))?;
        }
        Ok(())
    }

    /// Tries all of perf's generic events, numbers beyond them, and numbers with a PMU type above
    /// them.
    fn generic(&mut self) -> io::Result<()> {
        let beyond = [31, 99, 255, 256, 1 << 16, 1 << 31, (1 << 32) - 1];
        let types = [4 << 32, 4 << 32 | 1, 4 << 32 | 6, 5 << 32, EBB, EBB | 1];
        let numbers = (0..=u64::from(sys::PERF_COUNT_HW_MAX) + 2).chain(beyond);
        for config in numbers.chain(types) {
            let asked = Asked::new(sys::PERF_TYPE_HARDWARE, config);
            self.count("generic", &format!("{config:#x}"), &asked)?;
        }
        Ok(())
    }

    /// Tries every cell of the matrix of cache events, one cell beyond each edge, and bits that
    /// belong to no part of the number.
    fn cache(&mut self) -> io::Result<()> {
        let mut configs = cache_cells(1);
        for bit in 24..64 {
            configs.extend([1 << bit, 1 << bit | 0x10000]);
        }
        configs.extend([
            0xff,
            0xff00,
            0xff_0000,
            4 << 32,
            4 << 32 | 0x10000,
            4 << 32 | 6,
        ]);
        for config in configs {
            let asked = Asked::new(sys::PERF_TYPE_HW_CACHE, config);
            self.count("cache", &format!("{config:#08x}"), &asked)?;
        }
        Ok(())
    }

    /// Tries every code with every value of the PMC field.
    fn codes(&mut self, codes: &BTreeSet<u64>) -> io::Result<()> {
        let anywhere: BTreeSet<u64> = codes.iter().map(|code| code & !(0xf << PMC)).collect();
        for code in anywhere {
            for pmc in 0..16 {
                let code = code | pmc << PMC;
                self.count("code", &format!("{code:#x}"), &Asked::raw(code))?;
            }
        }
        Ok(())
    }

    /// Tries codes with each bit inverted and with many values of each field, and other attributes
    /// beside a code.
    fn fields(&mut self) -> io::Result<()> {
        // First and last bit of the fields in the `format/` folders of all processors.
        let registers = [(0, 7), (9, 11), (12, 15), (20, 23), (24, 28), (29, 31)];
        let values = [
            (32, 35),
            (36, 39),
            (40, 44),
            (40, 49),
            (45, 47),
            (48, 53),
            (54, 59),
        ];
        for base in BASES {
            let mut codes: BTreeSet<u64> = (0..64).map(|bit| base ^ 1 << bit).collect();
            for (first, last) in registers.into_iter().chain(values) {
                let values = 1_u64 << (last - first + 1);
                let cleared = base & !((values - 1) << first);
                // Try all values of a short field. Try some evenly spaced values of a long one.
                let step = if values > 64 { values / 37 } else { 1 };
                let values = (0..values).step_by(step as usize).chain([values - 1]);
                codes.extend(values.map(|value| cleared | value << first));
            }
            for code in codes {
                self.count("field", &format!("{code:#x}"), &Asked::raw(code))?;
            }
            for (name, values, set) in [
                (
                    "config1",
                    &CONFIG1_VALUES[..],
                    (|asked, value| asked.config1 = value) as Set,
                ),
                ("config2", &[1, 1 << 32, 1 << 63], |asked, value| {
                    asked.config2 = value
                }),
                ("config3", &[1, 1 << 63], |asked, value| {
                    asked.config3 = value
                }),
                ("precise_ip", &[1, 2, 3], |asked, value| {
                    asked.precise_ip = value
                }),
            ] {
                for &value in values {
                    let mut asked = Asked::raw(base);
                    set(&mut asked, value);
                    self.count("field", &format!("{base:#x},{name}={value:#x}"), &asked)?;
                }
            }
        }
        Ok(())
    }

    /// Opens EBB events. It does not count with them, because that requires a handler.
    fn ebb(&mut self) -> io::Result<()> {
        let extras: [Extra; 8] = [
            ("", |attr| attr),
            ("+inherit", |attr| attr.inherit(true)),
            ("+sample_type", |attr| attr.sample_type(1)),
            ("+period", |attr| attr.sample_period(1000)),
            ("+freq", |attr| attr.freq(true).sample_period(100)),
            ("+enable_on_exec", |attr| attr.enable_on_exec(true)),
            ("+exclude_kernel", |attr| attr.exclude_kernel(true)),
            ("+precise_ip", |attr| attr.with(|raw| raw.set_precise_ip(1))),
        ];
        let mut codes = vec![EBB | 0x1e, EBB | 0x7001e, EBB | 0x500fa, EBB | 0x600f4];
        for upper in 0..16 {
            codes.push(upper << IFM | 0x1001e);
        }
        codes.push(EBB | BHRB | 2 << IFM | 0x500fa);
        codes.extend(WRONG_ON_DD22.map(|code| EBB | code));
        for code in codes {
            for leads in 0..4 {
                let (pinned, exclusive) = (leads & 1, leads >> 1);
                for (name, change) in extras {
                    for whose in ["task", "cpu"] {
                        let asked = Asked {
                            precise_ip: u64::from(name == "+precise_ip"),
                            ..Asked::raw(code)
                        };
                        let attr = change(attr(&asked))
                            .pinned(pinned != 0)
                            .exclusive(exclusive != 0);
                        let attr = if whose == "cpu" { attr.on_cpu(0) } else { attr };
                        let outcome = match attr.open() {
                            Err(error) => name_of(&error),
                            Ok(_) => "opened".into(),
                        };
                        let label = format!(
                            "{code:#x},{whose},pinned={pinned},exclusive={exclusive}{name}"
                        );
                        self.print("ebb", &label, &asked, &outcome)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the numbers of all cache events, with `edge` more values of each part.
fn cache_cells(edge: u32) -> Vec<u64> {
    let mut cells = Vec::new();
    for cache in 0..sys::PERF_COUNT_HW_CACHE_MAX + edge {
        for op in 0..sys::PERF_COUNT_HW_CACHE_OP_MAX + edge {
            for result in 0..sys::PERF_COUNT_HW_CACHE_RESULT_MAX + edge {
                cells.push(u64::from(cache | op << 8 | result << 16));
            }
        }
    }
    cells
}

fn attr(asked: &Asked) -> Attr {
    Attr::raw(asked.config).with(|raw| {
        raw.type_ = asked.kind;
        raw.__bindgen_anon_3.config1 = asked.config1;
        raw.__bindgen_anon_4.config2 = asked.config2;
        raw.config3 = asked.config3;
        raw.set_precise_ip(asked.precise_ip);
    })
}

/// Counts the work with little else in it. On a debug kernel, a tick takes a third as long as the
/// work.
fn counted(event: &Event) -> io::Result<String> {
    let count = least_count(event, TRIES, WORK + WORK / 16, || {
        work::run(WORK);
    })?;
    Ok(match event.read()?.running {
        0 => "waits".into(),
        _ => count.to_string(),
    })
}

/// Returns the name and the code of each file in `events/`, sorted.
fn named_events() -> io::Result<Vec<(String, u64)>> {
    let mut events = Vec::new();
    for entry in fs::read_dir(EVENTS)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let text = fs::read_to_string(entry.path())?;
        let code = text.trim().strip_prefix("event=0x");
        let code = code.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let code = code.ok_or_else(|| io::Error::other(format!("{name} holds {text}")))?;
        events.push((name, code));
    }
    events.sort();
    Ok(events)
}

fn probe() -> io::Result<()> {
    let mut probe = Probe {
        cpu: Processor::current()?,
        out: io::BufWriter::new(io::stdout()),
    };
    let mut codes: BTreeSet<u64> = named_events()?.into_iter().map(|(_, code)| code).collect();
    let more = MORE_CODES.split_whitespace();
    codes.extend(more.map(|digits| u64::from_str_radix(digits, 16).expect("a hexadecimal code")));
    codes.extend(WRONG_ON_DD22);

    probe.named()?;
    probe.generic()?;
    probe.cache()?;
    probe.codes(&codes)?;
    probe.fields()?;
    probe.ebb()?;
    probe.groups(&codes)?;
    probe.out.flush()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => {}
        ["rules"] => {
            for rule in RULES {
                let errno = match rule.errno {
                    0 => "taken",
                    errno => errno_name(errno),
                };
                println!("{} {errno} {}", rule.name, rule.reason);
            }
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("usage: pmu_events_probe [rules]");
            return ExitCode::from(2);
        }
    }
    match probe() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pmu_events_probe: {error}");
            ExitCode::FAILURE
        }
    }
}
