// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a place in a program's or library's file to the function there.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use object::Object;
use object::ObjectSegment;
use object::ObjectSymbol;
use object::SymbolKind;

/// Where nobody knows the function.
const UNKNOWN: &str = "[unknown]";

struct Function {
    start: u64,
    end: u64,
    name: Rc<str>,
}

/// The functions of a file.
#[derive(Default)]
struct Image {
    /// In the file: first byte and length; address of the first.
    segments: Vec<(u64, u64, u64)>,
    functions: Vec<Function>,
}

impl Image {
    fn read(path: &str) -> Option<Self> {
        let path = Path::new(path);
        if !path.is_absolute() || !fs::metadata(path).ok()?.is_file() {
            return None;
        }
        let bytes = fs::read(path).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let segments = file.segments().map(|segment| {
            let (offset, length) = segment.file_range();
            (offset, length, segment.address())
        });
        let mut functions: Vec<_> = (file.symbols().chain(file.dynamic_symbols()))
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() != 0)
            .filter_map(|symbol| {
                Some(Function {
                    start: symbol.address(),
                    end: symbol.address() + symbol.size(),
                    name: readable(symbol.name().ok()?),
                })
            })
            .collect();
        functions.sort_by(|a, b| (a.start, &a.name).cmp(&(b.start, &b.name)));
        functions.dedup_by_key(|function| function.start);
        Some(Self {
            segments: segments.collect(),
            functions,
        })
    }

    fn find(&self, offset: u64) -> Option<&Rc<str>> {
        let holds = |segment: &&(u64, u64, u64)| offset.wrapping_sub(segment.0) < segment.1;
        let &(start, _, address) = self.segments.iter().find(holds)?;
        let address = offset - start + address;
        let after = self
            .functions
            .partition_point(|function| function.start <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        (address < function.end).then_some(&function.name)
    }
}

fn readable(name: &str) -> Rc<str> {
    // Without the hash.
    format!("{:#}", rustc_demangle::demangle(name)).into()
}

/// The functions of all files that were asked for.
pub struct Symbols {
    images: HashMap<Rc<str>, Image>,
    unknown: Rc<str>,
}

impl Symbols {
    pub fn new() -> Self {
        Self {
            images: HashMap::new(),
            unknown: UNKNOWN.into(),
        }
    }

    /// The name of the function at `offset` in the file at `path`.
    pub fn find(&mut self, path: &Rc<str>, offset: u64) -> Rc<str> {
        let image = self.images.entry(Rc::clone(path));
        let image = image.or_insert_with(|| Image::read(path).unwrap_or_default());
        image.find(offset).unwrap_or(&self.unknown).clone()
    }
}
