//! The times at which something was wrong, and the violations that this excuses.

use std::time::Duration;

use leasehold::core::Moment;

use super::bounds::Bounds;
use super::model::{Promised, promised};

#[derive(Clone, Copy, Debug)]
pub(super) struct Spell<'a> {
    pub(super) fault: u32,
    pub(super) kind: &'a str,
    pub(super) began: Moment,
    /// `None` while the fault lasts.
    pub(super) ended: Option<Moment>,
    promised: Promised,
}

impl Spell<'_> {
    fn ended(&self) -> Moment {
        self.ended.unwrap_or(FOR_EVER)
    }
}

const FOR_EVER: Moment = Moment::from_nanos(u64::MAX);

/// Everything that was wrong in a history.
#[derive(Debug, Default)]
pub(super) struct Weather<'a> {
    pub(super) spells: Vec<Spell<'a>>,
    /// The spans in which the world was disturbed: by faults, and by stops, kills and lost grants
    /// without a fault.
    disturbed: Vec<(Moment, Moment)>,
    lease: Duration,
    aftermath: Duration,
}

impl<'a> Weather<'a> {
    pub(super) fn new(bounds: &Bounds) -> Self {
        Self { lease: bounds.lease(), aftermath: bounds.aftermath(), ..Self::default() }
    }

    /// Adds a fault. An unknown kind counts as covered, so that a wrong name fails loudly.
    pub(super) fn began(&mut self, at: Moment, fault: u32, kind: &'a str) {
        let all = Promised { windows: true, leases: true, fencing: true };
        let promised = promised(kind).unwrap_or(all);
        self.spells.push(Spell { fault, kind, began: at, ended: None, promised });
    }

    pub(super) fn ended(&mut self, at: Moment, fault: u32) {
        let spell = self.spells.iter_mut().rev().find(|spell| spell.fault == fault);
        spell.expect("a fault that ended had begun").ended = Some(at);
    }

    /// Adds a disturbance that is not a fault of its own.
    pub(super) fn disturb(&mut self, from: Moment, to: Moment) {
        self.disturbed.push((from, to));
    }

    /// Merges the spans that faults disturbed, with their aftermath. Call this after all faults are
    /// known.
    pub(super) fn settle(&mut self) {
        let spells = self.spells.iter().map(|spell| (spell.began, spell.ended()));
        let mut all: Vec<_> = self.disturbed.iter().copied().chain(spells).collect();
        all.sort_unstable();
        let mut merged: Vec<(Moment, Moment)> = Vec::new();
        for (from, to) in all {
            let to = to + self.aftermath;
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        self.disturbed = merged;
    }

    /// Whether nothing was wrong during a span and shortly before it.
    pub(super) fn is_calm(&self, from: Moment, to: Moment) -> bool {
        let next = self.disturbed.partition_point(|(_, end)| *end < from);
        self.disturbed.get(next).is_none_or(|(began, _)| *began > to)
    }

    /// The calm parts of a span, in order.
    pub(super) fn calm(&self, from: Moment, to: Moment) -> Vec<(Moment, Moment)> {
        let mut parts = Vec::new();
        let mut start = from;
        let next = self.disturbed.partition_point(|(_, end)| *end < from);
        for (began, ended) in self.disturbed[next..].iter().take_while(|(began, _)| *began < to) {
            if *began > start {
                parts.push((start, *began));
            }
            start = *ended;
        }
        if start < to {
            parts.push((start, to));
        }
        parts
    }

    /// Whether windows are promised not to overlap at `at`, if the first of their leases was
    /// requested at `asked`.
    ///
    /// A fault that ends leases early excuses its possible effects: violations from its beginning
    /// until all leases that it met have ended. That is one ttl and the lock delay after its end.
    /// It does not meet a lease that was requested after its end.
    pub(super) fn windows_promised(&self, asked: Moment, at: Moment) -> bool {
        !self.is_met(asked, at, |promised| !promised.windows)
    }

    /// Like [`windows_promised`](Self::windows_promised), for the leases behind the windows. A
    /// strict server may forget leases, but nobody else gets their keys meanwhile.
    pub(super) fn leases_promised(&self, asked: Moment, at: Moment) -> bool {
        !self.is_met(asked, at, |promised| !promised.leases)
    }

    /// Whether leases that were asked for at `asked` or later are promised to last until `at`,
    /// however long they are.
    pub(super) fn lasting_promised(&self, asked: Moment, at: Moment) -> bool {
        let ends = |spell: &Spell<'_>| !spell.promised.windows;
        let met = |spell: &Spell<'_>| asked <= spell.ended() && spell.began <= at;
        !self.spells.iter().any(|spell| ends(spell) && met(spell))
    }

    fn is_met(&self, asked: Moment, at: Moment, hurts: impl Fn(&Promised) -> bool) -> bool {
        self.spells.iter().any(|spell| {
            hurts(&spell.promised)
                && asked <= spell.ended()
                && spell.began <= at
                && at <= spell.ended() + self.lease
        })
    }

    /// Whether fencing tokens are promised to rise at `at`. After the beginning of a fault without
    /// that promise, they are not, because a counter that fell back may take any time to catch up.
    pub(super) fn fencing_promised(&self, at: Moment) -> bool {
        !self.spells.iter().any(|spell| !spell.promised.fencing && spell.began <= at)
    }

    /// Whether places in the line may end early or vanish during a fault of this kind.
    pub(super) fn hurts_places(kind: &str) -> bool {
        // A full server refuses to store places. A server whose clock jumps ends them.
        promised(kind).is_some_and(|promised| !promised.leases)
            || kind == "out-of-memory"
            || kind == "clock-step-back"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn weather() -> Weather<'static> {
        let mut bounds = Bounds::of_ttl(Duration::from_secs(10));
        bounds.reconnect = Duration::ZERO;
        let mut weather = Weather::new(&bounds);
        weather.began(at(100), 1, "restart-empty");
        weather.ended(at(110), 1);
        weather.began(at(200), 2, "delay");
        weather.ended(at(205), 2);
        weather.disturb(at(210), at(220));
        weather.settle();
        weather
    }

    #[test]
    fn calm_begins_when_the_aftermath_is_over() {
        let weather = weather();
        // The aftermath is 10.102 s for a lease and 3.032 s for a place.
        let calm = |from, to| weather.is_calm(at(from), at(to));
        assert!(calm(0, 99) && calm(124, 199) && calm(234, 999));
        assert!(!calm(0, 100) && !calm(123, 150) && !calm(207, 208) && !calm(0, 999));
        let parts = weather.calm(at(50), at(1_000));
        let whole: Vec<_> = parts.iter().map(|(a, b)| (a.as_nanos(), b.as_nanos())).collect();
        let nanos = 1_000_000;
        let expected = [(50_000, 100_000), (123_134, 200_000), (233_134, 1_000_000)];
        assert_eq!(whole, expected.map(|(from, to)| (from * nanos, to * nanos)));
        assert_eq!(weather.calm(at(115), at(120)), []);
    }

    #[test]
    fn a_fault_that_ends_leases_excuses_only_those_that_it_met() {
        let weather = weather();
        // Columns: when the lease was asked for, the moment, whether it is promised.
        for (asked, met, promised) in [
            (99, 99, true),
            (99, 100, false),
            (99, 120, false),
            (99, 121, true),
            (110, 115, false),
            (111, 115, true),
            (199, 203, true),
        ] {
            assert_eq!(weather.windows_promised(at(asked), at(met)), promised, "{asked} {met}");
        }
    }

    #[test]
    fn a_fault_that_ends_leases_excuses_those_that_were_to_last() {
        let weather = weather();
        // Columns: when the lease was asked for, the moment, whether it is promised.
        for (asked, met, promised) in
            [(0, 99, true), (0, 100, false), (110, 500, false), (111, 500, true)]
        {
            assert_eq!(weather.lasting_promised(at(asked), at(met)), promised, "{asked} {met}");
        }
    }

    #[test]
    fn a_fault_that_lasts_on_excuses_everything_after_it() {
        let mut weather = weather();
        weather.began(at(300), 3, "flushall");
        weather.settle();
        assert!(!weather.windows_promised(at(5_000), at(9_000)));
        assert!(!weather.is_calm(at(9_000), at(9_001)));
        assert!(weather.fencing_promised(at(9_000)));
    }
}
