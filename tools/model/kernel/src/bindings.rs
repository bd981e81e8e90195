// SPDX-License-Identifier: GPL-2.0

//! What bindgen makes of the kernel's headers: the types with the fields that the driver uses, and
//! the functions with what they do on the host.

#![allow(non_camel_case_types, non_upper_case_globals, missing_docs)]
#![allow(clippy::missing_safety_doc)]

mod devices;
mod hotplug;
mod task;

pub use devices::*;
pub use hotplug::*;
pub use task::*;
