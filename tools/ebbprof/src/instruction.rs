// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decoding of instructions. Imports nothing, so that `make check` can run its tests on the host.

/// Returns the target of a direct branch (Power ISA Book I, "Branch Instructions").
pub fn target(from: u64, instruction: u32) -> Option<u64> {
    // CAST: Shifting the field left and back extends its sign.
    let displacement = match instruction >> 26 {
        // The field LI of the I-form.
        18 => ((instruction << 6) as i32 >> 6) & !3,
        // The field BD of the B-form.
        16 => i32::from(instruction as i16) & !3,
        _ => return None,
    };
    let absolute = instruction & 2 != 0;
    let base = if absolute { 0 } else { from };
    Some(base.wrapping_add_signed(displacement.into()))
}

#[cfg(test)]
mod tests {
    use super::target;

    #[test]
    fn direct_branches_have_their_targets() {
        // b .-8; bl .+0x100; bdnz .-36; beq .+16; ba 0x40; blr.
        assert_eq!(target(0x1000, 0x4bff_fff8), Some(0xff8));
        assert_eq!(target(0x1000, 0x4800_0101), Some(0x1100));
        assert_eq!(target(0x1000, 0x4200_ffdc), Some(0xfdc));
        assert_eq!(target(0x1000, 0x4182_0010), Some(0x1010));
        assert_eq!(target(0x1000, 0x4800_0042), Some(0x40));
        assert_eq!(target(0x1000, 0x4e80_0020), None);
    }
}
