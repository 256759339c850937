//! The list of all cases. The table of cases and the tests are made from it.

use crate::Case;

/// Passes the list of all cases to the macro `$then`, after the tokens that follow its name.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_case {
    ([$($then:tt)+] $(, $with:tt)*) => {
        $($then)+! {
            ($($with)*)
            granting {
                a_free_key_is_granted,
                a_key_held_by_another_is_taken,
                a_token_that_was_told_taken_may_ask_again,
                taken_tells_when_the_lease_of_the_holder_ends,
                a_repeated_ask_is_granted_again_with_the_same_fencing,
                a_repeated_ask_never_shortens_a_lease,
                a_repeated_ask_lengthens_a_lease,
                keys_are_independent,
                exactly_one_of_many_asks_at_once_is_granted,
                an_owner_whose_lease_has_ended_is_granted_anew,
            }
            ownership {
                a_release_by_the_owner_frees_the_key,
                a_release_by_another_owner_ends_nothing,
                a_release_by_a_former_holder_leaves_the_new_holder_untouched,
                a_second_release_finds_nothing,
                a_key_that_nobody_ever_held_is_not_held,
                a_renewal_by_another_owner_is_lost_and_changes_nothing,
                a_lease_is_renewed_and_released_through_any_handle,
                tokens_are_compared_byte_for_byte,
            }
            plain {
                a_plain_lock_has_one_owner,
                a_repeated_plain_ask_lengthens_a_lease_and_never_shortens_it,
                a_plain_lease_is_renewed_as_any,
                a_plain_lock_and_a_usual_one_exclude_each_other,
                a_plain_lease_never_has_fencing_tokens,
            }
            expiry {
                a_lease_lives_for_all_of_its_ttl,
                an_expired_lease_is_free,
                an_expired_lease_is_neither_renewed_nor_released,
                the_shortest_and_the_longest_ttl_are_kept,
                a_step_of_the_time_of_day_ends_no_lease_and_keeps_none,
                a_lease_ends_while_the_machine_sleeps,
            }
            renewal {
                a_renewal_restarts_the_ttl,
                a_renewal_never_shortens_a_lease,
                a_renewal_never_brings_an_ended_lease_back,
                a_renewal_keeps_the_fencing_tokens,
                a_renewal_reserves_further_tokens,
                a_renewal_tells_whether_somebody_waits,
            }
            fencing {
                tokens_rise_from_release_to_grant,
                tokens_rise_over_an_expiry,
                tokens_rise_over_an_eviction,
                a_block_is_consecutive_and_never_given_again,
                a_grant_without_fencing_leaves_the_counter_alone,
                a_renewal_raises_a_counter_that_is_behind,
                a_renewal_never_lowers_a_counter,
                tokens_rise_after_a_long_time_without_use,
            }
            line {
                a_client_that_joins_is_told_how_many_are_ahead,
                a_client_that_joins_is_granted_a_free_key_without_a_place,
                a_repeated_join_keeps_its_place,
                an_ask_that_only_stands_by_takes_no_place,
                a_client_without_a_place_never_passes_a_living_place,
                the_head_of_the_line_is_granted_a_free_key,
                the_head_of_the_line_is_granted_without_joining_again,
                an_asker_behind_the_head_takes_its_place_before_the_hand_over,
                a_dead_place_is_passed,
                a_place_lives_for_all_of_its_ttl,
                a_place_is_refreshed_by_asking_and_never_shortened,
                a_release_leaves_the_line,
                places_belong_to_owners_and_not_to_clients,
                each_key_has_a_line_of_its_own,
                a_step_drops_few_dead_places_and_asks_to_be_asked_again,
                a_release_before_many_dead_places_frees_the_key,
                a_full_line_refuses_the_next_and_loses_nobody,
            }
            watching {
                a_release_before_a_watching_place_frees_the_key_and_wakes_it,
                the_next_watching_place_is_woken_when_a_woken_head_leaves,
                a_watching_place_behind_a_dead_head_is_woken_when_the_place_before_it_leaves,
                a_watching_place_that_leaves_wakes_nobody_in_vain,
                an_eviction_wakes_a_client_that_watches,
                a_watching_place_holds_nobody_up,
                a_newcomer_gives_way_once_to_a_client_that_watches,
                a_newcomer_gives_way_only_to_a_client_that_is_about_to_ask,
                a_watching_place_is_granted_by_asking_and_leaves_the_line,
                a_lease_is_not_kept_while_somebody_watches,
            }
            handover {
                a_released_key_is_the_heads_before_anybody_can_ask,
                waiters_are_served_in_the_order_in_which_they_came,
                a_handed_lease_lives_for_its_handed_ttl,
                a_renewal_gives_a_handed_over_lease_its_full_ttl,
                tokens_rise_over_a_hand_over,
                after_a_crash_any_ask_hands_the_key_to_the_head,
                a_dead_new_owner_costs_its_handed_ttl_and_no_more,
                a_lease_is_handed_over_rather_than_kept,
                a_lease_is_kept_if_nobody_waits,
                a_token_whose_lease_was_kept_is_spent,
                a_lease_is_shown_as_idle_while_its_renewals_say_so,
                keeping_never_shortens_a_lease,
                a_kept_lease_is_handed_over_when_it_is_given_up,
                a_hand_over_repeats_the_number_of_the_last_ask,
                the_key_is_never_held_twice_and_nobody_is_forgotten,
            }
            coexisting {
                a_waking_release_frees_the_key_instead_of_handing_it_over,
                a_woken_waiter_keeps_its_place_and_its_turn,
                a_waking_release_leaves_the_line_like_any_release,
                a_waking_release_without_a_line_is_like_any_release,
                a_waking_release_by_another_owner_ends_nothing,
                a_waking_release_skips_dead_waiters,
                the_next_waiter_is_told_when_a_woken_head_leaves,
                a_waiter_that_leaves_a_free_key_tells_nobody_in_vain,
            }
            sharing {
                readers_share_a_key_and_keep_everybody_else_out,
                a_writer_keeps_readers_out,
                a_repeated_shared_ask_counts_once,
                each_reader_has_a_lease_of_its_own,
                a_reader_that_leaves_shortens_no_other,
                readers_are_shown_and_evicted_one_by_one,
                a_reader_with_a_long_ttl_is_not_forgotten,
            }
            sharing_line {
                a_reader_does_not_pass_a_waiting_writer,
                a_run_of_readers_is_granted_together,
                the_last_reader_hands_over_to_the_writer,
                a_writer_is_handed_the_key_between_generations_of_readers,
                the_crash_of_a_reader_frees_only_what_it_had,
                an_ask_that_is_granted_lets_those_behind_it_in,
                readers_behind_a_writer_that_goes_away_are_let_in,
                readers_behind_a_writer_that_died_are_let_in_by_any_ask,
                a_writer_that_shares_from_now_on_leaves_no_gap,
                a_downgrade_lets_in_those_that_wait_to_share,
                a_downgrade_that_comes_too_late_lets_in_those_that_wait,
                a_writer_is_told_that_a_reader_waits,
                tokens_of_writers_rise_over_readers,
                more_readers_than_one_step_grants_all_get_in,
            }
            permits {
                no_more_permits_are_taken_than_there_are,
                permits_have_weights,
                permits_of_the_dead_come_back,
                each_owner_renews_its_permits_alone,
                a_number_of_permits_that_others_do_not_use_is_refused,
                a_key_is_a_lock_or_a_semaphore_and_not_both,
                readers_of_a_name_that_was_a_semaphore_are_shown_as_readers,
                permits_that_cannot_exist_are_refused,
                permits_with_a_long_ttl_are_not_forgotten,
            }
            permits_line {
                no_waiter_passes_a_large_request,
                a_release_hands_over_to_as_many_as_fit,
                a_hand_over_stops_at_the_first_request_that_does_not_fit,
                a_repeated_ask_takes_no_more_permits,
                a_waiter_that_died_does_not_decide_what_a_free_key_is,
                a_free_lock_whose_waiter_died_may_be_used_as_a_semaphore,
                a_waiter_that_leaves_lets_smaller_requests_in,
                a_semaphore_is_resized_while_it_is_in_use,
                a_waiter_that_wants_more_than_there_are_now_is_granted_nothing,
                tokens_of_permits_rise,
            }
            hints {
                a_hand_over_is_told_to_the_new_owner_alone,
                a_hand_over_by_an_ask_is_told_too,
                a_holder_is_told_that_another_waits,
                a_holder_is_not_told_of_a_client_that_only_tries,
                an_eviction_is_told_to_the_new_owner,
                the_latest_sink_of_an_inbox_replaces_the_others,
                a_waiter_that_takes_no_hints_is_still_served,
            }
            inspecting {
                a_key_that_nobody_used_shows_nothing,
                a_holder_is_shown_with_all_that_is_known_of_it,
                a_holder_is_known_until_its_lease_ends,
                without_a_note_nothing_but_the_lock_and_its_counter_is_kept,
                a_reason_ends_with_its_grant,
                a_reason_is_handed_over_with_the_key,
                a_lease_that_ended_is_not_shown,
                waiters_are_shown_in_order_and_all_are_counted,
                a_refresh_does_not_change_since_when_somebody_waits,
                looking_changes_nothing,
            }
            browsing {
                a_pattern_finds_what_it_matches_in_order,
                a_pattern_takes_the_signs_of_engines_literally,
                a_long_list_comes_in_pages,
                a_full_page_says_whether_another_follows,
                only_keys_in_use_are_listed,
                an_eviction_ends_the_lease_that_was_seen,
                an_eviction_spares_a_holder_that_was_not_seen,
                an_eviction_hands_over_to_the_head_of_the_line,
                the_tools_are_there_through_every_handle,
            }
            revoking {
                each_renewal_tells_a_holder_that_it_was_asked_to_let_go,
                a_request_to_let_go_outlasts_every_kind_of_renewal,
                the_next_holder_never_sees_a_request_that_was_not_for_it,
                a_request_to_let_go_is_not_handed_over,
                the_holder_of_a_plain_lock_is_asked_too,
                a_foreign_holder_stays_as_it_was,
                holders_that_share_a_key_are_asked_one_by_one,
                a_request_to_let_go_is_not_for_the_next_lease_of_the_same_owner_token,
                a_request_to_let_go_is_not_for_a_lease_that_its_owner_token_is_handed,
                a_request_to_let_go_is_not_for_a_lease_that_its_owner_token_keeps,
            }
            keys {
                no_two_names_are_one_lock,
                every_name_is_listed_as_it_is,
                every_reason_is_shown_as_it_was_given,
                every_foreign_token_is_an_owner,
            }
            order {
                an_ask_whose_answer_was_dropped_has_taken_the_key,
                a_release_whose_answer_was_dropped_has_freed_the_key,
                a_release_comes_after_the_ask_that_it_gives_back,
                a_renewal_whose_answer_was_dropped_has_restarted_the_ttl,
                requests_are_answered_in_the_order_in_which_they_were_made,
                a_join_whose_answer_was_dropped_is_left_by_a_release,
                a_store_outlives_the_handle_that_asked,
            }
            capabilities {
                a_claim_that_is_not_promised_is_refused,
                a_line_that_is_not_promised_is_refused,
                a_release_that_frees_is_refused_if_it_is_not_promised,
                fencing_tokens_that_are_not_promised_are_not_given,
                a_request_to_let_go_that_is_not_promised_is_refused,
                every_handle_promises_the_same,
                a_store_has_a_label,
            }
        }
    };
}

macro_rules! table {
    (() $($promise:ident { $($case:ident,)* })*) => {
        vec![$($(Case {
            name: stringify!($case),
            promise: crate::promises::$promise::PROMISE,
            contract: crate::promises::$promise::CONTRACT,
            needs: crate::promises::$promise::needs,
            run: |world| Box::pin(crate::promises::$promise::$case(world)),
        },)*)*]
    };
}

/// All cases, in the order of the promises.
#[must_use]
pub fn cases() -> Vec<Case> {
    crate::for_each_case!([table])
}

/// Makes a module of that name with a `#[test]` for each case. The tests use the store that the
/// [`Setup`](crate::Setup) makes, on virtual time.
#[macro_export]
macro_rules! conformance_tests {
    ($store:ident, $setup:tt) => {
        mod $store {
            use super::*;
            $crate::for_each_case!([$crate::conformance_test_fns], run_named, $setup);
        }
    };
}

/// Like [`conformance_tests!`], on real time: the store is that of a
/// [`RealSetup`](crate::RealSetup).
///
/// ```
/// use leasehold::host::SystemHost;
/// use leasehold::store::{AnyStore, MemoryStore};
/// use leasehold_conformance::Opener;
///
/// fn setup() -> Opener {
///     let store = MemoryStore::new(SystemHost::shared());
///     Box::new(move || Box::pin(std::future::ready(AnyStore::new(store.clone()))))
/// }
///
/// leasehold_conformance::conformance_tests_in_real_time!(my_store, setup);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! conformance_tests_in_real_time {
    ($store:ident, $setup:tt) => {
        mod $store {
            use super::*;
            $crate::for_each_case!([$crate::conformance_test_fns], run_named_in_real_time, $setup);
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_test_fns {
    (($run:tt $setup:tt) $($promise:ident { $($case:ident,)* })*) => {
        $($(
            #[test]
            fn $case() {
                $crate::$run(stringify!($case), $setup);
            }
        )*)*
    };
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_cases_have_one_name() {
        let names: HashSet<_> = cases().iter().map(|case| case.name).collect();
        assert_eq!(names.len(), cases().len());
    }
}
