//! The decisions of one acquisition, by tables.

use super::*;

fn at(ms: u64) -> Moment {
    Moment::from_nanos(ms * 1_000_000)
}

fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).expect("within bounds")
}

#[test]
fn a_grant_is_acted_on_only_with_enough_validity_left() {
    // Columns: ttl, round trip, next ask. Valid: ttl − 1 % − 2 ms. Needed: min(ttl/2, 1 s).
    let table = [
        (10_000, 0, NextAsk::Hold),
        (10_000, 8_898, NextAsk::Hold),
        (10_000, 8_899, NextAsk::Now),
        (10_000, 60_000, NextAsk::Now),
        (100, 47, NextAsk::Hold),
        (100, 48, NextAsk::Now),
    ];
    for (ttl_ms, round_trip, expected) in table {
        let mut acquisition = Acquisition::new(ttl(ttl_ms), true);
        acquisition.ask(at(0));
        assert_eq!(
            acquisition.on_granted(at(round_trip), at(0)),
            expected,
            "{ttl_ms} {round_trip}"
        );
    }
}

#[test]
fn a_try_asks_three_times_for_a_grant_in_time() {
    let mut acquisition = Acquisition::new(ttl(100), false);
    let answers = [(); 3].map(|()| acquisition.on_granted(at(99), at(0)));
    assert_eq!(answers, [NextAsk::Now, NextAsk::Now, NextAsk::GiveUp]);
}

/// Its grants keep the key from others, who may be faster.
#[test]
fn a_waiter_gives_up_after_many_late_grants_without_the_answer_taken() {
    let mut acquisition = Acquisition::new(ttl(100), true);
    let late = |acquisition: &mut Acquisition| acquisition.on_granted(at(99), at(0));
    for _ in 1..LATE_GRANTS_MAX_WAITING {
        assert_eq!(late(&mut acquisition), NextAsk::Now);
    }
    let mut taken_meanwhile = acquisition.clone();
    assert_eq!(late(&mut acquisition), NextAsk::GiveUp);
    let _waits = taken_meanwhile.on_taken(at(100), None, 0, || 0);
    assert_eq!(late(&mut taken_meanwhile), NextAsk::Now);
}

#[test]
fn votes_that_were_split_are_asked_for_again_after_longer_and_longer_pauses() {
    let round_trip = Duration::from_millis(1);
    let mut acquisition = Acquisition::new(ttl(10_000), true);
    for longest in [2, 4, 8, 16, 32, 64, 128, 250, 250] {
        let next = acquisition.clone().on_split(at(100), round_trip, || 0);
        assert_eq!(next, NextAsk::At(at(100)), "at once, if chance says so");
        let next = acquisition.on_split(at(100), round_trip, || u32::MAX);
        assert_eq!(next, NextAsk::At(at(100 + longest)));
    }
    assert!(acquisition.has_waited());
    acquisition.on_taken(at(100), None, 0, || 0);
    let next = acquisition.clone().on_split(at(100), round_trip, || u32::MAX);
    let why = "a waiter that gave way in between splits the votes too";
    assert_eq!(next, NextAsk::At(at(100) + SPLIT_PAUSE_MAX), "{why}");
    let slow = acquisition.on_split(at(0), Duration::from_secs(1), || u32::MAX);
    assert_eq!(slow, NextAsk::At(at(0) + SPLIT_PAUSE_MAX));

    let mut acquisition = Acquisition::new(ttl(10_000), false);
    for _ in 1..SPLITS_MAX {
        assert_eq!(acquisition.on_split(at(0), round_trip, || 0), NextAsk::At(at(0)));
    }
    assert_eq!(acquisition.on_split(at(0), round_trip, || 0), NextAsk::GiveUp);
}

#[test]
fn a_waiter_far_back_pauses_until_it_is_called_and_ignores_ending_leases() {
    let left = Some(Duration::from_millis(10));
    // Columns: whether it is called up, places ahead, next ask in ms.
    for (is_called_up, ahead, asks_at) in
        [(false, 400, 1_000), (true, 31, 631), (true, 32, 1_600), (true, 400, 20_000)]
    {
        let mut acquisition = Acquisition::new(ttl(10_000), true);
        if is_called_up {
            acquisition = acquisition.called_up();
        }
        let next = acquisition.on_taken(at(0), left, ahead, || 0);
        assert_eq!(next, NextAsk::At(at(asks_at)), "{is_called_up} {ahead}");
        let hidden = acquisition.on_taken(at(0), Some(Duration::ZERO), ahead, || 0);
        assert_eq!(hidden, NextAsk::Now, "nobody knows yet whose turn it is");
    }
}

/// It has no place, so nobody calls it.
#[test]
fn a_waiter_that_polls_asks_as_often_beside_a_long_line() {
    let next = |ahead| {
        let mut acquisition = Acquisition::new(ttl(10_000), true).called_up().polling();
        acquisition.on_taken(at(0), Some(Duration::from_secs(9)), ahead, || 0)
    };
    assert_eq!(next(400), next(0));
}

#[test]
fn a_hand_over_is_dated_from_the_ask_that_it_names() {
    let mut acquisition = Acquisition::new(ttl(10_000), true);
    for sent in [1_000, 2_000, 3_000, 4_000, 5_000, 6_000] {
        acquisition.ask(at(sent));
    }
    let handed_ttl = ttl(10_000).waiter_ttl();
    // Columns: now, number of the ask, start of the lease. A lease is valid for 3 s − 1 % − 2 ms.
    // It is refused if less than 1 s is left.
    let table = [
        (6_001, 6, Some(6_000)),
        (6_001, 5, Some(5_000)),
        (6_968, 5, Some(5_000)),
        (6_969, 5, None),
        (4_001, 3, Some(3_000)),
        (4_001, 2, None),
        (6_001, 7, None),
        (6_001, 0, None),
        (6_001, u32::MAX, None),
    ];
    for (now, ask_no, sent) in table {
        let counted = acquisition.on_handed_over(at(now), ask_no, handed_ttl);
        assert_eq!(counted, sent.map(at), "{now} {ask_no}");
    }
    assert_eq!(Acquisition::new(ttl(100), true).on_handed_over(at(0), 0, ttl(100)), None);
}

#[test]
fn a_waiter_asks_at_its_refresh_or_when_the_lease_ends() {
    // Columns: ttl, time left of the holder's lease, next ask.
    let table = [
        (10_000, Some(8_000), NextAsk::At(at(1_000))),
        (10_000, Some(400), NextAsk::At(at(401))),
        (10_000, Some(0), NextAsk::Now),
        (10_000, None, NextAsk::At(at(1_000))),
        (1_500, None, NextAsk::At(at(500))),
        (120, None, NextAsk::At(at(50))),
        (60, None, NextAsk::At(at(30))),
        (10, None, NextAsk::At(at(5))),
    ];
    for (ttl_ms, left, expected) in table {
        let left = left.map(Duration::from_millis);
        assert_eq!(
            Acquisition::new(ttl(ttl_ms), true).on_taken(at(0), left, 0, || 0),
            expected,
            "{ttl_ms} {left:?}"
        );
    }
    let mut tries = Acquisition::new(ttl(10_000), false);
    assert_eq!(tries.on_taken(at(0), None, 0, || 0), NextAsk::GiveUp);
}

/// Otherwise each end of a lease would cost as many requests as there are waiters.
#[test]
fn each_place_asks_20_ms_after_the_one_before_it_when_a_lease_ends() {
    let left = Some(Duration::from_millis(400));
    for (ahead, asks_at) in [(0, 401), (1, 421), (29, 981), (30, 1_000), (u32::MAX, 1_000)] {
        let next = Acquisition::new(ttl(10_000), true).on_taken(at(0), left, ahead, || 0);
        assert_eq!(next, NextAsk::At(at(asks_at)), "{ahead}");
    }
    let mut polls = Acquisition::new(ttl(10_000), true).polling();
    let soon = Some(Duration::from_millis(3));
    assert_eq!(polls.on_taken(at(0), soon, 400, || 0), NextAsk::At(at(4)), "it has no place");
}

#[test]
fn a_grant_that_one_more_request_relies_on_needs_half_of_the_validity() {
    // A lease of 40 ms is valid for 40 ms − 1 % − 2 ms.
    for (now, expected) in [(20, NextAsk::Hold), (27, NextAsk::Hold), (28, NextAsk::Now)] {
        let mut acquisition = Acquisition::new(ttl(40), true).accepting_half_validity();
        assert_eq!(acquisition.on_granted(at(now), at(0)), expected, "{now}");
    }
}

#[test]
fn a_waiter_refreshes_its_place_in_half_of_its_life_at_the_latest() {
    for ttl_ms in (10..500).chain([1_000, 3_000, 10_000, 86_400_000]) {
        let mut acquisition = Acquisition::new(ttl(ttl_ms), true);
        let next = acquisition.on_taken(at(0), Some(Duration::from_secs(5)), 0, || 0);
        let NextAsk::At(due) = next else { panic!("{ttl_ms}: {next:?}") };
        let place = ttl(ttl_ms).waiter_ttl().get();
        assert!(due.since(at(0)) <= place / 2, "{ttl_ms}: {due:?}");
    }
}

#[test]
fn a_waiter_without_a_place_asks_after_ever_longer_pauses_or_when_the_lease_ends() {
    let mut acquisition = Acquisition::new(ttl(10_000), true).polling();
    // Columns: time left of the holder's lease, random number, next ask.
    let table = [
        (None, 0, 5),
        (None, u32::MAX, 20),
        (Some(8_000), 0, 20),
        (Some(3), 0, 4),
        (None, 0, 80),
        (None, 0, 125),
        (None, 0, 125),
        (None, u32::MAX, 250),
        (None, u32::MAX, 250),
    ];
    for (left, random, expected) in table {
        let left = left.map(Duration::from_millis);
        let next = acquisition.on_taken(at(0), left, 0, || random);
        assert_eq!(next, NextAsk::At(at(expected)), "{left:?} {random}");
    }
    let mut tries = Acquisition::new(ttl(10_000), false).polling();
    assert_eq!(tries.on_taken(at(0), None, 0, || 0), NextAsk::GiveUp);
}

/// Each outage begins with short pauses, however long the one before it was.
#[test]
fn every_answer_makes_the_pauses_of_the_next_outage_short_again() {
    let answers: [fn(&mut Acquisition); 3] = [
        |it| _ = it.on_taken(at(0), None, 0, || 0),
        |it| _ = it.on_split(at(0), Duration::ZERO, || 0),
        // This grant came too late.
        |it| _ = it.on_granted(at(60_000), at(0)),
    ];
    for (number, answer) in answers.into_iter().enumerate() {
        let mut acquisition = Acquisition::new(ttl(10_000), true);
        answer(&mut acquisition);
        for round in 0..2 {
            for pause in [10, 20, 40] {
                let next = acquisition.on_failed(at(0), ErrorKind::Unavailable, u32::MAX);
                assert_eq!(next, NextAsk::At(at(pause)), "{number}, round {round}");
            }
            answer(&mut acquisition);
        }
    }
}

#[test]
fn only_a_waiter_without_a_place_pauses_before_it_asks() {
    assert_eq!(Acquisition::new(ttl(10_000), true).pause(|| 0), None);
    let mut polls = Acquisition::new(ttl(10_000), true).polling();
    assert_eq!(polls.pause(|| 0), Some(Duration::from_millis(5)));
}

#[test]
fn only_an_acquisition_that_gives_way_pauses_and_only_once() {
    assert_eq!(Acquisition::new(ttl(10_000), true).on_free(|| 0), None);
    let mut gives_way = Acquisition::new(ttl(10_000), true).giving_way();
    assert_eq!(gives_way.on_free(|| 0), Some(Duration::from_millis(5)));
    assert_eq!(gives_way.on_free(|| 0), None);
}

#[test]
fn a_try_asks_on_while_the_next_holder_is_hidden() {
    let mut acquisition = Acquisition::new(ttl(10_000), false);
    let asks = std::iter::repeat_with(|| {
        acquisition.ask(at(0));
        acquisition.on_taken(at(0), Some(Duration::ZERO), 0, || 0)
    });
    let asked_on = asks.take_while(|next| *next == NextAsk::Now).count();
    assert_eq!(asked_on, PLACES_MAX / REAPED_MAX, "as many as clear the longest line");
}

#[test]
fn a_waiter_that_is_told_again_and_again_that_the_key_has_no_holder_pauses() {
    let mut acquisition = Acquisition::new(ttl(10_000), true);
    let mut answer = |retry_in| acquisition.on_taken(at(0), Some(retry_in), 0, || 0);
    for _ in 0..2 {
        for _ in 0..PLACES_MAX / REAPED_MAX {
            assert_eq!(answer(Duration::ZERO), NextAsk::Now);
        }
        assert_eq!(answer(Duration::ZERO), NextAsk::At(at(0) + POLL_EVERY));
        assert_eq!(answer(Duration::from_millis(9)), NextAsk::At(at(10)), "it counts anew");
    }
}

#[test]
fn only_an_outage_after_an_answer_is_waited_out() {
    use ErrorKind::{Config, Denied, Unavailable, Unknown};
    let backoff = NextAsk::At(at(10));
    // Columns: whether it waits, whether the store answered before, kind, next ask.
    let table = [
        (true, false, Unavailable, NextAsk::GiveUp),
        (true, false, Unknown, NextAsk::Now),
        (true, true, Unavailable, backoff),
        (true, true, Unknown, backoff),
        (true, true, Denied, NextAsk::GiveUp),
        (true, true, Config, NextAsk::GiveUp),
        (false, false, Unavailable, NextAsk::GiveUp),
        (false, false, Unknown, NextAsk::Now),
        (false, false, Denied, NextAsk::GiveUp),
    ];
    for (waits, answered, kind, expected) in table {
        let mut acquisition = Acquisition::new(ttl(10_000), waits);
        if answered {
            acquisition.ask(at(0));
            acquisition.on_taken(at(0), None, 0, || 0);
        }
        acquisition.ask(at(0));
        assert_eq!(
            acquisition.on_failed(at(0), kind, u32::MAX),
            expected,
            "{waits} {answered} {kind}"
        );
    }
    let mut twice = Acquisition::new(ttl(10_000), false);
    assert_eq!(
        [(); 2].map(|()| {
            twice.ask(at(0));
            twice.on_failed(at(0), Unknown, 0)
        }),
        [NextAsk::Now, NextAsk::GiveUp]
    );
}
