// SPDX-License-Identifier: GPL-2.0

//! The PMU's files under `/sys/bus/event_source/devices/cpu/`: how to write an event's code, the
//! events with a name, and what the PMU is. `Documentation/sysfs.md` describes them.

use crate::{
    isa207::CpuModel,
    perf::Folders, //
};
use kernel::prelude::*;

/// The files for `model`.
pub(super) fn folders(model: &CpuModel) -> Result<Folders> {
    let mut folders = Folders::new()?;

    folders.add_folder(c"format")?;
    for format in model.formats() {
        let (first, last) = (format.field.first_bit(), format.field.last_bit());
        let word = format.word.name();
        if first == last {
            folders.add_file(format.name, fmt!("{word}:{first}"))?;
        } else {
            folders.add_file(format.name, fmt!("{word}:{first}-{last}"))?;
        }
    }

    folders.add_folder(c"events")?;
    for event in model.named_events() {
        folders.add_file(event.name, fmt!("event={:#04x}", event.code))?;
    }

    folders.add_folder(c"caps")?;
    folders.add_file("pmu_name", fmt!("{}", model.name()))?;
    Ok(folders)
}
