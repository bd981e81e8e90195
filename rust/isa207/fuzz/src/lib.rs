// SPDX-License-Identifier: GPL-2.0

//! What the fuzz targets share: the CPUs, how bytes become requests, and the
//! judges. These are the ones of the random tests (`tests/properties/`): the
//! rules written a second time, and a decoder of register images. They use
//! nothing of isa207 but its result types.

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

use oracle::Model;

/// Each CPU and revision that has tables of its own.
pub const PVRS: [(Model, u32); 7] = [
    (Model::Power8, 0x004d_0200),
    (Model::Power9, 0x004e_1201),
    (Model::Power9, 0x004e_1202),
    (Model::Power9, 0x004e_1203),
    (Model::Power10, 0x0080_1100),
    (Model::Power10, 0x0080_1200),
    (Model::Power10, 0x0082_1200),
];

/// The CPU with one of [`PVRS`].
pub fn cpu(pvr: u32) -> &'static CpuModel {
    CpuModel::from_pvr(pvr).expect("a known PVR")
}

/// Checks `req` and fails unless the written rules say the same.
///
/// The rules know of no blacklist: an event on it is compared with the same on
/// the revision that has none.
pub fn check(model: Model, pvr: u32, req: &Request) -> Result<(), Refusal> {
    let verdict = cpu(pvr).validate_event(req);
    if let Err(why) = verdict {
        assert!(!why.reason().is_empty());
    }
    if verdict == Err(Refusal::Blacklisted) {
        assert!(matches!(pvr, 0x004e_1201 | 0x004e_1202), "{pvr:#x}");
        let unlisted = cpu(0x004e_1203).validate_event(req);
        assert_eq!(unlisted.is_ok(), oracle::is_valid(model, req));
    } else {
        assert_eq!(
            verdict.is_ok(),
            oracle::is_valid(model, req),
            "{pvr:#x} {req:x?}: {verdict:?}"
        );
    }
    verdict
}
