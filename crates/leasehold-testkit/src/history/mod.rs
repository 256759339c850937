//! Records what happened, and checks whether it may have happened.
//!
//! A history is a list of [events](event) on one clock. The checker does not compare it with a
//! mutex. A lease ends without any action, so a model of lock and unlock would either forbid
//! correct histories or allow wrong ones. Instead, the checker sorts and compares windows as
//! intervals, and each [`Invariant`] is checked independently.
//!
//! ```
//! use std::time::Duration;
//! use leasehold_testkit::history::{Bounds, History, check};
//!
//! let history = History::default();
//! // … history.push(event) …
//! assert_eq!(check(&history.events(), &Bounds::of_ttl(Duration::from_secs(10))), []);
//! ```

mod bounds;
#[cfg(test)]
mod build;
mod check;
pub mod event;
mod invariant;
mod json;
mod life;
pub mod model;
mod permits;
mod record;
mod standing;
mod story;
mod summary;
mod weather;
mod window;

pub use self::bounds::Bounds;
pub use self::invariant::{Invariant, Violation};
pub use self::json::{from_line, to_line};
pub use self::record::{History, InUse};
pub use self::summary::{Injected, Summary, WakeUps};

use self::event::Event;
use self::story::Story;

/// Returns all violations in order of time.
///
/// # Panics
///
/// If the events are not in order of time, or mention calls, windows or faults that did not begin
/// before.
#[must_use]
pub fn check(events: &[Event], bounds: &Bounds) -> Vec<Violation> {
    let story = Story::new(events, bounds);
    let mut violations: Vec<_> = check::of(&story).flat_map(|check| check(&story)).collect();
    violations.sort_by_key(|violation| (violation.at, violation.invariant));
    violations
}

/// Counts the events of a history.
#[must_use]
pub fn summary(events: &[Event], bounds: &Bounds) -> Summary {
    Summary::of(&Story::new(events, bounds))
}
