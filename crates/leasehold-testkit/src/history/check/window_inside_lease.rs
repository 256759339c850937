//! A holder relies on no more than the server keeps.

use crate::history::event::{Event, What};
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::Story;

/// While a process relies on a window, the window's token is the owner on the server, and stays it
/// for at least as long. Both are compared at one instant.
///
/// Each side uses its own clock. The recorder knows how far each clock is off, and tells both spans
/// on the common clock. So no drift is excused. A client that leaves out the margin for drift is
/// found as soon as its clock is slower than the server's. With a lock delay, the server must keep
/// the lease longer by that delay, because no holder relies on it. The server measures the delay
/// too, so its clock may shorten it by 1 %. The owner is checked as long as any time remains.
/// Closed windows, and windows whose lease an operator ended, are not compared.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let events = story.events.iter().enumerate();
    events.filter_map(|(number, event)| compare(story, number, event)).collect()
}

fn compare(story: &Story<'_>, number: usize, event: &Event) -> Option<Violation> {
    let What::Compared { window, remaining, owner, left } = &event.what else { return None };
    let window = story.window(*window);
    let is_closed = window.closed.is_some_and(|closed| closed < number);
    let cut_short = window.crashed.into_iter().chain(window.evicted).any(|end| end <= event.at);
    if remaining.is_zero() || is_closed || cut_short {
        return None;
    }
    let is_owner = owner.as_deref() == Some(window.token);
    if is_owner && *left >= *remaining + story.bounds.margin * 99 / 100 {
        return None;
    }
    let whose = if is_owner { "it" } else { "another, or nobody," };
    Some(Violation {
        invariant: Invariant::WindowInsideLease,
        at: event.at,
        text: format!(
            "{} relies on its lease for {remaining:?}, and {whose} owns the key for {left:?}",
            window.name()
        ),
        promised: story.weather.leases_promised(window.called, event.at),
    })
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::WindowInsideLease;
    use crate::history::build::{Tale, tale};
    use crate::history::event::Request::Evict;

    fn held() -> Tale {
        tale().takes(1, "A", 1, 9.898).at(5.0)
    }

    #[test]
    fn a_window_longer_than_its_lease_is_found() {
        held().compares("A", 4.898, "A", 4.8).gives_up("A").breaks(WindowInsideLease);
    }

    #[test]
    fn a_window_whose_lease_is_gone_or_anothers_is_found() {
        held().compares("A", 0.001, "", 0.0).gives_up("A").breaks(WindowInsideLease);
        held().compares("A", 4.898, "B", 9.0).gives_up("A").breaks(WindowInsideLease);
    }

    #[test]
    fn a_window_within_its_lease_passes_and_one_that_left_out_the_drift_is_found() {
        held().compares("A", 4.898, "A", 5.0).gives_up("A").passes();
        held().compares("A", 4.898, "A", 4.898).gives_up("A").passes();
        held().compares("A", 4.898, "A", 4.897).gives_up("A").breaks(WindowInsideLease);
    }

    #[test]
    fn a_window_that_ends_less_than_a_lock_delay_before_its_lease_is_found() {
        let held = || held().lock_delay(1.0);
        held().compares("A", 4.898, "A", 5.8).gives_up("A").breaks(WindowInsideLease);
        held().compares("A", 4.898, "A", 5.89).gives_up("A").passes();
    }

    #[test]
    fn windows_that_are_over_are_not_compared() {
        held().gives_up("A").at(6.0).compares("A", 3.898, "", 0.0).passes();
        held().gives_up("A").at(9.9).compares("A", 0.0, "", 0.0).passes();
        held().crashes(1).compares("A", 3.898, "", 0.0).passes();
        let evicted = held().serves(Evict, "A", "A", "").compares("A", 3.898, "", 0.0);
        evicted.at(6.0).loses("A").passes();
    }

    #[test]
    fn a_server_that_forgot_excuses_it() {
        let forgot = held().fault("flushall").forgets().heals().at(6.0);
        forgot.compares("A", 3.898, "", 0.0).gives_up("A").breaks_unpromised(WindowInsideLease);
    }
}
