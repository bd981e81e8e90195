// SPDX-License-Identifier: GPL-2.0

//! Code that the fuzz targets share: the CPUs, the conversion of bytes to requests, and two checks
//! from `tests/properties/`: the second implementation of the rules, and a decoder of register
//! images.

#[path = "../../tests/properties/decode.rs"]
pub mod decode;
pub mod input;
#[path = "../../tests/properties/oracle.rs"]
pub mod oracle;

use isa207::{
    CpuModel,
    Refusal,
    Request, //
};

/// Each CPU and revision that has tables of its own. The first two POWER9 have blacklists.
pub const PVRS: [u32; 7] = [
    0x004d_0200,
    0x004e_1201,
    0x004e_1202,
    0x004e_1203,
    0x0080_1100,
    0x0080_1200,
    0x0082_1200,
];

/// Returns the model of the CPU with one of [`PVRS`].
pub fn model(pvr: u32) -> &'static CpuModel {
    CpuModel::from_pvr(pvr).expect("a known PVR")
}

/// Validates `req` and fails unless the written rules give the same result.
///
/// The rules have no blacklist: a blacklisted event is compared with the same event on the revision
/// without a blacklist.
pub fn validate(pvr: u32, req: &Request) -> Result<(), Refusal> {
    let verdict = model(pvr).validate_event(req);
    let mut judged = verdict;
    if let Err(why) = verdict {
        assert!(!why.reason().is_empty());
    }
    if verdict == Err(Refusal::Blacklisted) {
        assert!(matches!(pvr, 0x004e_1201 | 0x004e_1202), "{pvr:#x}");
        judged = model(0x004e_1203).validate_event(req);
    }
    let valid = oracle::is_valid(model(pvr).isa(), req);
    assert_eq!(judged.is_ok(), valid, "{pvr:#x} {req:x?}: {verdict:?}");
    verdict
}
