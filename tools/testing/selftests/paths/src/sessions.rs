// SPDX-License-Identifier: GPL-2.0
//! What the handler of `ebbprof` asks when its ring is full: here there are no pauses.

/// Whether it takes samples.
pub fn takes_samples() -> bool {
    true
}
