// SPDX-License-Identifier: MIT OR Apache-2.0
//! Texts that `--help` of each command shows below its options; `-h` omits them. The page
//! ebbprof(1) has the details.

/// Text for `ebbprof` itself.
pub const ALL: &str = "\
First steps:
  ebbprof check ./app              check whether it can be profiled here
  ebbprof record -g ./app          run it and write its samples to perf.data
  ebbprof report                   list the functions with most samples
  ebbprof flame                    draw a flame graph, flame.svg

Event Based Branches need POWER8 or later. Exit status: 125 if ebbprof itself fails, with the reason
on standard error; 2 if the arguments are wrong.";

pub const RECORD: &str = "\
Ranges: -c 100 to 9223372036854775808 (2^63) counts, -m 4 to 1048576 KiB for each thread. Samples
that do not fit in the buffer are lost, and counted.

Exit status:
  That of the program, or 128 plus the number of the signal that killed it; 125 if it was not run.

ebbprof refuses to run these, and prints the reason:
  static programs, and scripts whose interpreter is static
  programs that are set-user-ID or set-group-ID, or that have capabilities
  programs that use Event Based Branches themselves, through libebb or tools/ebb
  programs of Go or OCaml 5, or linked to code of these: samples may overwrite data below their
  small stacks; --small-stacks allows them
  any program, while a pinned event of another perf user has the PMU

Examples:
  ebbprof record ./app --an-option-of-the-app
  ebbprof record -g -c 20011 -o app.data ./app
  ebbprof record -e instructions ./app";

pub const REPORT: &str = "\
Columns:
  share          percentage of all samples
  95 % interval  confidence interval of the share (Wilson score)
  samples        number of samples; multiply by the period in the first line to get counts
The first line shows the lost samples; the shares do not include them.

Terminals get colours; NO_COLOR=1 disables them, CLICOLOR_FORCE=1 enables them everywhere.
Exit status: 0, or 125 if a file cannot be read or written.";

pub const COLLAPSED: &str = "\
Each line has the thread's name and its functions, outermost first, separated by ';', then a blank
and the number of samples. A ';' in a name is replaced by ':'.
Exit status: 0, or 125 if a file cannot be read or written.";

pub const FLAME: &str = "\
The width of a frame is its share of all samples; its caller is below it. In a browser, click to
zoom in; Ctrl-F searches for a regular expression and shows the share of the matches.
Exit status: 0, or 125 if a file cannot be read or written, or has no samples.";

pub const PPROF: &str = "\
The file has two values for each stack: \"samples\", the number of samples, and the name of the
event, the counts that they stand for. The label \"thread\" holds the thread's name.
Example: ebbprof pprof && pprof -top -sample_index=samples profile.pb.gz
Exit status: 0, or 125 if a file cannot be read or written.";

pub const COMPARE: &str = "\
Columns, as a percentage of the first run's total, or with --shares of each run's own total:
  before, after  the function's part
  change         the difference
  95 % interval  confidence interval of the change; * marks an interval that excludes 0

Terminals get colours; NO_COLOR=1 disables them, CLICOLOR_FORCE=1 enables them everywhere.
Exit status: 0, or 125 if a file cannot be read or written, has no samples, or has another event.";

pub const CHECK: &str = "\
Each line begins with ok or FAILED: whether the kernel and the processor offer EBBs, the driver of
the PMU, kernel.perf_event_paranoid, whether an EBB event is available now, and the path of
libebbprof.so.
Exit status: 0, or 1 if a check has failed.";

pub const COMPLETION: &str = "\
make install-ebbprof installs files for bash, zsh and fish that run this command.
For this shell only: eval \"$(ebbprof completion bash)\"
Exit status: 0, or 2 if the shell is unknown.";
