// SPDX-License-Identifier: GPL-2.0

//! The location of a sample, and the part of it that the event's owner may see.
//!
//! The owner of an event that excludes the kernel, such as an unprivileged user, gets no address of
//! the kernel. The sampled instruction may still be the kernel's: a counter overflows in the
//! program, and the PMI comes after the program has entered the kernel. Then the sample shows the
//! address where the program entered the kernel. It is not dropped, because programs rely on the
//! signal, or the SIGTRAP, of every overflow. If only the data address is the kernel's, only that
//! is left out.

use crate::power::{
    machine,
    regs::Sier, //
};

/// The location of an overflow, as far as it is known.
#[derive(Clone, Copy)]
pub(super) struct SampleLocation {
    /// Whether the PMU samples marked instructions instead of the instruction at the overflow.
    pub(super) marked: bool,
    pub(super) siar: u64,
    pub(super) sier: Sier,
    /// Whether SIER\[SIPR\] shows the privilege of the instruction at SIAR. POWER10 sometimes sets
    /// it incorrectly.
    pub(super) has_sipr: bool,
    /// Whether SIER\[SIARV\] shows if SIAR holds the marked instruction.
    pub(super) has_siar_valid: bool,
    /// The NIP that the PMI interrupted: the address of the next instruction.
    pub(super) nip: u64,
    /// Whether the PMI interrupted a program and not the kernel.
    pub(super) in_program: bool,
}

/// The location that a sample shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SampleDisposition {
    /// The instruction at `ip`, which comes from SIAR if `by_siar`.
    Instruction { ip: u64, by_siar: bool },
    /// The address where the program entered the kernel: the instruction is the kernel's, and the
    /// event excludes the kernel.
    KernelEntry,
    /// No location, and the sample counts as lost: the instruction is not known.
    Unknown,
}

impl SampleLocation {
    /// Returns whether SIAR is nearer to the event than NIP.
    ///
    /// A PMI interrupts problem state at once, so NIP is as near as SIAR. The kernel may have
    /// masked PM interrupts; then NIP is the address where it unmasked them, and SIAR the address
    /// of the overflow.
    fn uses_siar(&self) -> bool {
        let is_nip_as_near = self.in_program && self.sier.sipr() == 1;
        self.siar != 0 && (self.marked || !is_nip_as_near)
    }

    /// Returns the location that a sample shows. `wants_ip` is whether the event samples IP.
    pub(super) fn disposition(&self, wants_ip: bool, exclude_kernel: bool) -> SampleDisposition {
        // Without an alert SIAR may be 0 although SIER says that it is valid.
        let valid = self.sier.siar_valid() == 1 || !self.has_siar_valid;
        let siar_valid = valid && self.siar != 0;
        if wants_ip && self.marked && !siar_valid {
            return SampleDisposition::Unknown;
        }
        let by_siar = self.uses_siar();
        let (ip, privileged) = if by_siar {
            // Privileged code may be at low addresses in real mode and in a hypervisor.
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

/// Returns the data address for a sample, from SDAR; `None` if SDAR does not belong to the `marked`
/// instruction, or if the event's owner must not see it.
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
