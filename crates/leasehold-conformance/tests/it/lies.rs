//! The lies, and the case that must catch each of them.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold::host::Host;
use leasehold::store::AnyStore;
use leasehold_conformance::{Case, Failure, Opener, Outcome, cases, run};

use crate::liar::Liar;
use crate::modest::{Lacks, Modest};

/// How a store lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// It does not.
    None,
    GrantsAHeldKey,
    ForgetsTheOwner,
    ShortensOnAsk,
    ReleasesForAnybody,
    CutsTokens,
    EndsEarly,
    EndsLate,
    ShortensOnRenewal,
    BringsLeasesBack,
    HidesWaiters,
    RepeatsTokens,
    LowersTokens,
    OverlapsBlocks,
    ForgetsIdleCounters,
    PromisesTokensInVain,
    LetsNewcomersPass,
    KeepsDeadPlaces,
    KeepsThePlaceOfALeaver,
    HandsOverToTheSecond,
    WakesInsteadOfHandingOver,
    CountsOwnersForPermits,
    PromisesPermitsInVain,
    LosesHints,
    TellsEverybody,
    ShowsDeadHolders,
    ListsWhatEnded,
    EvictsAnybody,
    SwallowsRevocations,
    RemembersRevocations,
    RevokesEverybody,
    FoldsNames,
    SendsWhenPolled,
    HidesSharing,
    HidesPermits,
    HidesDetaching,
    HidesFreeing,
    HidesTheLine,
    HidesTokens,
    HidesRevoking,
    HidesTools,
    PromisesByHandle,
}

/// Each lie, the case that must catch it, and a text in the failure.
const TABLE: [(Lie, &str, &str); 41] = [
    (Lie::GrantsAHeldKey, "a_key_held_by_another_is_taken", "not taken: Ok(Granted"),
    (
        Lie::ForgetsTheOwner,
        "a_repeated_ask_is_granted_again_with_the_same_fencing",
        "not granted: Ok(Refused",
    ),
    (Lie::ShortensOnAsk, "a_repeated_ask_never_shortens_a_lease", "not taken"),
    (Lie::ReleasesForAnybody, "a_release_by_another_owner_ends_nothing", "Freed"),
    (Lie::CutsTokens, "tokens_are_compared_byte_for_byte", "not taken"),
    (Lie::EndsEarly, "a_lease_lives_for_all_of_its_ttl", "not taken"),
    (Lie::EndsLate, "an_expired_lease_is_free", "not granted"),
    (Lie::ShortensOnRenewal, "a_renewal_never_shortens_a_lease", "not taken"),
    (Lie::BringsLeasesBack, "a_renewal_never_brings_an_ended_lease_back", "not lost"),
    (Lie::HidesWaiters, "a_renewal_tells_whether_somebody_waits", "wanted"),
    (Lie::RepeatsTokens, "tokens_rise_from_release_to_grant", "7 came after 7"),
    (Lie::LowersTokens, "tokens_rise_from_release_to_grant", "after"),
    (
        Lie::OverlapsBlocks,
        "a_block_is_consecutive_and_never_given_again",
        "the highest given so far",
    ),
    (Lie::ForgetsIdleCounters, "tokens_rise_after_a_long_time_without_use", "after"),
    (Lie::PromisesTokensInVain, "tokens_rise_over_an_expiry", "fencing tokens"),
    (Lie::LetsNewcomersPass, "a_client_without_a_place_never_passes_a_living_place", "not taken"),
    (Lie::KeepsDeadPlaces, "a_dead_place_is_passed", ""),
    (Lie::KeepsThePlaceOfALeaver, "a_release_leaves_the_line", ""),
    (
        Lie::HandsOverToTheSecond,
        "waiters_are_served_in_the_order_in_which_they_came",
        "not granted",
    ),
    (
        Lie::WakesInsteadOfHandingOver,
        "a_released_key_is_the_heads_before_anybody_can_ask",
        "HandedOver",
    ),
    (Lie::CountsOwnersForPermits, "permits_have_weights", "not taken"),
    (Lie::PromisesPermitsInVain, "a_claim_that_is_not_promised_is_refused", "not granted"),
    (Lie::LosesHints, "a_hand_over_is_told_to_the_new_owner_alone", "did not come"),
    (Lie::TellsEverybody, "a_hand_over_is_told_to_the_new_owner_alone", "Granted"),
    (Lie::ShowsDeadHolders, "a_lease_that_ended_is_not_shown", "Holder"),
    (Lie::ListsWhatEnded, "only_keys_in_use_are_listed", "expired"),
    (Lie::EvictsAnybody, "an_eviction_spares_a_holder_that_was_not_seen", "Evicted"),
    (Lie::SwallowsRevocations, "each_renewal_tells_a_holder_that_it_was_asked_to_let_go", "asked"),
    (
        Lie::RemembersRevocations,
        "a_request_to_let_go_is_not_for_the_next_lease_of_the_same_owner_token",
        "the earlier lease was released",
    ),
    (Lie::RevokesEverybody, "holders_that_share_a_key_are_asked_one_by_one", "Some(Revocation"),
    (Lie::FoldsNames, "no_two_names_are_one_lock", "not granted"),
    (Lie::SendsWhenPolled, "an_ask_whose_answer_was_dropped_has_taken_the_key", "not taken"),
    (Lie::HidesSharing, "a_claim_that_is_not_promised_is_refused", "not refused"),
    (Lie::HidesPermits, "a_claim_that_is_not_promised_is_refused", "not refused"),
    (Lie::HidesDetaching, "a_lease_is_renewed_and_released_through_any_handle", "not refused"),
    (Lie::HidesFreeing, "a_release_that_frees_is_refused_if_it_is_not_promised", "not refused"),
    (Lie::HidesTheLine, "a_line_that_is_not_promised_is_refused", "not refused"),
    (Lie::HidesTokens, "fencing_tokens_that_are_not_promised_are_not_given", "FencingBlock"),
    (
        Lie::HidesRevoking,
        "a_request_to_let_go_that_is_not_promised_is_refused",
        "not refused: Asked",
    ),
    (Lie::HidesTools, "every_handle_promises_the_same", "tools"),
    (Lie::PromisesByHandle, "every_handle_promises_the_same", "durable"),
];

#[test]
fn every_lie_is_caught_by_the_case_about_it_and_the_truth_is_not() {
    let mut findings = Vec::new();
    for (lie, name, seen) in TABLE {
        let case = case(name);
        match judge(lie, &case) {
            Ok(outcome) => findings.push(format!("{lie:?} was believed: {outcome:?}")),
            Err(failure) if !failure.seen().contains(seen) => {
                findings.push(format!("{lie:?} was caught, but not for {seen:?}: {failure}"));
            }
            Err(_) => {}
        }
        match judge(Lie::None, &case) {
            Ok(Outcome::Holds) => {}
            other => findings.push(format!("{name}, on a store that does not lie: {other:?}")),
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

/// Nobody else would test what such a store does promise.
#[test]
fn a_store_that_promises_less_is_tested_for_that_and_for_nothing_else() {
    let mut findings = Vec::new();
    for lacks in [Lacks::Sharing, Lacks::Permits, Lacks::TheLine, Lacks::Hints] {
        for case in cases() {
            if let Err(failure) = judge_modest(Lie::None, lacks, &case) {
                findings.push(format!("{lacks:?}: {failure}"));
            }
        }
    }
    let case = case("holders_that_share_a_key_are_asked_one_by_one");
    for lacks in [Lacks::Sharing, Lacks::Permits] {
        if let Ok(outcome) = judge_modest(Lie::RevokesEverybody, lacks, &case) {
            findings.push(format!("{lacks:?}: the lie was believed: {outcome:?}"));
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn a_failure_says_what_was_demanded_what_was_seen_and_where_the_contract_says_it() {
    let failure = judge(Lie::GrantsAHeldKey, &case("a_key_held_by_another_is_taken"));
    let text = failure.expect_err("a lie").to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "the store breaks a promise: one owner at a time, and the same owner gets the same \
             answer",
            "  demanded: a key held by another is taken",
            "  seen:     not taken: Ok(Granted { fencing: None })",
            "  contract: `Store`, section \"Same owner, same answer\", and `Store::acquire`, in \
             the documentation of leasehold::store",
            "  run:      on virtual time, seed 0",
        ]
    );
}

fn judge(lie: Lie, case: &Case) -> Result<Outcome, Failure> {
    run(case, 0, |host| opener(lie, host.clone()))
}

fn judge_modest(lie: Lie, lacks: Lacks, case: &Case) -> Result<Outcome, Failure> {
    run(case, 0, |host| {
        let open = opener(lie, host.clone());
        Box::new(move || {
            let opening = open();
            Box::pin(async move { AnyStore::new(Modest { store: opening.await, lacks }) })
        })
    })
}

pub(crate) fn opener(lie: Lie, host: Arc<dyn Host>) -> Opener {
    let liar = Liar::new(lie, host);
    let opened = AtomicU32::new(0);
    Box::new(move || {
        let handle = liar.handle(opened.fetch_add(1, Ordering::Relaxed));
        Box::pin(ready(AnyStore::new(handle)))
    })
}

pub(crate) fn case(name: &str) -> Case {
    let case = cases().into_iter().find(|case| case.name == name);
    case.unwrap_or_else(|| panic!("there is no case named {name}"))
}
