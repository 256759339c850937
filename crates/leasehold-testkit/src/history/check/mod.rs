//! The checks of the invariants.

mod barriers;
mod calls_return;
mod elections;
mod fence_reserved;
mod fencing_rises;
mod free_permits;
mod given_back;
mod given_back_at;
mod hold_ends;
mod latches;
mod leftovers;
mod line_opens;
mod line_order;
mod no_lost_wake_up;
mod no_overlap;
mod outcome_explained;
mod passes_bounded;
mod release_told;
mod said;
mod served;
mod sharing;
mod spent_token;
mod standing;
mod starts;
mod taken_is_true;
mod told_before_deadline;
mod wanted_answered;
#[cfg(test)]
mod whole;
mod window_inside_lease;

pub(super) use self::fencing_rises::hand_overs;
pub(super) use self::no_lost_wake_up::{Gap, gaps};

use super::invariant::Violation;
use super::story::Story;

/// A check of one history.
type Check = fn(&Story<'_>) -> Vec<Violation>;

/// The checks that apply to a history.
pub(super) fn of(story: &Story<'_>) -> impl Iterator<Item = Check> + use<> {
    let (checks, of_gaps): (&[Check], &[Check]) = match story {
        Story { is_shared: true, .. } => (&SHARED, &[]),
        Story { takes_several: true, .. } => (&ALL, &[]),
        _ => (&ALL, &OF_GAPS),
    };
    checks.iter().chain(of_gaps).copied()
}

/// The checks of a history in which holders share keys.
const SHARED: [Check; 26] = [
    sharing::windows_fit,
    sharing::shares_fit,
    sharing::nobody_passes,
    sharing::the_head_is_served,
    sharing::others_stay,
    sharing::no_gap,
    free_permits::check,
    hold_ends::check,
    starts::check,
    latches::counts,
    latches::opens,
    barriers::holds,
    barriers::opens,
    elections::seen_terms_rise,
    elections::leaders_are_followed,
    window_inside_lease::check,
    fencing_rises::check,
    given_back::check,
    told_before_deadline::check,
    calls_return::check,
    leftovers::nothing_immortal,
    spent_token::check,
    taken_is_true::check,
    outcome_explained::check,
    release_told::check,
    wanted_answered::check,
];

/// The checks of all other histories.
const ALL: [Check; 21] = [
    no_overlap::check,
    window_inside_lease::check,
    fencing_rises::check,
    fence_reserved::check,
    hold_ends::check,
    leftovers::no_orphan,
    given_back::check,
    given_back_at::check,
    leftovers::nothing_immortal,
    line_opens::check,
    line_order::check,
    told_before_deadline::check,
    calls_return::check,
    served::release_removes_nothing,
    served::renewal_never_resurrects,
    spent_token::check,
    taken_is_true::check,
    outcome_explained::check,
    release_told::check,
    elections::seen_terms_rise,
    elections::leaders_are_followed,
];

/// The checks that take a lock without a window for a free lock. If locks are taken together, a
/// lock that waits for the others has no window yet.
const OF_GAPS: [Check; 3] = [no_lost_wake_up::check, passes_bounded::check, wanted_answered::check];
