# SPDX-License-Identifier: MIT OR Apache-2.0
# Has fish complete ebbprof's commands and options, as the ebbprof on the PATH knows them.
ebbprof completion fish 2>/dev/null | source
