// SPDX-License-Identifier: GPL-2.0

//! Turns the fuzzer's bytes into requests. Two arbitrary words are rarely events that can be
//! counted together, so most codes are known ones, or known ones with some bits flipped.

use isa207::{
    CpuModel,
    Exclude,
    Request, //
};

/// Codes that can be counted in more than one way on some CPU.
const FLEXIBLE: [u64; 30] = [
    0x1e, 0x2, 0x500fa, 0x600f4, 0x200f4, 0x400fa, 0x20036, 0x40036, 0x200f2, 0x300f2, 0x3e054,
    0x400f0, 0x10134, 0x301e2, 0x10138, 0x40138, 0x18082, 0x3e05e, 0x1d14e, 0x401e8, 0x1e054,
    0x4000a, 0x2013c, 0x3012e, 0x1001e, 0x2001e, 0x3001e, 0x4001e, 0x100f0, 0x100fe,
];

/// Reads an input from its front. After the end, every read returns 0.
#[derive(Clone)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        match self.0 {
            [first, rest @ ..] => {
                self.0 = rest;
                *first
            }
            [] => 0,
        }
    }

    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes([(); 8].map(|()| self.byte()))
    }

    /// Reads one event: three bytes, and the words that these bytes ask for.
    pub fn request(&mut self, model: &CpuModel) -> Request {
        let [kind, more, flags] = [(); 3].map(|()| self.byte());
        let mut code = match kind {
            0xc0.. => self.word(),
            _ => known(model, kind & 0x7f),
        };
        if kind & 0x80 != 0 && kind < 0xc0 {
            code ^= u64::from(self.byte()) << (self.byte() % 64);
        }
        // Linux's own bits of the code.
        code ^= u64::from(more & 0xf) << 60;
        let mut optional = |wanted: bool| if wanted { self.word() } else { 0 };
        let config1 = optional(more & 0x10 != 0);
        let config2 = optional(more & 0x60 == 0x60);
        let filter = flags >> 5;
        Request {
            code,
            config1,
            config2,
            exclude: Exclude {
                user: flags & 1 != 0,
                kernel: flags & 2 != 0,
                hv: flags & 4 != 0,
                idle: flags & 8 != 0,
            },
            only_count_run: flags & 0x10 != 0,
            branch_filter_ifm: (filter > 2).then(|| filter.wrapping_sub(3)),
        }
    }
}

/// Returns a code that some CPU has: one with alternatives or one with a name.
fn known(model: &CpuModel, number: u8) -> u64 {
    let number = usize::from(number);
    match FLEXIBLE.get(number) {
        Some(code) => *code,
        None => {
            let named: Vec<_> = model.named_events().collect();
            named[(number - FLEXIBLE.len()) % named.len()].code
        }
    }
}
