// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ebbprof report`: lists how many samples each function, object or thread has.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::rc::Rc;

use anstyle::AnsiColor;
use anstyle::Style;

use crate::Failure;
use crate::profile;
use crate::profile::Frame;
use crate::profile::Sample;

#[derive(clap::Args)]
pub struct Options {
    /// File to read
    #[arg(default_value = "perf.data")]
    file: PathBuf,

    /// Group the samples by
    #[arg(short, long, value_enum, default_value_t = By::Symbol)]
    by: By,

    /// Maximum number of lines to print
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 30)]
    lines: usize,

    /// File to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Criterion by which samples are grouped.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum By {
    /// Functions
    Symbol,
    /// Programs and libraries
    Object,
    /// Threads
    Thread,
}

impl By {
    /// Returns the two columns for a sample.
    pub fn key(self, sample: &Sample) -> (Rc<str>, Rc<str>) {
        let Frame { function, object } = &sample.frames[0];
        match self {
            Self::Symbol => (function.clone(), base_name(object)),
            Self::Object => (base_name(object), object.clone()),
            Self::Thread => {
                let ids = format!("{}/{}", sample.process, sample.thread);
                (sample.name.clone(), ids.into())
            }
        }
    }

    pub fn heads(self) -> (&'static str, &'static str) {
        match self {
            Self::Symbol => ("function", "object"),
            Self::Object => ("object", "path"),
            Self::Thread => ("thread", "process/thread"),
        }
    }
}

/// Returns the last component of an object's path.
pub fn base_name(path: &Rc<str>) -> Rc<str> {
    match path.rsplit_once('/') {
        Some((_, name)) if path.starts_with('/') && !path.starts_with("//") => name.into(),
        _ => path.clone(),
    }
}

pub fn run(options: &Options) -> Result<(), Failure> {
    let mut counts: HashMap<_, u64> = HashMap::new();
    let mut all = 0;
    let summary = profile::read(&options.file, |sample| {
        *counts.entry(options.by.key(sample)).or_default() += 1;
        all += 1;
    })?;
    let mut lines: Vec<_> = counts.into_iter().collect();
    lines.sort_by(|(a, count_a), (b, count_b)| count_b.cmp(count_a).then_with(|| a.cmp(b)));

    let mut text = format!("{all} samples of {}", summary.event);
    // Only samples have the period.
    if all != 0 {
        text += &format!(", one every {} counts", summary.period);
    }
    text += &format!("; {} lost\n", summary.lost);
    if summary.ceased != 0 {
        text += &format!("{} threads lack their last samples\n", summary.ceased);
    }
    let (first, second) = options.by.heads();
    let width = |(key, _): &((Rc<str>, Rc<str>), u64)| key.0.chars().count();
    let widest = lines.iter().take(options.lines).map(width).max();
    let widest = widest.unwrap_or(0).clamp(first.len(), 60);
    text +=
        &format!("\n{HEAD}  share  95 % interval   samples  {first:widest$}  {second}{HEAD:#}\n");
    for ((first, second), count) in lines.iter().take(options.lines) {
        let share = 100.0 * *count as f64 / all as f64;
        let (low, high) = interval(*count, all);
        let style = style(share);
        text += &format!(
            "{style}{share:6.2}%{style:#}  {:5.2} - {:5.2}%  {count:8}  {first:widest$}  {second}\n",
            100.0 * low,
            100.0 * high,
        );
    }
    let more = lines.len().saturating_sub(options.lines);
    if more != 0 {
        text += &format!("... and {more} more\n");
    }
    write_out(options.output.as_deref(), &text)
}

/// Style of column headings.
pub const HEAD: Style = Style::new().bold();

/// Returns the style of a share in percent, with the colours that perf uses.
pub fn style(share: f64) -> Style {
    let colour = match share {
        5.0.. => Some(AnsiColor::Red.into()),
        0.5.. => Some(AnsiColor::Green.into()),
        _ => None,
    };
    Style::new().fg_color(colour)
}

/// Writes a text to a file or to stdout, where a closed pipe is no error. Colours are for
/// terminals, or as the user requests with `NO_COLOR` and `CLICOLOR_FORCE`.
pub fn write_out(file: Option<&Path>, text: &str) -> Result<(), Failure> {
    match file {
        Some(path) => File::create(path)
            .and_then(|file| anstream::StripStream::new(file).write_all(text.as_bytes()))
            .map_err(|error| format!("{}: {error}", path.display()))?,
        None => match anstream::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
            _ => {}
        },
    }
    Ok(())
}

/// Returns the 95 % confidence interval of a share (Wilson score interval).
fn interval(count: u64, all: u64) -> (f64, f64) {
    const Z: f64 = 1.959_964;
    let (n, share) = (all as f64, count as f64 / all as f64);
    let middle = share + Z * Z / (2.0 * n);
    let spread = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    let whole = 1.0 + Z * Z / n;
    (
        ((middle - spread) / whole).max(0.0),
        ((middle + spread) / whole).min(1.0),
    )
}
