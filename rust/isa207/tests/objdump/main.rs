// SPDX-License-Identifier: GPL-2.0

//! Decodes every instruction of whole programs, and random ones, and compares the result with
//! `powerpc64le-linux-gnu-objdump`: whether it is a branch, of which kind, and its target. The
//! meaning of a mnemonic is derived from the parts that assemblers form it from, not from bits.

mod mnemonic;

use std::{
    collections::BTreeMap,
    io::{
        BufRead,
        BufReader, //
    },
    process::{
        Command,
        Stdio, //
    }, //
};

use isa207::Branch;

use mnemonic::Mnemonics;

/// One line of the disassembly: `address:\tbytes \tmnemonic operands`. The second half of a
/// prefixed instruction has no text.
struct Line<'a> {
    address: u64,
    instruction: u32,
    text: &'a str,
}

impl<'a> Line<'a> {
    /// Parses a line; `None` for headings, labels and blank lines.
    fn parse(line: &'a str) -> Option<Self> {
        let mut columns = line.trim_end().splitn(3, '\t');
        let address = columns.next()?.trim_start().strip_suffix(':')?;
        let bytes = columns.next()?.split_ascii_whitespace();
        let bytes: Vec<_> = bytes
            .map(|byte| u8::from_str_radix(byte, 16).expect("a byte"))
            .collect();
        Some(Self {
            address: u64::from_str_radix(address, 16).expect("an address"),
            instruction: u32::from_le_bytes(bytes.try_into().expect("four bytes")),
            text: columns.next().unwrap_or(""),
        })
    }
}

/// Compares every instruction that objdump prints with these arguments. Returns the number of
/// branches of each kind.
fn compare(arguments: &[&str]) -> BTreeMap<String, u32> {
    let mut objdump = Command::new("powerpc64le-linux-gnu-objdump")
        .arg("-z")
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .expect("objdump runs");
    let mut output = BufReader::new(objdump.stdout.take().unwrap());
    let mnemonics = Mnemonics::new();
    let mut found = BTreeMap::new();
    let mut text = String::new();
    while output.read_line(&mut text).expect("objdump's output") != 0 {
        if let Some(line) = Line::parse(&text) {
            let branch = Branch::decode(line.instruction, line.address);
            let seen = branch.map(|branch| (branch.kind(), branch.target()));
            let expected = mnemonics.branch(line.text, line.address);
            // The word is no instruction, or one with reserved bits set.
            if !line.text.starts_with(".long") {
                assert_eq!(seen, expected, "{arguments:?}: {text}");
            }
            if let Some((kind, _)) = expected {
                *found.entry(format!("{kind:?}")).or_insert(0) += 1;
            }
        }
        text.clear();
    }
    assert!(objdump.wait().unwrap().success(), "{arguments:?}");
    found
}

/// Needs the path of a program for little-endian POWER, or several separated by colons, in
/// `PPC64LE_PROGRAMS`.
#[test]
#[ignore = "needs PPC64LE_PROGRAMS"]
fn whole_programs() {
    let programs = std::env::var("PPC64LE_PROGRAMS").expect("PPC64LE_PROGRAMS is set");
    for program in programs.split(':') {
        let found = compare(&["-d", program]);
        println!("{program}: {found:?}");
        // Any large program has these kinds.
        for kind in [
            "Conditional",
            "Unconditional",
            "Call",
            "Return",
            "ConditionalReturn",
        ] {
            assert!(
                found.get(kind) > Some(&100),
                "{program}: {kind} in {found:?}"
            );
        }
        for kind in ["IndirectJump", "IndirectCall"] {
            assert!(
                found.get(kind) > Some(&10),
                "{program}: {kind} in {found:?}"
            );
        }
    }
}

/// Several hundred thousand words that are branches or similar to branches, from address 0 on, so
/// that many have targets before the start of the address space.
#[test]
#[ignore = "needs powerpc64le-linux-gnu-objdump"]
fn random_words() {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u32
    };
    let mut bytes = Vec::new();
    for _ in 0..400_000 {
        let word = random();
        // XL-form: BO, BI, BH and LK random, reserved bits 0.
        let xl_form = |opcode: u32| 19 << 26 | word & 0x03ff_1801 | opcode << 1;
        let word = match random() % 10 {
            0..=2 => 16 << 26 | word >> 6,
            3 | 4 => 18 << 26 | word >> 6,
            5 => xl_form(16),
            6 => xl_form(528),
            7 => xl_form(560),
            8 => 19 << 26 | word >> 6,
            _ => word,
        };
        bytes.extend(word.to_le_bytes());
    }
    let file = format!("{}/random_words", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&file, bytes).unwrap();
    let found = compare(&["-D", "-b", "binary", "-m", "powerpc:common64", "-EL", &file]);
    println!("{found:?}");
    assert_eq!(found.len(), 8, "{found:?}");
    assert!(found.values().all(|number| *number > 100), "{found:?}");
}
