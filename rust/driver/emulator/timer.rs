// SPDX-License-Identifier: GPL-2.0

//! A timer for each CPU, which checks again an alert that its program cannot take yet.
//!
//! The timer fires in hard interrupt context on the CPU that started it, also with PREEMPT_RT. A
//! PMI that is an NMI cannot start a timer. It queues an `irq_work`, which starts the timer as soon
//! as interrupts are on.

use super::{
    super::cpu_state::{
        local_pmu,
        CpuContexts,
        ThisCpu, //
    },
    alert_state::FIRST_CHECK_NS,
    check::check, //
};
use crate::power::{
    interrupt::interrupted_program,
    machine, //
};
use kernel::{
    bindings,
    container_of,
    cpu::nr_cpu_ids,
    impl_has_hr_timer,
    prelude::*,
    sync::Arc,
    time::{
        hrtimer::{
            HasHrTimer,
            HrTimer,
            HrTimerCallback,
            HrTimerCallbackContext,
            HrTimerRestart,
            RelativePinnedHardMode, //
        },
        Delta,
        Instant,
        Monotonic, //
    },
    types::Opaque, //
};

/// The timers of all CPUs.
pub(super) struct CheckTimers(Pin<KBox<[CheckTimer]>>);

impl CheckTimers {
    /// Makes the timers. Fails with `ENOMEM`.
    pub(super) fn new(cpus: &Arc<CpuContexts>) -> Result<Self> {
        // CAST: A CPU's number is less than `nr_cpu_ids`, which is a `u32`.
        let timers = KBox::pin_slice(
            |cpu| CheckTimer::new(cpu as u32, cpus.clone()),
            nr_cpu_ids() as usize,
            GFP_KERNEL,
        )?;
        Ok(Self(timers))
    }

    /// Makes the timer check the alert of this CPU's program within [`FIRST_CHECK_NS`].
    pub(super) fn start(&self, this_cpu: &ThisCpu, in_nmi: bool) {
        // CAST: `usize` has 64 bits here, so a `u32` fits.
        let Some(timer) = self.0.get(this_cpu.id().as_u32() as usize) else {
            return;
        };
        if in_nmi {
            // SAFETY: `CheckTimer::new` initialized the `irq_work`, and `drop` waits until it has
            // run.
            unsafe { bindings::irq_work_queue(timer.start_work.get()) };
        } else {
            timer.start_first();
        }
    }
}

impl Drop for CheckTimers {
    fn drop(&mut self) {
        for timer in self.0.iter() {
            // SAFETY: `CheckTimer::new` initialized both. `start` is not called any more, because
            // its owner is being dropped. The `irq_work` can start the timer only until
            // `irq_work_sync` returns, and the timer can restart itself only until it is cancelled.
            unsafe {
                bindings::irq_work_sync(timer.start_work.get());
                bindings::hrtimer_cancel(CheckTimer::c_timer_ptr(timer).cast_mut());
            }
        }
    }
}

/// A CPU's timer, part of [`CheckTimers`].
#[pin_data]
struct CheckTimer {
    #[pin]
    timer: HrTimer<Self>,
    /// Starts the timer if a PMI that is an NMI cannot.
    #[pin]
    start_work: Opaque<bindings::irq_work>,
    /// The CPU's number.
    cpu: u32,
    cpus: Arc<CpuContexts>,
}

// SAFETY: The kernel allows calls of its timer and `irq_work` functions on any CPU; the other
// fields are `Send`.
unsafe impl Send for CheckTimer {}
// SAFETY: The kernel allows calls of its timer and `irq_work` functions from several CPUs at the
// same time; the other fields are `Sync`.
unsafe impl Sync for CheckTimer {}

impl CheckTimer {
    fn new(cpu: u32, cpus: Arc<CpuContexts>) -> impl PinInit<Self, Error> {
        // This is IRQ_WORK_INIT_HARD().
        let mut start_work = bindings::irq_work {
            func: Some(start_from_irq_work),
            ..Default::default()
        };
        start_work.node.__bindgen_anon_1.u_flags = bindings::IRQ_WORK_HARD_IRQ;
        try_pin_init!(Self {
            timer <- HrTimer::new(),
            start_work: Opaque::new(start_work),
            cpu,
            cpus,
        }? Error)
    }

    /// Starts the timer so that it fires within [`FIRST_CHECK_NS`].
    fn start_first(&self) {
        // SAFETY: `self` is a reference, so its timer is valid for reads.
        let is_queued =
            unsafe { (&raw const (*Self::c_timer_ptr(self)).is_queued).read_volatile() };
        let until_expiry = || self.timer.expires() - Instant::<Monotonic>::now();
        if !(is_queued && until_expiry() <= delta(FIRST_CHECK_NS)) {
            self.start(FIRST_CHECK_NS);
        }
    }

    /// Starts the timer so that it fires in about `ns` nanoseconds.
    fn start(&self, ns: u64) {
        // Subtract up to a quarter. QEMU counts the instructions of a check for the program: if a
        // pause were a multiple of the program's period, all samples would be at the same place of
        // a check.
        let less = machine::ticks_to_ns(machine::time_base()) % (ns / 4 + 1);
        // SAFETY: `self` is valid until `CheckTimers` has cancelled the timer.
        unsafe { HasHrTimer::start(self, delta(ns - less)) };
    }
}

impl HrTimerCallback for CheckTimer {
    type Pointer<'a> = Pin<&'a Self>;

    fn run(this: Pin<&Self>, _context: HrTimerCallbackContext<'_, Self>) -> HrTimerRestart {
        let check = |this_cpu: &ThisCpu| {
            let local = local_pmu(this_cpu.irqs_off());
            let next = local.with_pmis_masked(|| check(this_cpu, interrupted_program(&local)));
            // If a CPU went offline, its timer fires on another CPU, whose own timer continues.
            next.filter(|_| this_cpu.id().as_u32() == this.cpu)
        };
        // SAFETY: Interrupts are off in the timer's interrupt.
        if let Some(ns) = unsafe { this.cpus.with_this_cpu(check) } {
            this.start(ns);
        }
        HrTimerRestart::NoRestart
    }
}

impl_has_hr_timer! {
    impl HasHrTimer<Self> for CheckTimer {
        mode: RelativePinnedHardMode<Monotonic>, field: self.timer
    }
}

/// # Safety
///
/// `work` must be the `start_work` of a [`CheckTimer`].
unsafe extern "C" fn start_from_irq_work(work: *mut bindings::irq_work) {
    // SAFETY: `work` is part of a `CheckTimer` by the function's precondition, and `CheckTimers`
    // waits for this function before it frees the timers.
    let timer = unsafe { &*container_of!(Opaque::cast_from(work), CheckTimer, start_work) };
    timer.start_first();
}

fn delta(ns: u64) -> Delta {
    // CAST: Pauses are below a millisecond, so the value fits.
    Delta::from_nanos(ns as i64)
}
