// SPDX-License-Identifier: GPL-2.0

//! Which of two drivers has a CPU's PMU, if each serves some of its events.
//!
//! At any time one driver has the PMU of a CPU, and only that driver accesses the registers. A
//! driver keeps the PMU after its last event was deleted, so that a task which is scheduled in
//! again finds the PMU in the state in which it left it. The other driver gets the PMU with its
//! first event, but never while the first driver has events there. Without events a PMU may also
//! change hands when its CPU comes up, and when the interposition begins or ends.

use super::PmiCell;
use kernel::prelude::*;

/// A driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The driver that registered the PMU.
    Registered,
    /// The driver that interposed itself.
    Interposed,
}

/// The operations of both drivers that [`Ownership::hand_to`] needs, on the current CPU. perf core
/// has disabled the PMU, or it has no events.
pub(super) trait Drivers {
    /// Whether the driver has an event on the PMU.
    fn has_events(&self, driver: Owner) -> bool;

    /// Opens a transaction of the driver that adds events.
    fn start_txn(&self, driver: Owner);

    /// Cancels the open transaction of the driver, in which it added no event.
    fn cancel_txn(&self, driver: Owner);

    /// Takes the PMU from the driver, which leaves no values of programs in the registers.
    fn release(&self, driver: Owner);

    /// Gives the driver the PMU, which has no event, and arbitrary values in its registers.
    fn acquire(&self, driver: Owner);
}

/// Which driver has the PMU of a CPU: at first the registered one.
#[derive(Default)]
pub(super) struct Ownership {
    is_interposed: PmiCell<bool>,
    /// Whether the owner has a transaction open that adds events.
    is_adding: PmiCell<bool>,
}

impl Ownership {
    /// Returns the driver that has the PMU.
    #[inline]
    pub(super) fn owner(&self) -> Owner {
        if self.is_interposed.get() {
            Owner::Interposed
        } else {
            Owner::Registered
        }
    }

    /// Records whether a transaction that adds events is open.
    #[inline]
    pub(super) fn set_adding(&self, is_adding: bool) {
        self.is_adding.set(is_adding);
    }

    /// Gives the PMU to `driver`; does nothing if that driver has it. Fails with `EAGAIN` while the
    /// other driver has events on it.
    ///
    /// Only this function changes the owner.
    pub(super) fn hand_to(&self, driver: Owner, drivers: &impl Drivers) -> Result {
        let owner = self.owner();
        if owner == driver {
            return Ok(());
        }
        if drivers.has_events(owner) {
            return Err(EAGAIN);
        }
        // perf core opens a transaction before it adds the group's first event, and only that event
        // shows which driver has the group.
        let is_adding = self.is_adding.get();
        if is_adding {
            drivers.cancel_txn(owner);
        }
        drivers.release(owner);
        self.is_interposed.set(driver == Owner::Interposed);
        drivers.acquire(driver);
        if is_adding {
            drivers.start_txn(driver);
        }
        Ok(())
    }
}
