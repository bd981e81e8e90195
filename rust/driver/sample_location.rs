// SPDX-License-Identifier: GPL-2.0

//! Where a sample was taken, and how much of that the event's owner may see.
//!
//! The owner of an event that excludes the kernel, such as an unprivileged user, gets no address of
//! the kernel. The sampled instruction may be the kernel's nevertheless: a counter overflows in the
//! program, and the PMI comes after the program has entered the kernel. Then the sample shows where
//! the program entered the kernel. It is not dropped, as programs rely on the signal, or the
//! SIGTRAP, of every overflow. If only the data address is the kernel's, that is left out.

use crate::power::{
    machine,
    regs::Sier, //
};

/// Where a counter overflowed, as far as that is known.
#[derive(Clone, Copy)]
pub(super) struct SampleLocation {
    /// The PMU samples marked instructions rather than the one at the overflow.
    pub(super) marked: bool,
    pub(super) siar: u64,
    pub(super) sier: Sier,
    /// SIER\[SIPR\] tells the privilege of the instruction at SIAR. POWER10 does not always set it
    /// right.
    pub(super) has_sipr: bool,
    /// SIER\[SIARV\] tells whether SIAR is of the marked instruction.
    pub(super) has_siar_valid: bool,
    /// NIP when the PMI came: the address of the next instruction.
    pub(super) nip: u64,
    /// The PMI interrupted a program rather than the kernel.
    pub(super) in_program: bool,
}

/// What a sample shows of where it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SampleDisposition {
    /// The instruction at `ip`, which is from SIAR if `by_siar`.
    Instruction { ip: u64, by_siar: bool },
    /// Where the program entered the kernel: the instruction is the kernel's, and the event
    /// excludes the kernel.
    KernelEntry,
    /// Nothing, and the sample counts as lost: the instruction is not known.
    Unknown,
}

impl SampleLocation {
    /// Whether SIAR is nearer to the event than NIP.
    ///
    /// A PMI interrupts problem state at once, so NIP is as near as SIAR can be. The kernel may
    /// have had PM interrupts masked; then NIP is where it unmasked them, and SIAR where the
    /// counter overflowed.
    fn uses_siar(&self) -> bool {
        let prompt = self.in_program && self.sier.sipr() == 1;
        self.siar != 0 && (self.marked || !prompt)
    }

    /// What a sample of this location shows, for an event that samples IP if `wants_ip`.
    pub(super) fn disposition(&self, wants_ip: bool, exclude_kernel: bool) -> SampleDisposition {
        // Without an alert SIAR may be 0, whatever SIER says.
        let valid = self.sier.siar_valid() == 1 || !self.has_siar_valid;
        let siar_valid = valid && self.siar != 0;
        if wants_ip && self.marked && !siar_valid {
            return SampleDisposition::Unknown;
        }
        let by_siar = self.uses_siar();
        let (ip, privileged) = if by_siar {
            // In real mode, and in a hypervisor, privileged code may be at low addresses.
            (self.siar, self.has_sipr && self.sier.sipr() == 0)
        } else {
            (self.nip, !self.in_program)
        };
        if exclude_kernel && (privileged || machine::is_kernel_address(ip)) {
            return SampleDisposition::KernelEntry;
        }
        SampleDisposition::Instruction { ip, by_siar }
    }
}

/// The data address for a sample, from SDAR. `None` if SDAR is not of the `marked` instruction, or
/// if the event's owner must not see it.
pub(super) fn data_address(
    marked: bool,
    sier: Sier,
    sdar: u64,
    exclude_kernel: bool,
) -> Option<u64> {
    let known = !marked || sier.sdar_valid() == 1;
    let visible = !(exclude_kernel && machine::is_kernel_address(sdar));
    (known && visible).then_some(sdar)
}
