// SPDX-License-Identifier: GPL-2.0

//! Where a sample was taken, and how much of that the event's owner may see.
//!
//! The owner of an event that excludes the kernel, such as an unprivileged user, gets no address of
//! the kernel. The kernel's instruction may be the sampled one all the same: the counter overflowed
//! in the program, and the PMI came when the kernel had been entered. Such a sample shows where the
//! program entered the kernel. It is not dropped: programs rely on the signal, or the SIGTRAP, of
//! every overflow. If only the data address is the kernel's, that is left out.

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
    /// The next instruction when the PMI came.
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

    /// What a sample from here shows, of an event that `wants_ip` and may exclude the kernel.
    pub(super) fn disposition(&self, wants_ip: bool, exclude_kernel: bool) -> SampleDisposition {
        // In a PMI that `pmu_enable` made pending SIAR is 0, whatever SIER says.
        let siar_valid = self.sier.siar_valid() == 1 && self.siar != 0;
        if wants_ip && self.marked && !siar_valid {
            return SampleDisposition::Unknown;
        }
        let by_siar = self.uses_siar();
        let (ip, privileged) = if by_siar {
            // Real mode, and a hypervisor, may have low addresses.
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

/// The data address for a sample: `sdar`, if that belongs to the sampled instruction, which may be
/// a `marked` one, and if the event's owner may see it.
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
