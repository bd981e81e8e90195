// SPDX-License-Identifier: GPL-2.0

//! Attribute groups: folders of read-only files in `/sys/bus/event_source/devices/<pmu>/`, each
//! with a fixed text.
//!
//! C header: [`include/linux/sysfs.h`](srctree/include/linux/sysfs.h)

use core::{
    ffi::{
        c_char,
        CStr, //
    },
    marker::PhantomPinned, //
};
use kernel::{
    bindings,
    fmt,
    prelude::*,
    str::{
        CStrExt,
        CString, //
    }, //
};

/// A file with a fixed text.
///
/// # Invariants
///
/// `file.attr.name` points to the string in `name`.
#[repr(C)]
struct Attribute {
    file: bindings::device_attribute,
    name: CString,
    text: CString,
    _pin: PhantomPinned,
}

impl Attribute {
    fn new(name: CString, text: CString) -> Result<Pin<KBox<Self>>> {
        let mut file: bindings::device_attribute = pin_init::zeroed();
        file.attr.name = name.as_char_ptr();
        file.attr.mode = 0o444;
        file.__bindgen_anon_1.show = Some(Self::show);
        // Files in allocated memory share one lock class, because they never nest.
        #[cfg(CONFIG_DEBUG_LOCK_ALLOC)]
        {
            file.attr.key = kernel::static_lock_class!().as_ptr();
        }
        // INVARIANT: The string does not move when its owner moves.
        let attribute = Self {
            file,
            name,
            text,
            _pin: PhantomPinned,
        };
        Ok(KBox::pin(attribute, GFP_KERNEL)?)
    }

    /// Shows the text of a file.
    ///
    /// # Safety
    ///
    /// sysfs must be the caller: `file` is the start of an [`Attribute`], `page` a page to write
    /// to.
    unsafe extern "C" fn show(
        _device: *mut bindings::device,
        file: *mut bindings::device_attribute,
        page: *mut c_char,
    ) -> isize {
        // SAFETY: Every file with this function is the first field of an `Attribute`.
        let this = unsafe { &*file.cast::<Self>() };
        // SAFETY: `page` meets the conditions of `sysfs_emit`, and the format takes one string.
        let length =
            unsafe { bindings::sysfs_emit(page, c"%s\n".as_char_ptr(), this.text.as_char_ptr()) };
        // CAST: The length is at most a page.
        length as isize
    }
}

/// A folder of files: `struct attribute_group`.
struct AttrGroup {
    group: bindings::attribute_group,
    /// The array that `group` points to: the files, then null.
    list: KVec<*mut bindings::attribute>,
    files: KVec<Pin<KBox<Attribute>>>,
}

/// The attribute groups of a PMU.
///
/// # Invariants
///
/// Each group's `group` points to its `list`, which points to its `files` and ends with null;
/// `list` here points to the groups and ends with null.
pub(crate) struct AttrGroups {
    /// The groups, then null.
    list: KVec<*const bindings::attribute_group>,
    groups: KVec<KBox<AttrGroup>>,
}

// SAFETY: No code changes the files after they are registered, and they are not bound to a thread.
unsafe impl Send for AttrGroups {}
// SAFETY: No code changes the files after they are registered.
unsafe impl Sync for AttrGroups {}

impl AttrGroups {
    /// Makes an empty list of groups. This and the other functions here fail with `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let mut list = KVec::new();
        list.push(core::ptr::null(), GFP_KERNEL)?;
        // INVARIANT: There are no groups.
        Ok(Self {
            list,
            groups: KVec::new(),
        })
    }

    /// Adds a group. [`AttrGroups::add_file`] adds files to the last group.
    pub(crate) fn add_group(&mut self, name: &'static CStr) -> Result {
        let mut list = KVec::new();
        list.push(core::ptr::null_mut(), GFP_KERNEL)?;
        let mut new = KBox::new(
            AttrGroup {
                group: pin_init::zeroed(),
                list,
                files: KVec::new(),
            },
            GFP_KERNEL,
        )?;
        new.group.name = name.as_char_ptr();
        new.group.__bindgen_anon_2.attrs = new.list.as_ptr().cast_mut();
        let group: *const bindings::attribute_group = &raw const new.group;
        self.groups.push(new, GFP_KERNEL)?;
        // INVARIANT: The new group replaces the null, and a new null follows it.
        push_before_null(&mut self.list, group, core::ptr::null())
    }

    /// Adds a file that contains `text` and a newline. Fails with `EINVAL` if there is no group.
    pub(crate) fn add_file(&mut self, name: &str, text: fmt::Arguments<'_>) -> Result {
        let last = self.groups.last_mut().ok_or(EINVAL)?;
        let name = CString::try_from_fmt(fmt!("{name}"))?;
        let attribute = Attribute::new(name, CString::try_from_fmt(text)?)?;
        let file = (&raw const attribute.file.attr).cast_mut();
        last.files.push(attribute, GFP_KERNEL)?;
        push_before_null(&mut last.list, file, core::ptr::null_mut())?;
        // INVARIANT: The list may have moved, so `attrs` is set again.
        last.group.__bindgen_anon_2.attrs = last.list.as_ptr().cast_mut();
        Ok(())
    }

    /// Returns the list as a pointer for the driver core. Valid as long as `self` if nothing is
    /// added.
    pub(super) fn as_raw(&self) -> *mut *const bindings::attribute_group {
        self.list.as_ptr().cast_mut()
    }
}

/// Appends to a list that ends with `null`. The list still ends with `null` afterwards.
fn push_before_null<T: Copy>(list: &mut KVec<T>, item: T, null: T) -> Result {
    list.push(null, GFP_KERNEL)?;
    if let Some(last) = list
        .len()
        .checked_sub(2)
        .and_then(|index| list.get_mut(index))
    {
        *last = item;
    }
    Ok(())
}
