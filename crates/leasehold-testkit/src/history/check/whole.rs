//! Whole histories: a correct one, and a long one that measures the cost of the checker.

use std::time::Duration;

use crate::history::build::{ASK, JOIN, Tale, tale};
use crate::history::event::Outcome::{Dropped, Released, Taken, Unknown, WaitElapsed};
use crate::history::event::Request::{Release, Renew};
use crate::history::event::{CallId, CallKind, Event, What};

/// Three processes and one key in good weather: one task holds and renews, one tries in vain, one
/// waits and is handed the key, and one gives up waiting.
fn good_weather() -> Tale {
    let tale = tale().at(1.0).locks(1).sends(1, JOIN, "A").at(1.01).serves(JOIN, "A", "", "A");
    let tale = tale.at(1.02).gets(1, "A", 1, 10.898).at(2.0).tries(2).sends(2, ASK, "x");
    let tale = tale.at(2.01).serves(ASK, "x", "A", "A").at(2.02).returns(2, Taken).locks(2);
    let tale = tale.sends(2, JOIN, "B").at(2.03).serves(JOIN, "B", "A", "A").at(2.5);
    let tale = tale.calls(3, CallKind::Lock, Some(1.0)).sends(3, JOIN, "C").at(2.51);
    let tale = tale.serves(JOIN, "C", "A", "A").at(3.0).sends(2, JOIN, "B").at(3.01);
    let tale = tale.serves(JOIN, "B", "A", "A").at(3.5).returns(3, WaitElapsed);
    let tale = tale.sends(3, Release, "C").at(3.51).serves(Release, "C", "A", "A").at(4.3);
    let tale = tale.sends(1, Renew, "A").at(4.31).serves(Renew, "A", "A", "A").at(4.32);
    let tale = tale.extends("A", 14.198).compares("A", 9.878, "A", 9.99).at(4.5).gives_up("A");
    let tale = tale.calls(1, CallKind::Release, Some(1.0)).sends(1, Release, "A").at(4.51);
    let tale = tale.serves(Release, "A", "A", "B").at(4.52).returns(1, Released);
    let tale = tale.gets(2, "B", 2, 5.9).sends(2, Renew, "B").at(4.53).serves(Renew, "B", "B", "B");
    let tale = tale.at(4.54).extends("B", 14.418).sees("a", Some(9.9)).at(5.0).gives_up("B");
    tale.sends(2, Release, "B").at(5.01).serves(Release, "B", "B", "")
}

/// A holder is cut off and loses its lease, a waiter is dropped, the place of a dead process
/// expires, and the server forgets everything.
fn bad_weather(tale: Tale) -> Tale {
    let tale = tale.at(20.0).locks(1).serves(JOIN, "D", "", "D").at(20.1).gets(1, "D", 3, 29.9);
    let tale = tale.fault("partition").at(21.0).locks(2).serves(JOIN, "E", "D", "D").locks(3);
    let tale = tale.serves(JOIN, "F", "D", "D").at(22.0).crashes(2).tries(1).at(25.0);
    let tale = tale.returns(1, Unknown).at(29.0).serves(JOIN, "F", "D", "D").at(29.9).loses("D");
    let tale = tale.at(30.01).serves(JOIN, "F", "", "F").at(30.1).gets(3, "F", 4, 32.0).heals();
    let tale = tale.at(31.0).fault("restart-empty").forgets().locks(4).serves(ASK, "G", "", "G");
    let tale = tale.at(31.5).gives_up("F").at(31.6).gets(4, "G", 1_000, 40.9).heals();
    let tale = tale.locks(5).at(33.0).gives_up("G").returns(5, Dropped);
    tale.serves(Release, "G", "G", "").at(99.0).over().sees("{a}:lh:fence", Some(1.0))
}

#[test]
fn a_history_as_it_should_be_passes() {
    good_weather().passes();
    bad_weather(good_weather()).passes();
}

/// The same history again and again, each time later. It is ten times as long as the history of a
/// usual seed.
fn long() -> Vec<Event> {
    let tale = good_weather();
    let mut events = Vec::new();
    for round in 0..600_u32 {
        let moved = |event: &Event| {
            let mut event = event.clone();
            event.at = event.at + Duration::from_secs(10) * round;
            event.what = renamed(event.what, round);
            event
        };
        events.extend(tale.events().iter().map(moved));
    }
    events
}

/// An event in another round, with other calls, windows and tokens.
fn renamed(mut what: What, round: u32) -> What {
    let later = Duration::from_secs(10) * round;
    let name = |token: &std::sync::Arc<str>| format!("{token}{round}").into();
    match &mut what {
        What::Called { call, .. } | What::Returned { call, .. } => call.0 += 100 * round,
        What::Granted { window, call, token, fence, until } => {
            (window.0, call.0) = (window.0 + 100 * round, call.0 + 100 * round);
            (*token, *until) = (name(token), *until + later);
            *fence = fence.map(|fence| fence + 100 * u64::from(round));
        }
        What::Extended { window, until } => {
            (window.0, *until) = (window.0 + 100 * round, *until + later);
        }
        What::ToldLost { window } | What::GaveUp { window } => window.0 += 100 * round,
        What::Compared { window, owner, .. } => {
            window.0 += 100 * round;
            *owner = owner.as_ref().map(name);
        }
        What::Sent { call, token, .. } => {
            *call = call.map(|call| CallId(call.0 + 100 * round));
            *token = name(token);
        }
        What::Served { token, before, after, .. } => {
            *token = name(token);
            (*before, *after) = (before.as_ref().map(name), after.as_ref().map(name));
        }
        _ => {}
    }
    what
}

/// The time of this test shows the cost of the checker: some tens of milliseconds with little
/// optimisation.
#[test]
fn a_history_of_twenty_thousand_events_passes() {
    let events = long();
    assert!(events.len() >= 20_000, "{}", events.len());
    let tale = tale();
    assert_eq!(crate::history::check(&events, tale.bounds()), []);
    let summary = crate::history::summary(&events, tale.bounds());
    assert_eq!(summary.acquisitions, 1_200);
}
