// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `--help` of each command says below its options; `-h` leaves it out. The page ebbprof(1)
//! says more.

/// Of `ebbprof` itself.
pub const ALL: &str = "\
First steps:
  ebbprof check ./app              can it be profiled here?
  ebbprof record -g ./app          run it; its samples go to perf.data
  ebbprof report                   where was it?
  ebbprof flame                    the same as a picture, flame.svg

A program has Event Based Branches on POWER8 and later. Exit status: 125 if ebbprof itself fails,
with the reason in a line on standard error; 2 if it does not understand its arguments.";

pub const RECORD: &str = "\
Ranges: -c 100 to 9223372036854775808 (2^63) counts, -m 4 to 1048576 KiB for each thread. More
samples than fit there until they are fetched are lost, and counted.

Exit status:
  That of the program, or 128 and the number of the signal that ended it; 125 if it was not run.

These are not run, and the line on standard error says which it is:
  static programs, and scripts whose interpreter is static
  programs that are set-user-ID or set-group-ID, or that have capabilities
  programs that use Event Based Branches themselves, by libebb or tools/ebb
  programs of Go or OCaml 5, or linked to some: samples may overwrite what is below their small
  stacks; --small-stacks runs them
  any program, while a pinned event of somebody's perf has the PMU

Examples:
  ebbprof record ./app --an-option-of-the-app
  ebbprof record -g -c 20011 -o app.data ./app
  ebbprof record -e instructions ./app";

pub const REPORT: &str = "\
Columns:
  share          part of all samples, in percent
  95 % interval  where the true share is in 95 of 100 cases (Wilson's score interval)
  samples        their number; by the period of the first line it is the counts that they stand for
Lost samples are in the first line, and in no share.

Colours are for terminals; NO_COLOR=1 leaves them out, CLICOLOR_FORCE=1 has them in any case.
Exit status: 0, or 125 if a file cannot be read or written.";

pub const COLLAPSED: &str = "\
A line: the thread's name, its functions from the outermost to the one that was executed, with ';'
between them, a blank and the number of samples. A ';' of a name becomes ':'.
Exit status: 0, or 125 if a file cannot be read or written.";

pub const FLAME: &str = "\
The width of a frame is its part of all samples; what it was called by is below it. In a browser a
click zooms in, and Ctrl-F searches by a regular expression and says which part has matched.
Exit status: 0, or 125 if a file cannot be read or written, or has no samples.";

pub const PPROF: &str = "\
The file has two values for each stack, \"samples\" and the name of the event: their number, and
the counts that they stand for. The thread's name is the label \"thread\".
Example: ebbprof pprof && pprof -top -sample_index=samples profile.pb.gz
Exit status: 0, or 125 if a file cannot be read or written.";

pub const COMPARE: &str = "\
Columns, in percent of what the first run took, or with --shares of each run's own:
  before, after  what the function took
  change         from the one to the other
  95 % interval  where the true change is in 95 of 100 cases; * marks where it is not 0

Colours are for terminals; NO_COLOR=1 leaves them out, CLICOLOR_FORCE=1 has them in any case.
Exit status: 0, or 125 if a file cannot be read or written, has no samples, or has another event.";

pub const CHECK: &str = "\
Each line says ok or FAILED: whether kernel and processor offer EBBs, which driver has the PMU,
what kernel.perf_event_paranoid is, whether an EBB event can be had now, and where libebbprof.so is.
Exit status: 0, or 1 if something has failed.";

pub const COMPLETION: &str = "\
make install-ebbprof puts files where bash, zsh and fish find them, which run this.
For this shell only: eval \"$(ebbprof completion bash)\"
Exit status: 0, or 2 if it does not know the shell.";
