// SPDX-License-Identifier: GPL-2.0
//! Which events open, and with which errno the others are refused: the same as
//! with the kernel's built-in driver.

use pmu_selftests::prelude::*;

fn expect(what: &str, attr: Attr, errno: i32) -> Outcome {
    let got = errno_of(attr.open());
    check!(got == errno, "{what}: errno {got} instead of {errno}");
    Ok(())
}

fn expect_raw(code: u64, errno: i32) -> Outcome {
    expect(&format!("{code:#x}"), Attr::raw(code), errno)
}

fn generic_events() -> Outcome {
    let stalls = match machine::model()? {
        Model::Power8 | Model::Power9 => 0,
        Model::Power10 => libc::EOPNOTSUPP,
    };
    for (id, errno) in [
        (sys::PERF_COUNT_HW_CPU_CYCLES, 0),
        (sys::PERF_COUNT_HW_INSTRUCTIONS, 0),
        (sys::PERF_COUNT_HW_CACHE_REFERENCES, 0),
        (sys::PERF_COUNT_HW_CACHE_MISSES, 0),
        (sys::PERF_COUNT_HW_BRANCH_INSTRUCTIONS, 0),
        (sys::PERF_COUNT_HW_BRANCH_MISSES, 0),
        (sys::PERF_COUNT_HW_BUS_CYCLES, libc::EOPNOTSUPP),
        (sys::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND, stalls),
        (sys::PERF_COUNT_HW_STALLED_CYCLES_BACKEND, stalls),
        (sys::PERF_COUNT_HW_REF_CPU_CYCLES, libc::EOPNOTSUPP),
        (sys::PERF_COUNT_HW_MAX, libc::EOPNOTSUPP),
        (99, libc::EOPNOTSUPP),
    ] {
        expect(&format!("generic event {id}"), Attr::hardware(id), errno)?;
    }
    Ok(())
}

/// Cache, operation (0 read, 1 write, 2 prefetch), result (0 access, 1 miss).
fn cache_events() -> Outcome {
    let caches = u64::from(sys::PERF_COUNT_HW_CACHE_MAX);
    for (cache, operation, result, errno) in [
        (0, 0, 0, 0),
        (0, 0, 1, 0),
        (1, 0, 1, 0),
        (caches, 0, 0, libc::EINVAL),
        (0, 3, 0, libc::EINVAL),
        (0, 0, 2, libc::EINVAL),
        // Nothing counts what goes to the memory of another node.
        (6, 0, 0, libc::EINVAL),
        (3, 1, 0, libc::EINVAL),
        (0, 2, 1, libc::EOPNOTSUPP),
    ] {
        let what = format!("cache {cache}, operation {operation}, result {result}");
        expect(&what, Attr::cache(cache, operation, result), errno)?;
    }
    Ok(())
}

fn codes_on_every_pmc() -> Outcome {
    for event in [CYCLES, INSTRUCTIONS] {
        expect_raw(event, 0)?;
        for pmc in 1..=4 {
            expect_raw(on_pmc(pmc, event), 0)?;
        }
    }
    expect_raw(RUN_INSTRUCTIONS, 0)?;
    expect_raw(RUN_CYCLES, 0)
}

fn pmc5_and_pmc6_count_one_thing() -> Outcome {
    for pmc in [5, 6] {
        for event in [CYCLES, INSTRUCTIONS, 0xf0, 0xff] {
            expect_raw(on_pmc(pmc, event), libc::EINVAL)?;
        }
    }
    expect_raw(on_pmc(6, 0xfa), libc::EINVAL)?;
    expect_raw(on_pmc(5, 0xf4), libc::EINVAL)
}

fn no_such_pmc() -> Outcome {
    for pmc in 7..=15 {
        expect_raw(on_pmc(pmc, CYCLES), libc::EINVAL)?;
    }
    Ok(())
}

/// Bits between the event code's fields and Linux' own at the top.
fn bits_without_meaning() -> Outcome {
    let fields_end = match machine::model()? {
        Model::Power8 => 50,
        Model::Power9 => 52,
        Model::Power10 => 60,
    };
    for bit in fields_end..60 {
        expect_raw(on_pmc(1, CYCLES) | 1 << bit, libc::EINVAL)?;
    }
    Ok(())
}

/// Random sampling mode 3 and threshold events 15 are reserved in MMCRA.
fn reserved_values() -> Outcome {
    if machine::model()? == Model::Power8 {
        return ktap::skip("the built-in driver lets these pass on POWER8");
    }
    let base = on_pmc(1, CYCLES);
    for mode in [0x03, 0x05, 0x07, 0x09, 0x0d, 0x19, 0x1a, 0x1d, 0x1e] {
        expect_raw(base | mode << 24, libc::EINVAL)?;
    }
    expect_raw(base | 0xf << 32, libc::EINVAL)?;
    expect_raw(base | 0xf << 36, libc::EINVAL)
}

fn unknown_type() -> Outcome {
    let attr = Attr::raw(CYCLES).with(|raw| raw.type_ = 0x1234);
    expect("type 0x1234", attr, libc::ENOENT)
}

/// perf core's own refusals stay as they are.
fn refused_by_perf_core() -> Outcome {
    let sampling = Attr::raw(CYCLES).with(|raw| raw.sample_type = 1 << 63);
    expect("unknown sample type", sampling, libc::EINVAL)?;
    let format = Attr::raw(CYCLES).with(|raw| raw.read_format = 1 << 63);
    expect("unknown read format", format, libc::EINVAL)
}

/// The PMU is named "cpu", and raw events are its own.
fn pmu_in_sysfs() -> Outcome {
    let text = std::fs::read_to_string("/sys/bus/event_source/devices/cpu/type")?;
    check!(text.trim() == sys::PERF_TYPE_RAW.to_string(), "type {text}");
    let format =
        |name| std::fs::read_to_string(format!("/sys/bus/event_source/devices/cpu/format/{name}"));
    format("event")?;
    for (name, bits) in [
        ("pmcxsel", "0-7"),
        ("mark", "8"),
        ("unit", "12-15"),
        ("pmc", "16-19"),
    ] {
        let text = format(name)?;
        check!(text == format!("config:{bits}\n"), "{name}: {text}");
    }
    for name in ["cpu-cycles", "instructions"] {
        let path = format!("/sys/bus/event_source/devices/cpu/events/{name}");
        let text = std::fs::read_to_string(path)?;
        let code = text.trim().strip_prefix("event=0x");
        let code = code.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        check!(code.is_some(), "{name}: {text}");
        expect_raw(code.unwrap_or(0), 0)?;
    }
    Ok(())
}

ktap::main! {
    generic_events, cache_events, codes_on_every_pmc, pmc5_and_pmc6_count_one_thing,
    no_such_pmc, bits_without_meaning, reserved_values, unknown_type, refused_by_perf_core,
    pmu_in_sysfs,
}
