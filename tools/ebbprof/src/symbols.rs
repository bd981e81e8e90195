// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a place in a program's or library's file, or in code that a program has made while it ran,
//! to the function there.

use std::collections::HashMap;
use std::env;
use std::fs::Metadata;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;
use std::rc::Rc;

use cpp_demangle::DemangleOptions;
use object::Object;
use object::ObjectSegment;
use object::ObjectSymbol;
use object::SymbolKind;

use crate::image::Image;
use crate::regular;

/// Where nobody knows the function.
const UNKNOWN: &str = "[unknown]";

/// What mappings of no file begin with.
const ANONYMOUS: [&str; 6] = [
    "//anon",
    "/dev/zero",
    "/anon_hugepage",
    "/memfd:",
    "[anon",
    "[heap]",
];

/// Whether a mapping of this name may have code that its program has made.
pub fn is_anonymous(path: &str) -> bool {
    ANONYMOUS.iter().any(|start| path.starts_with(start))
}

struct Function {
    start: u64,
    end: u64,
    name: Rc<str>,
}

/// Functions by their addresses.
#[derive(Default)]
struct Functions(Vec<Function>);

impl Functions {
    /// Of several at one address the first stays.
    fn new(mut functions: Vec<Function>) -> Self {
        functions.sort_by_key(|function| function.start);
        functions.dedup_by_key(|function| function.start);
        Self(functions)
    }

    fn find(&self, address: u64) -> Option<&Rc<str>> {
        let after = self.0.partition_point(|function| function.start <= address);
        let function = self.0.get(after.checked_sub(1)?)?;
        (address < function.end).then_some(&function.name)
    }
}

/// The functions of a file.
#[derive(Default)]
struct Code {
    /// In the file: first byte and length; address of the first.
    segments: Vec<(u64, u64, u64)>,
    functions: Functions,
}

fn functions_of(file: &object::File<'_>) -> Vec<Function> {
    (file.symbols().chain(file.dynamic_symbols()))
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() != 0)
        .filter_map(|symbol| {
            Some(Function {
                start: symbol.address(),
                end: symbol.address().checked_add(symbol.size())?,
                name: readable(symbol.name().ok()?),
            })
        })
        .collect()
}

/// Where files are that were put aside by this build id: by distributions, and by `perf buildid-cache`; then
/// what distributions have stripped from one, which does not always tell where in the file a function is.
fn files_of(id: &[u8]) -> Option<[PathBuf; 3]> {
    let digits = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
    let (first, rest) = id.split_at_checked(1)?;
    let (folder, name) = (digits(first), digits(rest));
    let home = env::var_os("HOME").unwrap_or_default();
    let by_perf = Path::new(&home).join(".debug/.build-id").join(&folder);
    let system = Path::new("/usr/lib/debug/.build-id").join(&folder);
    Some([
        system.join(&name),
        by_perf.join(&name).join("elf"),
        system.join(format!("{name}.debug")),
    ])
}

/// What was stripped from the file with this build id, if it is where distributions put it.
fn stripped_functions(id: &[u8]) -> Option<Vec<Function>> {
    let [.., symbols] = files_of(id)?;
    let bytes = Image::open(&symbols)?;
    let file = object::File::parse(&*bytes).ok()?;
    has(&file, id).then(|| functions_of(&file))
}

fn has(file: &object::File<'_>, id: &[u8]) -> bool {
    file.build_id().is_ok_and(|own| own == Some(id))
}

/// A program or library, as a file tells of it that was recorded.
#[derive(PartialEq, Eq, Hash)]
pub struct ObjectFile {
    pub path: PathBuf,
    /// None where it had none, or could not be read.
    pub build_id: Option<Vec<u8>>,
}

impl ObjectFile {
    /// The functions of the file that was recorded, and not of another that has its path now.
    fn code(&self) -> Option<Code> {
        let Some(id) = &self.build_id else {
            return Code::read(&self.path, |_| true);
        };
        let is_it = |file: &object::File<'_>| has(file, id);
        if let Some(code) = Code::read(&self.path, is_it) {
            return Some(code);
        }
        let aside = files_of(id).into_iter().flatten();
        let code = aside.filter_map(|path| Code::read(&path, is_it)).next();
        if code.is_none() && Image::open(&self.path).is_some() {
            let path = visible(&self.path.to_string_lossy());
            say!("{path}: it has changed since it was recorded: its functions are {UNKNOWN}");
        }
        code
    }
}

impl Code {
    /// Of the file at `path`, if it is the one that is wanted.
    fn read(path: &Path, wanted: impl FnOnce(&object::File<'_>) -> bool) -> Option<Self> {
        let bytes = Image::open(path)?;
        let file = object::File::parse(&*bytes).ok()?;
        if !wanted(&file) {
            return None;
        }
        let segments = file.segments().map(|segment| {
            let (offset, length) = segment.file_range();
            (offset, length, segment.address())
        });
        let mut functions = functions_of(&file);
        if file.symbols().next().is_none() {
            let stripped = file.build_id().ok().flatten().and_then(stripped_functions);
            functions.extend(stripped.unwrap_or_default());
        }
        functions.sort_by(|a, b| a.name.cmp(&b.name));
        Some(Self {
            segments: segments.collect(),
            functions: Functions::new(functions),
        })
    }

    fn find(&self, offset: u64) -> Option<&Rc<str>> {
        let holds = |segment: &&(u64, u64, u64)| offset.wrapping_sub(segment.0) < segment.1;
        let &(start, _, address) = self.segments.iter().find(holds)?;
        self.functions.find(offset - start + address)
    }
}

/// The name as the source has it: of Rust's functions without the hash, of C++'s without their
/// parameters, as perf shows it.
fn readable(name: &str) -> Rc<str> {
    let options = DemangleOptions::new().no_params().no_return_type();
    let cpp = || {
        let symbol = cpp_demangle::Symbol::new(name.strip_prefix("_Z").map(|_| name)?).ok()?;
        symbol.demangle_with_options(&options).ok()
    };
    match rustc_demangle::try_demangle(name) {
        Ok(rust) => visible(&format!("{rust:#}")),
        Err(_) => visible(&cpp().unwrap_or_else(|| name.to_string())),
    }
}

/// A name out of somebody's file without what a terminal would obey to, and on one line.
pub fn visible(name: &str) -> Rc<str> {
    name.replace(char::is_control, "?").into()
}

/// The functions that a process has made, as it has written them down for perf (the kernel's
/// `tools/perf/Documentation/jit-interface.txt`).
struct Made {
    path: Rc<str>,
    functions: Functions,
}

impl Made {
    fn read(process: i32) -> Self {
        let path = format!("/tmp/perf-{process}.map");
        let text = own(&path).unwrap_or_default();
        // What is said later holds.
        let functions = text.lines().rev().filter_map(|line| {
            let mut words = line.splitn(3, ' ');
            let mut hex = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
            let (start, size) = (hex()?, hex()?);
            Some(Function {
                start,
                end: start.checked_add(size)?,
                name: visible(words.next()?),
            })
        });
        Self {
            functions: Functions::new(functions.collect()),
            path: path.into(),
        }
    }
}

/// The text of a file that this user or root has written: everybody may write to /tmp.
fn own(path: &str) -> Option<String> {
    // SAFETY: asks for a number.
    let user = unsafe { libc::geteuid() };
    let is_own = |data: &Metadata| [0, user].contains(&data.uid());
    let (mut file, _) = regular::open_no_link(Path::new(path), is_own)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The functions of all files and processes that were asked for.
pub struct Symbols {
    objects: HashMap<Rc<ObjectFile>, Code>,
    made: HashMap<i32, Made>,
    unknown: Rc<str>,
}

impl Symbols {
    pub fn new() -> Self {
        Self {
            objects: HashMap::new(),
            made: HashMap::new(),
            unknown: UNKNOWN.into(),
        }
    }

    /// The name of the function at `offset` in the file of `object`.
    pub fn find(&mut self, object: &Rc<ObjectFile>, offset: u64) -> Rc<str> {
        let code = self.objects.entry(Rc::clone(object));
        let code = code.or_insert_with(|| object.code().unwrap_or_default());
        code.find(offset).unwrap_or(&self.unknown).clone()
    }

    /// The name of the function that `process` has made at `address`, and where it says so.
    pub fn find_made(&mut self, process: i32, address: u64) -> Option<(Rc<str>, Rc<str>)> {
        let made = self.made.entry(process);
        let made = made.or_insert_with(|| Made::read(process));
        let name = made.functions.find(address)?;
        Some((Rc::clone(name), Rc::clone(&made.path)))
    }
}
