// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ebbprof collapsed` and `flame`: the samples by call stack, as text and as a picture.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::path::PathBuf;

use inferno::flamegraph;

use crate::Failure;
use crate::profile;
use crate::report;

#[derive(clap::Args)]
pub struct Options {
    /// File to read
    #[arg(default_value = "perf.data")]
    file: PathBuf,

    /// File to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct FlameOptions {
    /// File to read
    #[arg(default_value = "perf.data")]
    file: PathBuf,

    /// File to write
    #[arg(short, long, value_name = "FILE", default_value = "flame.svg")]
    output: PathBuf,
}

/// Returns lines `NAME;OUTERMOST;...;INNERMOST COUNT`, and the summary of the recording.
fn stacks(path: &Path) -> Result<(Vec<String>, profile::Summary), Failure> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let summary = profile::read(path, |sample| {
        let mut stack = sample.name.replace(';', ":");
        for frame in sample.frames.iter().rev() {
            stack.push(';');
            stack += &frame.label().replace(';', ":");
        }
        *counts.entry(stack).or_default() += 1;
    })?;
    let line = |(stack, count)| format!("{stack} {count}");
    Ok((counts.into_iter().map(line).collect(), summary))
}

pub fn run(options: &Options) -> Result<(), Failure> {
    let (lines, _) = stacks(&options.file)?;
    let text = lines.join("\n") + "\n";
    report::write_out(options.output.as_deref(), &text)
}

pub fn flame(options: &FlameOptions) -> Result<(), Failure> {
    let (lines, summary) = stacks(&options.file)?;
    if lines.is_empty() {
        return Err(format!("{}: no samples", options.file.display()).into());
    }
    let mut picture = flamegraph::Options::default();
    picture.title = options.file.display().to_string();
    picture.subtitle = Some(format!(
        "{}, one sample every {} counts",
        summary.event, summary.period
    ));
    picture.count_name = "samples".to_string();
    // The same function gets the same colour in each graph.
    picture.deterministic = true;
    let failed = |error: &dyn Display| format!("{}: {error}", options.output.display());
    let file = File::create(&options.output).map_err(|error| failed(&error))?;
    let lines = lines.iter().map(String::as_str);
    flamegraph::from_lines(&mut picture, lines, BufWriter::new(file)).map_err(|e| failed(&e))?;
    Ok(())
}
