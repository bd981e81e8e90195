// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ebbprof compare`: compares two recordings, function by function.
//!
//! It compares counts, not shares: if one function takes less, the shares of all others grow. A
//! function's counts are the number of its samples times the period. Sampling is random: `n`
//! samples are assumed to have a variance of `n + 1`, which covers a function that has none by
//! coincidence.

use std::collections::HashMap;
use std::path::Path;
use std::path::PathBuf;
use std::rc::Rc;

use anstyle::AnsiColor;
use anstyle::Style;

use crate::Failure;
use crate::profile;
use crate::profile::Summary;
use crate::report;
use crate::report::By;
use crate::report::HEAD;

#[derive(clap::Args)]
pub struct Options {
    /// File of the run before
    before: PathBuf,

    /// File of the run after
    after: PathBuf,

    /// Unit of comparison
    #[arg(short, long, value_enum, default_value_t = By::Symbol)]
    by: By,

    /// Compare shares instead of counts, for runs that did not do the same work
    #[arg(short, long)]
    shares: bool,

    /// Maximum number of lines to print
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 30)]
    lines: usize,

    /// File to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

type Key = (Rc<str>, Rc<str>);

/// A run, with its samples by function.
struct Run {
    summary: Summary,
    samples: u64,
    counts: HashMap<Key, u64>,
}

impl Run {
    fn read(path: &Path, by: By) -> Result<Self, Failure> {
        let mut counts: HashMap<Key, u64> = HashMap::new();
        let mut samples = 0;
        let summary = profile::read(path, |sample| {
            *counts.entry(by.key(sample)).or_default() += 1;
            samples += 1;
        })?;
        if samples == 0 {
            return Err(format!("{}: no samples", path.display()).into());
        }
        Ok(Self {
            summary,
            samples,
            counts,
        })
    }

    fn of(&self, key: &Key) -> u64 {
        self.counts.get(key).copied().unwrap_or(0)
    }

    /// Returns the counts of the whole program, including lost samples.
    fn all(&self) -> f64 {
        ((self.samples + self.summary.lost) * self.summary.period) as f64
    }
}

/// A function in both runs, relative to the total of the first.
struct Line<'a> {
    key: &'a Key,
    before: f64,
    after: f64,
    /// Half of the width of the 95 % confidence interval of the change.
    spread: f64,
}

impl Line<'_> {
    fn change(&self) -> f64 {
        self.after - self.before
    }

    fn is_certain(&self) -> bool {
        self.change().abs() > self.spread
    }

    /// Returns red for a function that takes more, and green for one that takes less.
    fn style(&self) -> Style {
        let colour = match (self.is_certain(), self.change() > 0.0) {
            (false, _) => None,
            (true, true) => Some(AnsiColor::Red.into()),
            (true, false) => Some(AnsiColor::Green.into()),
        };
        Style::new().fg_color(colour)
    }
}

fn lines<'a>(before: &'a Run, after: &'a Run, shares: bool) -> Vec<Line<'a>> {
    const Z: f64 = 1.959_964;
    // The share of one sample.
    let of_before = before.summary.period as f64 / before.all();
    let of_after = if shares {
        after.summary.period as f64 / after.all()
    } else {
        after.summary.period as f64 / before.all()
    };
    let line = |key| {
        let (a, b) = (before.of(key) as f64, after.of(key) as f64);
        let variance = of_before * of_before * (a + 1.0) + of_after * of_after * (b + 1.0);
        Line {
            key,
            before: a * of_before,
            after: b * of_after,
            spread: Z * variance.sqrt(),
        }
    };
    let only_after = |key: &&Key| !before.counts.contains_key(*key);
    let keys = before
        .counts
        .keys()
        .chain(after.counts.keys().filter(only_after));
    let mut lines: Vec<_> = keys.map(line).collect();
    let size = |line: &Line<'_>| line.change().abs();
    lines.sort_by(|a, b| size(b).total_cmp(&size(a)).then_with(|| a.key.cmp(b.key)));
    lines
}

pub fn run(options: &Options) -> Result<(), Failure> {
    let before = Run::read(&options.before, options.by)?;
    let after = Run::read(&options.after, options.by)?;
    let events = [&before.summary.event, &after.summary.event];
    if events[0] != events[1] {
        return Err(format!(
            "cannot compare different events: {} and {}",
            events[0], events[1]
        )
        .into());
    }

    let mut text = String::new();
    for (path, run) in [(&options.before, &before), (&options.after, &after)] {
        text += &format!(
            "{}: {:.0} {}, {} samples, {} lost\n",
            path.display(),
            run.all(),
            events[0],
            run.samples,
            run.summary.lost
        );
    }
    let change = 100.0 * (after.all() / before.all() - 1.0);
    text += &format!("Total {change:+.2}% {}\n\n", events[0]);

    let lines = lines(&before, &after, options.shares);
    let (first, second) = options.by.heads();
    let width = |line: &Line<'_>| line.key.0.chars().count();
    let widest = lines.iter().take(options.lines).map(width).max();
    let widest = widest.unwrap_or(0).clamp(first.len(), 60);
    text += &format!(
        "{HEAD} before    after   change    95 % interval    {first:widest$}  {second}{HEAD:#}\n"
    );
    for line in lines.iter().take(options.lines) {
        let (change, spread) = (100.0 * line.change(), 100.0 * line.spread);
        let style = line.style();
        text += &format!(
            "{:6.2}%  {:6.2}%  {style}{change:+6.2}%{style:#}  {:+6.2} - {:+6.2}% {} {:widest$}  {}\n",
            100.0 * line.before,
            100.0 * line.after,
            change - spread,
            change + spread,
            if line.is_certain() { '*' } else { ' ' },
            line.key.0,
            line.key.1,
        );
    }
    let more = lines.len().saturating_sub(options.lines);
    if more != 0 {
        text += &format!("... and {more} more\n");
    }
    report::write_out(options.output.as_deref(), &text)
}
