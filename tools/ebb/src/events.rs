// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of events that a [`Session`](crate::Session) can count.
//!
//! | name | meaning |
//! |---|---|
//! | `cycles`, `instructions` | cycles or instructions in problem state, on any free counter |
//! | `0x1001e`, `r1001e` | an event code |
//! | `pmc=1,pmcxsel=0x1e` | fields of a code, as named in `format/` of the PMU in sysfs |
//! | `cpu-cycles`, `mem_access` | an event of `events/` of the PMU in sysfs |
//!
//! An EBB event must name its counter (bits 16-19 of the code). If a code names none, the session
//! takes a free one of PMC1 to PMC4.

use core::ffi::CStr;

use crate::config::PMC_SHIFT;
use crate::config::pmc_of;
use crate::error::Error;
use crate::sys;

const DEVICE: &str = "/sys/bus/event_source/devices/cpu/";

/// The words of `perf_event_attr` that select what is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) config: u64,
    pub(crate) config1: u64,
}

impl Code {
    const fn of(config: u64) -> Self {
        Self { config, config1: 0 }
    }
}

/// Codes that can count an event, the best first.
pub(crate) struct Choice {
    codes: [Code; 5],
    count: usize,
}

impl Choice {
    fn new(codes: &[u64]) -> Self {
        let mut choice = Self {
            codes: [Code::default(); 5],
            count: 0,
        };
        codes.iter().for_each(|&code| choice.push(Code::of(code)));
        choice
    }

    fn push(&mut self, code: Code) {
        if let Some(place) = self.codes.get_mut(self.count) {
            *place = code;
            self.count += 1;
        }
    }

    /// Returns the choices for a code that may leave the counter open.
    fn of(code: Code) -> Self {
        let mut choice = Self::new(&[]);
        if pmc_of(code.config) != 0 {
            choice.push(code);
        } else {
            for pmc in 1..=4 {
                choice.push(Code {
                    config: code.config | pmc << PMC_SHIFT,
                    ..code
                });
            }
        }
        choice
    }

    pub(crate) fn codes(&self) -> &[Code] {
        &self.codes[..self.count]
    }
}

/// Returns the codes of the event `name`.
pub(crate) fn find(name: &str) -> Result<Choice, Error> {
    let name = name.trim();
    match name {
        "cycles" => Ok(Choice::new(&[0x1001e, 0x3001e, 0x4001e, 0x2001e, 0x600f4])),
        "instructions" => Ok(Choice::new(&[0x20002, 0x500fa, 0x400fa])),
        "" => Err(Error::NoSuchEvent),
        _ if name.contains('=') => parse_terms(name).map(Choice::of),
        _ => match number(name).or_else(|| hex(name.strip_prefix('r')?)) {
            Some(config) => Ok(Choice::of(Code::of(config))),
            None => {
                let mut buffer = [0; 256];
                let terms = read(&["events/", name], &mut buffer).ok_or(Error::NoSuchEvent)?;
                parse_terms(terms).map(Choice::of)
            }
        },
    }
}

/// Parses `FIELD=VALUE,...` with the fields of `format/`.
fn parse_terms(terms: &str) -> Result<Code, Error> {
    let mut code = Code::default();
    for term in terms.split(',') {
        let (field, value) = term.split_once('=').unwrap_or((term, "1"));
        let value = number(value).ok_or(Error::NoSuchEvent)?;
        let mut buffer = [0; 64];
        let format = read(&["format/", field.trim()], &mut buffer).ok_or(Error::NoSuchEvent)?;
        let (word, bits) = format.split_once(':').ok_or(Error::NoSuchEvent)?;
        let word = match word {
            "config" => &mut code.config,
            "config1" => &mut code.config1,
            _ => return Err(Error::NoSuchEvent),
        };
        *word |= place(value, bits).ok_or(Error::NoSuchEvent)?;
    }
    Ok(code)
}

/// Shifts `value` into the bits `FIRST-LAST` or `BIT`. Returns `None` if it does not fit.
fn place(value: u64, bits: &str) -> Option<u64> {
    let (first, last) = bits.split_once('-').unwrap_or((bits, bits));
    let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
    let width = last.checked_sub(first)?.checked_add(1)?;
    let fits = last < 64 && value.checked_shr(width).unwrap_or(0) == 0;
    fits.then(|| value << first)
}

/// Parses `DEC` or `0xHEX`.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => hex(digits),
        None => text.parse().ok(),
    }
}

fn hex(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

/// Reads a file of the PMU, without the final newline. Rejects names that contain a path.
fn read<'a>(parts: &[&str; 2], buffer: &'a mut [u8]) -> Option<&'a str> {
    let mut path = [0_u8; 128];
    let mut length = 0;
    for part in [DEVICE, parts[0], parts[1]] {
        let end = length + part.len();
        path.get_mut(length..end)?.copy_from_slice(part.as_bytes());
        length = end;
    }
    let path = CStr::from_bytes_with_nul(path.get(..=length)?).ok()?;
    let plain = !parts[1].is_empty() && !parts[1].starts_with('.') && !parts[1].contains('/');
    plain.then(|| sys::read_file(path, buffer).map(str::trim_end))?
}
