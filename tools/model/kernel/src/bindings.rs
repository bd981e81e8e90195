// SPDX-License-Identifier: GPL-2.0

//! A stand-in for bindgen's output from the kernel's headers: types with the fields that the driver
//! uses, and functions with their behaviour on the host.

#![allow(non_camel_case_types, non_upper_case_globals, missing_docs)]
#![allow(clippy::missing_safety_doc)]

mod devices;
mod hotplug;
mod task;

pub use devices::*;
pub use hotplug::*;
pub use task::*;
