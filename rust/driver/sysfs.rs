// SPDX-License-Identifier: GPL-2.0

//! The PMU's files in `/sys/bus/event_source/devices/cpu/`: `format/` has the fields of an event
//! code, `events/` the codes of named events, `caps/` the PMU's name. `Documentation/sysfs.md`
//! describes them.

use crate::{
    isa207::CpuModel,
    perf::AttrGroups, //
};
use kernel::prelude::*;

/// Returns the files for `model`.
pub(super) fn attr_groups(model: &CpuModel) -> Result<AttrGroups> {
    let mut groups = AttrGroups::new()?;

    groups.add_group(c"format")?;
    for format in model.formats() {
        let (first, last) = (format.field.first_bit(), format.field.last_bit());
        let word = format.word.name();
        if first == last {
            groups.add_file(format.name, fmt!("{word}:{first}"))?;
        } else {
            groups.add_file(format.name, fmt!("{word}:{first}-{last}"))?;
        }
    }

    groups.add_group(c"events")?;
    for event in model.named_events() {
        groups.add_file(event.name, fmt!("event={:#04x}", event.code))?;
    }

    groups.add_group(c"caps")?;
    groups.add_file("pmu_name", fmt!("{}", model.name()))?;
    Ok(groups)
}
