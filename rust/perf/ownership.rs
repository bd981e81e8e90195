// SPDX-License-Identifier: GPL-2.0

//! Which of two drivers has a CPU's PMU, if each serves some of its events.
//!
//! At any time one driver has the PMU of a CPU, and it alone touches the registers. A driver keeps
//! the PMU when its last event leaves, so that a task which returns finds it as it left it. The
//! other driver gets it with its first event, and never while there are events of the first.

use super::PmiCell;
use kernel::prelude::*;

/// A driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The driver whose PMU perf core knows.
    Registered,
    /// The driver that interposed itself.
    Interposed,
}

/// The drivers, on the current CPU, as far as a PMU that changes hands concerns them. perf core has
/// disabled the PMU.
pub(super) trait Drivers {
    /// Whether the driver has an event on the PMU.
    fn has_events(&self, driver: Owner) -> bool;

    /// Opens a transaction of the driver that adds events.
    fn start_txn(&self, driver: Owner);

    /// Gives up the open transaction of the driver, in which it added no event.
    fn cancel_txn(&self, driver: Owner);

    /// The driver gives the PMU up: nothing of its programs stays in the registers.
    fn release(&self, driver: Owner);

    /// The driver gets the PMU, whose registers hold anything. It is frozen.
    fn acquire(&self, driver: Owner);
}

/// Which driver has the PMU of a CPU. The registered one at first.
#[derive(Default)]
pub(super) struct Ownership {
    is_interposed: PmiCell<bool>,
    /// A transaction that adds events is open, at the owner.
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

    /// Notes whether a transaction that adds events is open.
    #[inline]
    pub(super) fn set_adding(&self, is_adding: bool) {
        self.is_adding.set(is_adding);
    }

    /// Gives the PMU to `driver`, which it may have already. Fails with `EAGAIN` while the other
    /// driver has events on it.
    ///
    /// This is the only place where a PMU changes hands.
    pub(super) fn hand_to(&self, driver: Owner, drivers: &impl Drivers) -> Result {
        let owner = self.owner();
        if owner == driver {
            return Ok(());
        }
        if drivers.has_events(owner) {
            return Err(EAGAIN);
        }
        // perf core opens a transaction before it adds the group's first event, which decides
        // whose group it is.
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
