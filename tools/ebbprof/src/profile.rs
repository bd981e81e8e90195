// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a perf.data file: its samples, with the functions that they are in.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::BufReader;
use std::io::Seek;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::rc::Rc;

use linux_perf_data::AttributeDescription;
use linux_perf_data::PerfFileReader;
use linux_perf_data::PerfFileRecord;
use linux_perf_data::linux_perf_event_reader::EventRecord;
use linux_perf_data::linux_perf_event_reader::Mmap2FileId;
use linux_perf_data::linux_perf_event_reader::Mmap2Record;
use linux_perf_data::linux_perf_event_reader::SampleRecord;

use crate::Failure;
use crate::report::base_name;
use crate::sound;
use crate::symbols::ObjectFile;
use crate::symbols::Symbols;
use crate::symbols::is_anonymous;
use crate::symbols::visible;

/// A sample.
pub struct Sample {
    pub process: i32,
    pub thread: i32,
    /// Name of the thread.
    pub name: Rc<str>,
    /// The interrupted place, then its callers.
    pub frames: Vec<Frame>,
}

/// A place in a program.
#[derive(Clone)]
pub struct Frame {
    pub function: Rc<str>,
    /// Path of the program or library.
    pub object: Rc<str>,
}

impl Frame {
    /// Returns the function's name, or the object's if the function is unknown.
    pub fn label(&self) -> Cow<'_, str> {
        match &*self.function {
            "[unknown]" if self.object.starts_with('[') => (&*self.object).into(),
            "[unknown]" => format!("[{}]", base_name(&self.object)).into(),
            name => name.into(),
        }
    }
}

/// The data of a file other than samples.
pub struct Summary {
    /// Path of the program: the first mapping of the file.
    pub program: Option<Rc<str>>,
    /// Name of the event.
    pub event: String,
    pub period: u64,
    pub lost: u64,
    /// Number of threads that had no samples at their end.
    pub ceased: u64,
}

#[derive(Clone)]
struct Mapping {
    end: u64,
    offset: u64,
    /// The path with control characters replaced, for display.
    path: Rc<str>,
    object: Rc<ObjectFile>,
}

/// The state after the records read so far.
struct State {
    program: Option<Rc<str>>,
    maps: HashMap<i32, BTreeMap<u64, Mapping>>,
    names: HashMap<i32, Rc<str>>,
    symbols: Symbols,
    unknown: Rc<str>,
    lost: u64,
    ceased: u64,
    period: u64,
}

/// Reads the file at `path` and calls `action` for each sample, in the order of time.
pub fn read(path: &Path, mut action: impl FnMut(&Sample)) -> Result<Summary, Failure> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| failed(&error))?;
    let mut file = BufReader::new(file);
    sound::check(&mut file).map_err(|error| failed(&error))?;
    file.rewind().map_err(|error| failed(&error))?;
    let reader = PerfFileReader::parse_file(file).map_err(|e| failed(&e))?;
    let (mut file, mut records) = (reader.perf_file, reader.record_iter);
    let event = file
        .event_attributes()
        .first()
        .and_then(AttributeDescription::name);
    let event = visible(event.unwrap_or("unknown")).to_string();
    let mut state = State {
        program: None,
        maps: HashMap::new(),
        names: HashMap::new(),
        symbols: Symbols::new(),
        unknown: "[unknown]".into(),
        lost: 0,
        ceased: 0,
        period: 0,
    };
    while let Some(record) = records.next_record(&mut file).map_err(|e| failed(&e))? {
        if let PerfFileRecord::EventRecord { record, .. } = record {
            let record = record.parse().map_err(|error| failed(&error))?;
            if let Some(sample) = state.take(&record) {
                action(&sample);
            }
        }
    }
    Ok(Summary {
        program: state.program,
        event,
        period: state.period,
        lost: state.lost,
        ceased: state.ceased,
    })
}

impl State {
    fn take(&mut self, record: &EventRecord<'_>) -> Option<Sample> {
        match record {
            EventRecord::Sample(record) => return self.sample(record),
            EventRecord::Mmap2(record) => self.map(record),
            EventRecord::Lost(record) => self.lost += record.count,
            EventRecord::Throttle(_) => self.ceased += 1,
            EventRecord::Comm(record) => {
                if record.is_execve {
                    self.maps.remove(&record.pid);
                }
                let name = visible(&String::from_utf8_lossy(&record.name.as_slice()));
                self.names.insert(record.tid, name);
            }
            EventRecord::Fork(record) => {
                if let Some(name) = self.names.get(&record.ptid) {
                    self.names.insert(record.tid, Rc::clone(name));
                }
                if let (true, Some(maps)) = (record.pid != record.ppid, self.maps.get(&record.ppid))
                {
                    self.maps.insert(record.pid, maps.clone());
                }
            }
            _ => {}
        }
        None
    }

    fn map(&mut self, record: &Mmap2Record<'_>) {
        let (start, end) = (record.address, record.address.saturating_add(record.length));
        let maps = self.maps.entry(record.pid).or_default();
        maps.retain(|&old, mapping| mapping.end <= start || end <= old);
        let path = record.path.as_slice();
        let mapping = Mapping {
            end,
            offset: record.page_offset,
            path: visible(&String::from_utf8_lossy(&path)),
            object: Rc::new(ObjectFile {
                path: OsString::from_vec(path.to_vec()).into(),
                build_id: match &record.file_id {
                    Mmap2FileId::BuildId(id) => Some(id.clone()),
                    Mmap2FileId::InodeAndVersion(_) => None,
                },
            }),
        };
        self.program.get_or_insert_with(|| Rc::clone(&mapping.path));
        maps.insert(start, mapping);
    }

    fn sample(&mut self, record: &SampleRecord<'_>) -> Option<Sample> {
        let (address, process, thread) = (record.ip?, record.pid?, record.tid?);
        self.period = record.period.unwrap_or(0);
        let mut frames = vec![self.frame(process, address)];
        let chain = record
            .callchain
            .iter()
            .flat_map(|chain| (0..chain.len()).map(|n| chain.get(n)));
        // The first is the sample's own address. The outermost function's return address is 0.
        let callers = chain.flatten().filter(|&address| address < CONTEXT).skip(1);
        let callers = callers.filter(|&address| address != 0);
        // A return address is after the call, and the next instruction may be in another function.
        frames.extend(callers.map(|address| self.frame(process, address.wrapping_sub(1))));
        Some(Sample {
            process,
            thread,
            name: self.names.get(&thread).unwrap_or(&self.unknown).clone(),
            frames,
        })
    }

    fn frame(&mut self, process: i32, address: u64) -> Frame {
        let below = self
            .maps
            .get(&process)
            .and_then(|maps| maps.range(..=address).next_back());
        match below.filter(|(_, mapping)| address < mapping.end) {
            Some((start, mapping)) => {
                let offset = (address - start).wrapping_add(mapping.offset);
                let made = is_anonymous(&mapping.path)
                    .then(|| self.symbols.find_made(process, address))
                    .flatten();
                let (function, object) = made.unwrap_or_else(|| {
                    let function = self.symbols.find(&mapping.object, offset);
                    (function, Rc::clone(&mapping.path))
                });
                Frame { function, object }
            }
            None => Frame {
                function: Rc::clone(&self.unknown),
                object: Rc::clone(&self.unknown),
            },
        }
    }
}

/// Lowest entry of a chain that is not an address but a marker of its context (`PERF_CONTEXT_MAX`).
const CONTEXT: u64 = -4095_i64 as u64;
