# SPDX-License-Identifier: MIT OR Apache-2.0
# Completes ebbprof's commands and options in fish, for the version of ebbprof on the PATH.
ebbprof completion fish 2>/dev/null | source
