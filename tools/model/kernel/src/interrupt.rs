// SPDX-License-Identifier: GPL-2.0

//! Interrupts of the thread's CPU.

use std::cell::Cell;

thread_local! {
    static HOOK: Cell<Option<fn(bool)>> = const { Cell::new(None) };
}

/// Sets the function to call with `false` when interrupts are disabled, and with `true` when they
/// are restored.
pub fn set_hook(hook: fn(bool)) {
    HOOK.set(Some(hook));
}

/// Guard that keeps interrupts disabled while it lives.
pub struct LocalInterruptDisabled(());

/// Disables interrupts.
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
