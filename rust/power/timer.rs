// SPDX-License-Identifier: GPL-2.0

//! A timer for each CPU, by which code of a PM interrupt has something looked at again soon.
//!
//! A PM interrupt may be an NMI, in which no timer can be started. It leaves that to an interrupt of
//! its own then (`irq_work`). The timer fires in hard interrupt context on the CPU that started it,
//! also with PREEMPT_RT, and PM interrupts are held back meanwhile.

use super::{
    bindings,
    handler::{
        HandlerSlot,
        Registered, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Who looks when a timer fires.
pub(crate) trait Look: Send + Sync + 'static {
    /// Looks, on the current CPU, with interrupts off and PM interrupts masked; the timer interrupted
    /// the current task `in_program` or in the kernel. Returns in how many nanoseconds to look again.
    fn look(&self, in_program: bool) -> Option<u64>;
}

/// Who looks.
static LOOK: HandlerSlot = HandlerSlot::new();

/// # Safety
///
/// To be called by the timers only, as [`Timers`] has it: with interrupts off until this returns.
unsafe extern "C" fn trampoline<L: Look>(in_program: bool) -> u64 {
    // SAFETY: `Timers` hands this function to the timers while an `L` is registered.
    let look = unsafe { LOOK.get::<L>() };
    look.and_then(|look| look.look(in_program)).unwrap_or(0)
}

/// Has the current CPU look in at most `nanoseconds`; without effect when there are no [`Timers`].
/// Interrupts must be off. May be called in a PM interrupt.
pub(crate) fn look_within(nanoseconds: u64) {
    // SAFETY: The timers are set up as long as there is somebody to call, else this does nothing.
    unsafe { bindings::ebb_pmu_look_within(nanoseconds) };
}

/// The right to the timers.
pub(crate) struct Timers<L: Look> {
    _look: Registered<L>,
}

impl<L: Look> Timers<L> {
    /// Makes `look` the one that is called. Fails with `EBUSY` when there is one already.
    pub(crate) fn new(look: Arc<L>) -> Result<Self> {
        // SAFETY: The timers are for `L`, as only this value sets them up while it lives, and fire no
        // more when `_look` is dropped, as `drop` has taken them down by then.
        let look = unsafe { LOOK.register(look) }?;
        // SAFETY: An `L` is registered until the timers are taken down.
        unsafe { bindings::ebb_pmu_look_setup(Some(trampoline::<L>)) };
        Ok(Self { _look: look })
    }
}

impl<L: Look> Drop for Timers<L> {
    fn drop(&mut self) {
        // SAFETY: Set up in `new`. This waits until no timer is armed or fires; none is started
        // anew, as `look` asks for that only while there are events.
        unsafe { bindings::ebb_pmu_look_teardown() };
    }
}
