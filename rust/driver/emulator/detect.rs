// SPDX-License-Identifier: GPL-2.0

//! Reads the device tree to find out whether the machine is QEMU, and which one.
//!
//! C header: [`include/linux/of.h`](srctree/include/linux/of.h)

use crate::power::machine;
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    bindings,
    prelude::*,
    str::CStr, //
};

/// A node of the device tree. It exists as long as this value.
struct Node(NonNull<bindings::device_node>);

impl Node {
    fn by_path(path: &CStr) -> Option<Self> {
        // SAFETY: The path is a C string, and the pointer for options is null.
        let node =
            unsafe { bindings::of_find_node_opts_by_path(path.as_char_ptr(), ptr::null_mut()) };
        NonNull::new(node).map(Self)
    }

    fn by_type(name: &CStr) -> Option<Self> {
        // SAFETY: The name is a C string; the search begins at the root.
        let node = unsafe { bindings::of_find_node_by_type(ptr::null_mut(), name.as_char_ptr()) };
        NonNull::new(node).map(Self)
    }

    fn has_property(&self, name: &CStr) -> bool {
        // SAFETY: `by_path` and `by_type` took a reference to the node; the name is a C string.
        let property = unsafe {
            bindings::of_find_property(self.0.as_ptr(), name.as_char_ptr(), ptr::null_mut())
        };
        !property.is_null()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // SAFETY: `by_path` or `by_type` took the reference, and nothing else releases it.
        unsafe { bindings::of_node_put(self.0.as_ptr()) };
    }
}

/// Returns whether the root's `compatible` has `name`.
fn machine_is(name: &CStr) -> bool {
    let names = [name.as_char_ptr(), ptr::null()];
    // SAFETY: The array consists of C strings and ends with a null pointer.
    unsafe { bindings::of_machine_compatible_match(names.as_ptr()) }
}

/// Returns whether QEMU emulates the CPU: the machine is one of QEMU's, and there is no node of
/// KVM.
pub(super) fn is_qemu() -> bool {
    [
        c"qemu,pseries",
        c"qemu,powernv8",
        c"qemu,powernv9",
        c"qemu,powernv10",
        c"qemu,powernv11",
    ]
    .into_iter()
    .any(machine_is)
        && Node::by_path(c"/hypervisor").is_none()
}

/// Returns whether this is a QEMU before 9.1, where the BHRB's instructions are illegal.
///
/// The device tree does not show this directly. But the `pseries` of 9.1, where the kernel is not
/// the hypervisor, has a property that older versions do not have. `powernv` never has the
/// property, so it is assumed to be 9.1 or later.
pub(super) fn lacks_bhrb() -> bool {
    !machine::is_hypervisor()
        && Node::by_type(c"cpu").is_some_and(|cpu| !cpu.has_property(c"ibm,pi-features"))
}
