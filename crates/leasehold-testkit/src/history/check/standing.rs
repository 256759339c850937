//! Places that surely stand in the line, and the turns of a lease.

use std::collections::{BTreeMap, HashMap};

use leasehold::core::Moment;

use crate::history::bounds::Bounds;
use crate::history::event::{Request, What};
use crate::history::story::{OfKey, Story};
use crate::history::weather::Weather;
use crate::history::window::Window;

/// A place that surely stands in the line from one moment to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub(super) token: &'a str,
    pub(super) entered: Moment,
    pub(super) until: Moment,
}

/// All places of a key, in the order in which they were taken. A place that may have expired counts
/// as a new one when it is refreshed. Places that a server may have forgotten are left out.
pub(super) fn places<'a>(story: &Story<'a>, of_key: &OfKey<'a>) -> Vec<Place<'a>> {
    let mut open: HashMap<&str, Place<'_>> = HashMap::new();
    let mut places = Vec::new();
    let close = |place: Option<Place<'a>>, at: Moment, places: &mut Vec<Place<'a>>| {
        places.extend(place.map(|place| Place { until: place.until.min(at), ..place }));
    };
    for served in &of_key.served {
        let (token, at) = (served.token, served.at);
        match served.request {
            Request::Ask { place: Some(life) } if served.after != Some(token) => {
                let until = at + Bounds::surely(life);
                match open.get_mut(token).filter(|place| place.until > at) {
                    Some(place) => place.until = place.until.max(until),
                    None => close(
                        open.insert(token, Place { token, entered: at, until }),
                        at,
                        &mut places,
                    ),
                }
            }
            Request::Release | Request::Keep | Request::Evict => {
                close(open.remove(token), at, &mut places);
            }
            Request::Ask { .. } | Request::Renew | Request::Downgrade | Request::Resize => {}
        }
        if let Some(owner) = served.after {
            close(open.remove(owner), at, &mut places);
        }
    }
    places.extend(open.into_values());
    places.retain(|place| !is_doubtful(story, place));
    places.sort_by_key(|place| (place.entered, place.token));
    places
}

/// The same for a key that holders share. A place stands from the first step that shows it to the
/// last one.
pub(super) fn places_among_shares<'a>(story: &Story<'a>, of_key: &OfKey<'a>) -> Vec<Place<'a>> {
    let mut open: BTreeMap<&str, Place<'a>> = BTreeMap::new();
    let mut places = Vec::new();
    for stood in &of_key.stood {
        for (waiter, _) in &stood.before.line {
            open.entry(waiter).and_modify(|place| place.until = stood.at);
        }
        open.retain(|token, place| {
            let stays = stood.before.waits(token) && stood.after.waits(token);
            if !stays {
                places.push(*place);
            }
            stays
        });
        for (token, _) in &stood.after.line {
            let new = Place { token, entered: stood.at, until: stood.at };
            open.entry(token).or_insert(new);
        }
    }
    places.extend(open.into_values());
    places.retain(|place| !is_doubtful(story, place));
    places.sort_by_key(|place| (place.entered, place.token));
    places
}

fn is_doubtful(story: &Story<'_>, place: &Place<'_>) -> bool {
    let hurts = story.weather.spells.iter().any(|spell| {
        let lasts = spell.ended.is_none_or(|ended| ended >= place.entered);
        Weather::hurts_places(spell.kind) && spell.began <= place.until && lasts
    });
    let start = story.events.partition_point(|event| event.at < place.entered);
    let mut meanwhile = story.events[start..].iter().take_while(|event| event.at <= place.until);
    hurts || story.may_forget && meanwhile.any(|event| event.what == What::Forgot)
}

/// Consecutive windows of one owner token. At the server, only renewals lie between them.
#[derive(Debug)]
pub(super) struct Turns<'s, 'a> {
    /// When the key went to the token, or was kept for it.
    pub(super) from: Moment,
    /// Whether another client's request gave it the key.
    pub(super) is_handed: bool,
    pub(super) windows: Vec<&'s Window<'a>>,
}

/// All turns of a key whose beginning is in the history.
pub(super) fn turns<'s, 'a>(of_key: &'s OfKey<'a>) -> Vec<Turns<'s, 'a>> {
    let mut starts: HashMap<&str, Vec<(Moment, bool)>> = HashMap::new();
    for served in &of_key.served {
        if let Some(owner) = served.after
            && (served.before != served.after || served.is_kept())
        {
            starts.entry(owner).or_default().push((served.at, served.token != owner));
        }
    }
    let mut all: Vec<Turns<'s, 'a>> = Vec::new();
    let mut latest: HashMap<&str, usize> = HashMap::new();
    for window in &of_key.windows {
        let starts = starts.get(window.token).map_or(&[][..], Vec::as_slice);
        let started = starts.partition_point(|(at, _)| *at <= window.began);
        let Some((from, is_handed)) = started.checked_sub(1).map(|last| starts[last]) else {
            continue;
        };
        let index = *latest.entry(window.token).or_insert(usize::MAX);
        match all.get_mut(index) {
            Some(turns) if turns.from == from => turns.windows.push(window),
            _ => {
                latest.insert(window.token, all.len());
                all.push(Turns { from, is_handed, windows: vec![window] });
            }
        }
    }
    all
}
