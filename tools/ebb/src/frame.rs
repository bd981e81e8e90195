// SPDX-License-Identifier: MIT OR Apache-2.0
//! Layout of the registers that an entry saves on the interrupted code's stack.
//!
//! ```text
//! interrupted r1 ->  | the interrupted code's frame     |
//!                    | RED_ZONE bytes that are its own  |
//!                    | Link: 32 bytes                   | <- Frame::back_chain
//!                    | Frame, or FullFrame              | <- the entry's r1
//! ```
//!
//! `Link` looks like the frame of a function that the interrupted function had called at the
//! interrupted instruction. An unwinder that follows back chains finds a function's return address
//! in the frame *above*. So the handler's caller, the entry, appears to return to [`Link::nip`].
//! The doubleword in the interrupted code's own frame header cannot be used for that, because a
//! leaf function keeps its LR there.

use crate::save::Save;

/// Bytes below r1 that belong to the interrupted code: 288 are the red zone of the ELFv2
/// ABI (section 2.2.3.4), and Linux leaves 512 below a signal's frame.
pub(crate) const RED_ZONE: usize = 512;

/// Index in [`Frame::gpr`] of the address at which the program continues: the interrupted one,
/// unless that is in a restartable sequence or the handler has set another.
pub(crate) const RESUME: usize = 1;

/// The frame header that links to the interrupted code.
#[repr(C)]
pub(crate) struct Link {
    /// The interrupted r1.
    pub(crate) back_chain: u64,
    cr: u64,
    /// The interrupted address. The entry returns there unless [`RESUME`] holds another address.
    pub(crate) nip: u64,
    toc: u64,
}

/// Registers that every entry saves.
#[repr(C, align(16))]
pub(crate) struct Frame {
    /// Address of the [`Link`].
    pub(crate) back_chain: u64,
    /// CR, LR and TOC save words of the ABI's frame header, for the handler to use.
    header: [u64; 3],
    /// r0 to r31 except r1 and r13; r14 and above only in a [`GprFrame`] or [`FullFrame`]. The
    /// [`Link`] has r1, so its element is used for [`RESUME`].
    pub(crate) gpr: [u64; 32],
    pub(crate) cr: u64,
    pub(crate) lr: u64,
    pub(crate) ctr: u64,
    pub(crate) xer: u64,
    pub(crate) tar: u64,
    /// Address of the thread's block.
    pub(crate) thread: u64,
}

/// A [`Frame`] that includes r14 to r31.
#[repr(C, align(16))]
pub(crate) struct GprFrame {
    pub(crate) frame: Frame,
    /// Makes the size differ from that of a `Frame`, by which they are distinguished.
    unused: [u64; 2],
}

/// Registers that the entry for handlers with vector and floating-point code saves.
#[repr(C, align(16))]
pub(crate) struct FullFrame {
    pub(crate) frame: Frame,
    pub(crate) fpscr: u64,
    unused: u64,
    pub(crate) vscr: [u64; 2],
    pub(crate) vsr: [[u64; 2]; 52],
}

// The ABI requires frames of a multiple of 16 bytes.
const _: () = assert!(size_of::<Link>() == 32 && size_of::<Frame>().is_multiple_of(16));

/// Size of the ABI's frame header. `ebb_entry_full` creates a second one for the handler, aligned.
pub(crate) const HEADER: usize = size_of::<Link>();
/// Alignment of that header, in bytes.
pub(crate) const ALIGNMENT: usize = 128;

/// Returns the bytes of a frame of this size and of all that is above it, up to the interrupted r1.
pub(crate) const fn whole(frame: usize) -> usize {
    frame + size_of::<Link>() + RED_ZONE
}

impl Save {
    /// Returns how many bytes below the interrupted r1 the entry uses before it calls the handler,
    /// including those that belong to the interrupted code. For [`Full`](Self::Full), which aligns
    /// the handler's frame, it is the maximum.
    #[must_use]
    pub const fn stack(self) -> usize {
        match self {
            Self::Gprs => whole(size_of::<Frame>()),
            Self::AllGprs => whole(size_of::<GprFrame>()),
            // r1 is a multiple of 16.
            Self::Full => whole(size_of::<FullFrame>()) + HEADER + ALIGNMENT - 16,
        }
    }
}

/// Stores or loads VSR 0-51, eight for each step of the base r12.
macro_rules! vsrs {
    ($instruction:literal) => {
        concat!(
            ".irp instruction, ",
            $instruction,
            "\n li 0, 0\n li 3, 16\n li 4, 32\n li 5, 48\n",
            "li 6, 64\n li 7, 80\n li 8, 96\n li 10, 112\n",
            "addi 12, 1, {vsr}\n",
            ".irp b, 0, 8, 16, 24, 32, 40\n",
            "\\instruction \\b, 12, 0\n",
            "\\instruction \\b + 1, 12, 3\n",
            "\\instruction \\b + 2, 12, 4\n",
            "\\instruction \\b + 3, 12, 5\n",
            "\\instruction \\b + 4, 12, 6\n",
            "\\instruction \\b + 5, 12, 7\n",
            "\\instruction \\b + 6, 12, 8\n",
            "\\instruction \\b + 7, 12, 10\n",
            "addi 12, 12, 128\n",
            ".endr\n",
            "\\instruction 48, 12, 0\n",
            "\\instruction 49, 12, 3\n",
            "\\instruction 50, 12, 4\n",
            "\\instruction 51, 12, 5\n",
            ".endr",
        )
    };
}

pub(crate) use vsrs;

/// Stores r14 to r31.
macro_rules! store_gprs_14_to_31 {
    () => {
        ".irp n, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\nstd \\n, {gpr} + 8 * \\n(1)\n.endr"
    };
}
pub(crate) use store_gprs_14_to_31;
