// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ebbprof pprof`: converts the samples to the format of pprof, which other tools read, too.

mod message;

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::io::Write;
use std::path::PathBuf;
use std::rc::Rc;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use crate::Failure;
use crate::profile;
use crate::profile::Frame;
use crate::profile::Summary;

#[derive(clap::Args)]
pub struct Options {
    /// File to read
    #[arg(default_value = "perf.data")]
    file: PathBuf,

    /// File to write
    #[arg(short, long, value_name = "FILE", default_value = "profile.pb.gz")]
    output: PathBuf,
}

/// The name of a thread, and the ids of its places, the innermost first.
type Stack = (i64, Vec<u64>);

/// A profile that is being built. Texts and places are referred to by their numbers.
#[derive(Default)]
struct Builder {
    profile: message::Profile,
    strings: HashMap<Rc<str>, i64>,
    objects: HashMap<Rc<str>, u64>,
    places: HashMap<(Rc<str>, Rc<str>), u64>,
}

impl Builder {
    fn new() -> Self {
        let mut builder = Self::default();
        // Number 0 of the format means that there is no text.
        builder.string("");
        builder
    }

    fn string(&mut self, text: impl Into<Rc<str>>) -> i64 {
        let text = text.into();
        if let Some(&known) = self.strings.get(&text) {
            return known;
        }
        // CAST: Memory cannot hold that many strings.
        let new = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_string());
        self.strings.insert(text, new);
        new
    }

    fn object(&mut self, path: &Rc<str>) -> u64 {
        if let Some(&known) = self.objects.get(path) {
            return known;
        }
        let new = self.profile.mapping.len() as u64 + 1;
        let filename = self.string(Rc::clone(path));
        self.profile.mapping.push(message::Mapping {
            id: new,
            filename,
            has_functions: true,
        });
        self.objects.insert(Rc::clone(path), new);
        new
    }

    /// Returns the id of the function's place. A function has one place, which all samples in it
    /// count for.
    fn place(&mut self, frame: &Frame) -> u64 {
        let key = (Rc::clone(&frame.function), Rc::clone(&frame.object));
        if let Some(&known) = self.places.get(&key) {
            return known;
        }
        let new = self.profile.location.len() as u64 + 1;
        let name = self.string(&*frame.label());
        let mapping_id = self.object(&frame.object);
        self.profile.function.push(message::Function {
            id: new,
            name,
            system_name: name,
        });
        self.profile.location.push(message::Location {
            id: new,
            mapping_id,
            line: vec![message::Line { function_id: new }],
        });
        self.places.insert(key, new);
        new
    }

    fn value_type(&mut self, of: &str, unit: &str) -> message::ValueType {
        message::ValueType {
            r#type: self.string(of),
            unit: self.string(unit),
        }
    }

    fn finish(
        mut self,
        counts: BTreeMap<Stack, i64>,
        summary: &Summary,
    ) -> Result<message::Profile, Failure> {
        let period = i64::try_from(summary.period)?;
        let samples = self.value_type("samples", "count");
        // Only user mode is sampled, so the modifier carries no information here.
        let event = summary.event.trim_end_matches(":u");
        let counted = self.value_type(event, "count");
        let key = self.string("thread");
        self.profile.sample_type = vec![samples, counted];
        self.profile.period_type = Some(counted);
        self.profile.period = period;
        // Readers of the format take the first object for the program.
        let program = summary
            .program
            .iter()
            .find_map(|path| self.strings.get(path));
        let program = program.copied();
        self.profile
            .mapping
            .sort_by_key(|mapping| Some(mapping.filename) != program);
        let sample = |((name, location_id), count): (Stack, i64)| message::Sample {
            location_id,
            value: vec![count, count.saturating_mul(period)],
            label: vec![message::Label { key, str: name }],
        };
        self.profile.sample = counts.into_iter().map(sample).collect();
        if summary.lost != 0 {
            let text = format!("{} samples were lost", summary.lost);
            let comment = self.string(text);
            self.profile.comment.push(comment);
        }
        Ok(self.profile)
    }
}

pub fn run(options: &Options) -> Result<(), Failure> {
    let mut builder = Builder::new();
    let mut counts: BTreeMap<Stack, i64> = BTreeMap::new();
    let summary = profile::read(&options.file, |sample| {
        let name = builder.string(Rc::clone(&sample.name));
        let frames = sample.frames.iter();
        let places = frames.map(|frame| builder.place(frame)).collect();
        *counts.entry((name, places)).or_default() += 1;
    })?;
    let profile = builder.finish(counts, &summary)?;
    let failed = |error| format!("{}: {error}", options.output.display());
    let file = File::create(&options.output).map_err(failed)?;
    let mut packed = GzEncoder::new(BufWriter::new(file), Compression::default());
    packed.write_all(&profile.encode_to_vec()).map_err(failed)?;
    packed
        .finish()
        .and_then(|mut file| file.flush())
        .map_err(failed)?;
    Ok(())
}
