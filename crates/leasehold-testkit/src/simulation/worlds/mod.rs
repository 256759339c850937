//! The part of each [kind](super::Kind) of world: how it changes a plan, and what its clients do.

mod bare;
mod bounded;
mod crowd;
mod detached;
mod elected;
mod evicting;
mod foreign;
mod fsync;
mod keeping;
mod latched;
mod limited;
mod local;
mod long;
mod meeting;
mod namespaced;
mod once;
mod operated;
mod refusing;
mod several;
mod sharing;

pub(super) use self::bounded::{goes_over, max_hold};
pub(super) use self::crowd::hoard;
pub(super) use self::detached::{Detached, hand_on};
pub(super) use self::elected::{campaign, observe};
pub(super) use self::foreign::{DELETE_OWN, start as start_foreign};
pub(super) use self::keeping::{Kept, leave_early, leave_guard, min_hold};
pub(super) use self::latched::use_latches;
pub(super) use self::limited::start_work;
pub(super) use self::long::{COUNTER_KEPT_FOR, long_span};
pub(super) use self::meeting::meet;
pub(super) use self::once::run_once;
pub(super) use self::operated::operate;
pub(super) use self::several::take_several;
pub(super) use self::sharing::{AnyLock, downgrade, learn, resize, share};
use super::kind::Draw;
use super::plan::Plan;

/// Draws the kinds that change an existing plan. The kinds that decide on its faults come before.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    local::draw_faults(draw, plan);
    fsync::draw(draw, plan);
    crowd::draw(draw, plan);
    detached::draw(draw, plan);
    evicting::draw(draw, plan);
    namespaced::draw(draw, plan);
    bare::draw(draw, plan);
    foreign::draw(draw, plan);
    sharing::draw(draw, plan);
    limited::draw(draw, plan);
    latched::draw(draw, plan);
    meeting::draw(draw, plan);
    sharing::draw_with_counts(plan);
    keeping::draw(draw, plan);
    several::draw(draw, plan);
    once::draw(draw, plan);
    operated::draw(draw, plan);
    elected::draw(draw, plan);
    bounded::draw(draw, plan);
    refusing::draw(draw, plan);
}

/// Draws where the locks are kept: on servers or on one machine.
pub(super) fn draw_place(draw: Draw<'_>, plan: &mut Plan) {
    local::draw_place(draw, plan);
}

/// Draws the kind that changes the ttls, because most of a plan depends on them.
pub(super) fn draw_ttls(draw: Draw<'_>, plan: &mut Plan) -> bool {
    long::draw(draw, plan)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use strum::VariantArray as _;

    use super::*;
    use crate::simulation::kind::Kind;

    const TIME: Duration = Duration::from_secs(30);

    #[test]
    fn every_kind_is_drawn_now_and_then() {
        let plans: Vec<_> =
            (0..2_000).map(|seed| Plan::among(seed, TIME, Kind::VARIANTS)).collect();
        for &kind in Kind::VARIANTS {
            let drawn = plans.iter().filter(|plan| plan.is(kind)).count();
            assert!((20..500).contains(&drawn), "{drawn} of 2 000 worlds are {kind}");
        }
    }

    #[test]
    fn a_kind_that_is_asked_for_is_there_in_every_seed() {
        for &kind in Kind::VARIANTS {
            let asked = |seed| Plan::asked_for(seed, TIME, &[kind]);
            let missing = (0..50).filter(|seed| !asked(*seed).is(kind)).count();
            // Some kinds exclude one another, and a kind that the seed has stays.
            assert!(missing <= 35, "{missing} of 50 seeds have no {kind}");
        }
    }

    #[test]
    fn a_world_among_some_kinds_is_of_no_other() {
        const SOME: [Kind; 4] = [Kind::Quorum, Kind::Coexist, Kind::Strict, Kind::Copies];
        for seed in 0..200 {
            let plan = Plan::among(seed, TIME, &SOME);
            let others = Kind::VARIANTS.iter().filter(|kind| !SOME.contains(kind));
            assert!(others.into_iter().all(|kind| !plan.is(*kind)), "seed {seed}");
        }
    }
}
