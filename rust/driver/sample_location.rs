// SPDX-License-Identifier: GPL-2.0

//! Where a sample was taken, and how much of that the event's owner may see.
//!
//! The owner of an event that excludes the kernel, such as an unprivileged user, gets no address of
//! the kernel. If the sampled instruction is the kernel's, the PMI came too late for the program's
//! and the sample is dropped. If only the data address is the kernel's, that is left out.

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
    /// The next instruction when the PMI came.
    pub(super) nip: u64,
    /// The PMI interrupted a program rather than the kernel.
    pub(super) in_program: bool,
}

/// What to do with a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SampleDisposition {
    /// Report it. `ip` is the instruction's address, `None` if the event's owner must not see it;
    /// `by_siar` if it is from SIAR.
    Report { ip: Option<u64>, by_siar: bool },
    /// Drop it: the instruction is the kernel's, and the event excludes the kernel.
    DropKernel,
    /// Drop it and count it as lost: the instruction is not known.
    DropLost,
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

    /// What to do with a sample from here, of an event that `wants_ip` and may exclude the kernel.
    pub(super) fn disposition(&self, wants_ip: bool, exclude_kernel: bool) -> SampleDisposition {
        if wants_ip && self.marked && self.sier.siar_valid() == 0 {
            return SampleDisposition::DropLost;
        }
        let by_siar = self.uses_siar();
        let ip = if by_siar { self.siar } else { self.nip };
        if !(exclude_kernel && machine::is_kernel_address(ip)) {
            return SampleDisposition::Report {
                ip: Some(ip),
                by_siar,
            };
        }
        if wants_ip {
            SampleDisposition::DropKernel
        } else {
            SampleDisposition::Report {
                ip: None,
                by_siar: false,
            }
        }
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
