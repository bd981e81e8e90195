// SPDX-License-Identifier: GPL-2.0

//! Interrupts of the thread's CPU.

use std::cell::Cell;

thread_local! {
    static HOOK: Cell<Option<fn(bool)>> = const { Cell::new(None) };
}

/// Has `hook` called when interrupts are turned off (`false`) and when that is undone.
pub fn set_hook(hook: fn(bool)) {
    HOOK.set(Some(hook));
}

/// Interrupts are off while it lives.
pub struct LocalInterruptDisabled(());

/// Turns interrupts off.
pub fn local_interrupt_disable() -> LocalInterruptDisabled {
    if let Some(hook) = HOOK.get() {
        hook(false);
    }
    LocalInterruptDisabled(())
}

impl Drop for LocalInterruptDisabled {
    fn drop(&mut self) {
        if let Some(hook) = HOOK.get() {
            hook(true);
        }
    }
}
