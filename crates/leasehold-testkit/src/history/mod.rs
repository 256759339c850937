//! What happened, and whether it may have happened.
//!
//! A history is a list of [events](event) on one clock. It is not compared with a mutex: a lease
//! ends without anybody doing anything, so that a model of lock and unlock either forbids what is
//! right or allows what is wrong. Instead windows are intervals, which are sorted and compared, and
//! each [`Invariant`] is a question of its own to the events.
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
pub mod model;
mod record;
mod story;
mod summary;
mod weather;

pub use self::bounds::Bounds;
pub use self::invariant::{Invariant, Violation};
pub use self::json::{from_line, to_line};
pub use self::record::{History, InUse};
pub use self::summary::{Injected, Summary, WakeUps};

use self::event::Event;
use self::story::Story;

/// Everything that happened and must not have, in order of time.
///
/// # Panics
///
/// If the events are not in order of time, or speak of calls, windows or faults that were not told
/// before.
#[must_use]
pub fn check(events: &[Event], bounds: &Bounds) -> Vec<Violation> {
    let story = Story::new(events, bounds);
    let mut violations: Vec<_> = check::ALL.iter().flat_map(|check| check(&story)).collect();
    violations.sort_by_key(|violation| (violation.at, violation.invariant));
    violations
}

/// What a history is made of, in numbers.
#[must_use]
pub fn summary(events: &[Event], bounds: &Bounds) -> Summary {
    Summary::of(&Story::new(events, bounds))
}
