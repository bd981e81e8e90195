// SPDX-License-Identifier: GPL-2.0
//! Finds the function that contains an address, with this program's own ELF symbol table.
//!
//! Layout: System V ABI, ELF-64 Object File Format. Supports only what a static little-endian
//! program needs.

use std::fs;
use std::io;

const SHT_SYMTAB: u32 = 2;
const STT_FUNC: u8 = 2;

struct Symbol {
    start: u64,
    size: u64,
    name: String,
}

/// Functions of the running program.
pub struct Symbols {
    functions: Vec<Symbol>,
    bias: u64,
}

impl Symbols {
    /// Reads the table of the running program. `name` and `address` belong to one of its functions,
    /// from which the load address follows.
    pub fn load(name: &str, address: u64) -> io::Result<Self> {
        let image = fs::read("/proc/self/exe")?;
        let mut functions = parse(&image)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no ELF symbol table"))?;
        functions.sort_by_key(|symbol| symbol.start);
        let known = functions
            .iter()
            .find(|symbol| symbol.name == name)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, name.to_string()))?;
        Ok(Self {
            bias: address.wrapping_sub(known.start),
            functions,
        })
    }

    /// Returns the function that contains `address`.
    pub fn function(&self, address: u64) -> Option<&str> {
        let address = address.wrapping_sub(self.bias);
        let after = self.functions.partition_point(|s| s.start <= address);
        let symbol = self.functions.get(after.checked_sub(1)?)?;
        (address < symbol.start + symbol.size).then_some(symbol.name.as_str())
    }
}

/// Returns the functions of an ELF image, or `None` if it is not a valid one of this kind.
fn parse(image: &[u8]) -> Option<Vec<Symbol>> {
    if image.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let sections = number::<8>(image, 40)?;
    let (entry_size, count) = (number::<2>(image, 58)?, number::<2>(image, 60)?);
    let header = |n: u64| sections + n * entry_size;
    let table = (0..count)
        .map(header)
        .find(|&at| number::<4>(image, at + 4) == Some(SHT_SYMTAB.into()))?;
    let (start, size) = (
        number::<8>(image, table + 24)?,
        number::<8>(image, table + 32)?,
    );
    let strings = number::<8>(image, header(number::<4>(image, table + 40)?) + 24)?;

    let mut functions = Vec::new();
    for at in (start..start + size).step_by(24) {
        let size = number::<8>(image, at + 16)?;
        // CAST: The field st_info has one byte, as a u8 does.
        if number::<1>(image, at + 4)? as u8 & 0xf == STT_FUNC && size != 0 {
            functions.push(Symbol {
                start: number::<8>(image, at + 8)?,
                size,
                name: text(image, strings + number::<4>(image, at)?)?,
            });
        }
    }
    Some(functions)
}

/// Reads the little-endian number of `N` bytes at `at`.
fn number<const N: usize>(image: &[u8], at: u64) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let bytes = image.get(at..)?.get(..N)?;
    Some(bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)))
}

/// Reads the string that begins at `at` and ends before a zero byte.
fn text(image: &[u8], at: u64) -> Option<String> {
    let rest = image.get(usize::try_from(at).ok()?..)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}
