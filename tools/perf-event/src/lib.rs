// SPDX-License-Identifier: MIT OR Apache-2.0
//! perf_event_open(2): [`Attr`] is a request, and [`Event`] an open event.
//!
//! ```no_run
//! let event = perf_event::Attr::instructions().exclude_kernel(true).open()?;
//! event.enable()?;
//! println!("{} instructions", event.read()?.value);
//! # Ok::<(), perf_event::Error>(())
//! ```

mod attr;
mod error;
mod event;

pub use attr::Attr;
pub use attr::Explain;
pub use error::Error;
pub use error::Result;
pub use error::errno_name;
pub use event::Count;
pub use event::Event;
pub use event::GroupCount;
pub use event::disable_all;
pub use event::enable_all;
pub use perf_event_open_sys::bindings as sys;
