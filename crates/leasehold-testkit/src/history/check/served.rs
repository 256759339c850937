//! Requests with another token than the owner's change nothing for the owner.

use crate::history::event::Request;
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{Served, Story};

/// A release with another token leaves the owner in place: if `before` is not the sender's token,
/// `after` equals `before`.
pub(super) fn release_removes_nothing(story: &Story<'_>) -> Vec<Violation> {
    each(story, Invariant::ReleaseRemovesNothing, |served| {
        matches!(served.request, Request::Release | Request::Keep)
            && served.before.is_some_and(|owner| owner != served.token)
            && served.after != served.before
    })
}

/// A renewal never changes the owner. Neither its sender nor anybody else becomes the owner.
pub(super) fn renewal_never_resurrects(story: &Story<'_>) -> Vec<Violation> {
    each(story, Invariant::RenewalNeverResurrects, |served| {
        served.request == Request::Renew
            && served.before != Some(served.token)
            && served.after != served.before
    })
}

fn each(
    story: &Story<'_>,
    invariant: Invariant,
    is_wrong: impl Fn(&Served<'_>) -> bool,
) -> Vec<Violation> {
    let all = story
        .keys
        .iter()
        .flat_map(|(key, of_key)| of_key.served.iter().map(move |served| (key, served)));
    let wrong = all.filter(|(_, served)| is_wrong(served)).map(|(key, served)| {
        let Served { request, token, before, after, .. } = served;
        let text = format!("{request:?} of `{key}` by {token}: from {before:?} to {after:?}");
        Violation { invariant, at: served.at, text, promised: true }
    });
    wrong.collect()
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::{ReleaseRemovesNothing, RenewalNeverResurrects};
    use crate::history::build::tale;
    use crate::history::event::Request::{Keep, Release, Renew};

    #[test]
    fn a_release_that_ends_the_lease_of_another_is_found() {
        tale().serves(Release, "A", "B", "").breaks(ReleaseRemovesNothing);
        tale().serves(Release, "A", "B", "A").breaks(ReleaseRemovesNothing);
        tale().serves(Keep, "A", "B", "A").breaks(ReleaseRemovesNothing);
    }

    #[test]
    fn a_release_by_the_owner_or_without_effect_passes() {
        let tale = tale().serves(Release, "A", "A", "").serves(Release, "A", "", "");
        let tale = tale.serves(Release, "A", "B", "B").serves(Release, "B", "B", "C");
        tale.serves(Keep, "C", "C", "C").serves(Keep, "B", "C", "C").passes();
    }

    #[test]
    fn a_renewal_that_makes_somebody_the_owner_is_found() {
        tale().serves(Renew, "A", "", "A").breaks(RenewalNeverResurrects);
        tale().serves(Renew, "A", "B", "A").breaks(RenewalNeverResurrects);
        tale().serves(Renew, "A", "B", "").breaks(RenewalNeverResurrects);
    }

    #[test]
    fn a_renewal_by_the_owner_or_without_effect_passes() {
        let tale = tale().serves(Renew, "A", "A", "A").serves(Renew, "A", "", "");
        tale.serves(Renew, "A", "B", "B").passes();
    }
}
