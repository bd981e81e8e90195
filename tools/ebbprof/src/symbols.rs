// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the function at a place in a program's or library's file, or in code that a program has
//! generated at run time.

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

/// Name of a function that is not known.
const UNKNOWN: &str = "[unknown]";

/// Beginnings of the names of mappings that are no files.
const ANONYMOUS: [&str; 6] = [
    "//anon",
    "/dev/zero",
    "/anon_hugepage",
    "/memfd:",
    "[anon",
    "[heap]",
];

/// Returns whether a mapping of this name may hold code that its program has generated.
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
    /// Creates the list. Of several functions at one address, the first is kept.
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
    /// The segments: offset and size in the file, and address.
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

/// Returns the paths at which files with this build id are stored: by distributions, and by `perf
/// buildid-cache`. The last is the file with stripped symbols of distributions, whose segments may
/// lack the offsets in the original file.
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

/// Returns the functions that were stripped from the file with this build id, if a distribution's
/// file with them is installed.
fn stripped_functions(id: &[u8]) -> Option<Vec<Function>> {
    let [.., symbols] = files_of(id)?;
    let bytes = Image::open(&symbols)?;
    let file = object::File::parse(&*bytes).ok()?;
    has(&file, id).then(|| functions_of(&file))
}

fn has(file: &object::File<'_>, id: &[u8]) -> bool {
    file.build_id().is_ok_and(|own| own == Some(id))
}

/// A recorded program or library.
#[derive(PartialEq, Eq, Hash)]
pub struct ObjectFile {
    pub path: PathBuf,
    /// None if the file had no build id, or could not be read.
    pub build_id: Option<Vec<u8>>,
}

impl ObjectFile {
    /// Returns the functions of the file that was recorded, not of another one that has its path
    /// now.
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
            say!("{path}: the file has changed since it was recorded; its functions are {UNKNOWN}");
        }
        code
    }
}

impl Code {
    /// Reads the functions of the file at `path`, if `wanted` returns `true` for it.
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

/// Demangles a name: functions of Rust are shown without their hash, functions of C++ without
/// parameters, as by perf.
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

/// Replaces the control characters in a name from an untrusted file, so that it cannot control a
/// terminal and fits on a line.
pub fn visible(name: &str) -> Rc<str> {
    name.replace(char::is_control, "?").into()
}

/// The functions that a process has generated, as it has listed them for perf (the kernel's
/// `tools/perf/Documentation/jit-interface.txt`).
struct Made {
    path: Rc<str>,
    functions: Functions,
}

impl Made {
    fn read(process: i32) -> Self {
        let path = format!("/tmp/perf-{process}.map");
        let text = own(&path).unwrap_or_default();
        // Later entries override earlier ones.
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

/// Returns the text of a file that this user or root has written; every user may write to /tmp.
fn own(path: &str) -> Option<String> {
    // SAFETY: The call takes no pointers.
    let user = unsafe { libc::geteuid() };
    let is_own = |data: &Metadata| [0, user].contains(&data.uid());
    let (mut file, _) = regular::open_no_link(Path::new(path), is_own)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The functions of all files and processes that were looked up.
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

    /// Returns the name of the function at `offset` in the file of `object`.
    pub fn find(&mut self, object: &Rc<ObjectFile>, offset: u64) -> Rc<str> {
        let code = self.objects.entry(Rc::clone(object));
        let code = code.or_insert_with(|| object.code().unwrap_or_default());
        code.find(offset).unwrap_or(&self.unknown).clone()
    }

    /// Returns the name of the function that `process` has generated at `address`, and the path of
    /// its list.
    pub fn find_made(&mut self, process: i32, address: u64) -> Option<(Rc<str>, Rc<str>)> {
        let made = self.made.entry(process);
        let made = made.or_insert_with(|| Made::read(process));
        let name = made.functions.find(address)?;
        Some((Rc::clone(name), Rc::clone(&made.path)))
    }
}
