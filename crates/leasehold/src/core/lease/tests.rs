use super::*;
use crate::core::token::FencingToken;

const TTL_MS: u64 = 3_000;
/// How long a lease of 3 s is valid: 3 s − 1 % − 2 ms.
const VALID_MS: u64 = 2_968;
/// The loss is told one millisecond earlier.
const TOLD_MS: u64 = VALID_MS - 1;

fn at(ms: u64) -> Moment {
    Moment::from_nanos(ms * 1_000_000)
}

fn block(first: u64) -> Option<FencingBlock> {
    Some(FencingBlock { first: FencingToken::new(first).expect("not zero"), count: 1 })
}

fn lease() -> LeaseLife {
    LeaseLife::granted(at(0), ttl(), block(7)).0
}

fn ttl() -> Ttl {
    Ttl::new(Duration::from_millis(TTL_MS)).expect("within bounds")
}

#[test]
fn a_lease_is_renewed_every_third_of_its_ttl() {
    let mut lease = lease();
    assert_eq!(lease.duty(at(0)), Duty::WaitUntil(at(1_000)));
    assert_eq!(lease.duty(at(999)), Duty::WaitUntil(at(1_000)));
    assert_eq!(lease.duty(at(1_000)), Duty::Renew);
    assert_eq!(lease.duty(at(1_001)), Duty::WaitUntil(at(TOLD_MS)), "one renewal at a time");
    assert!(lease.on_renewed(at(1_300), at(1_000), block(7), false));
    assert_eq!(lease.deadline, at(1_000 + VALID_MS), "counted from when it was sent");
    assert_eq!(lease.duty(at(1_300)), Duty::WaitUntil(at(2_000)));
}

/// The store may have processed the renewal that is under way before the hints were missed.
#[test]
fn a_renewal_that_is_wanted_while_one_is_under_way_follows_it() {
    let mut lease = lease();
    assert_eq!(lease.duty(at(1_000)), Duty::Renew);
    lease.renew_soon(at(1_001));
    assert_eq!(lease.duty(at(1_001)), Duty::WaitUntil(at(TOLD_MS)), "one renewal at a time");
    assert!(lease.on_renewed(at(1_100), at(1_000), block(7), false));
    assert_eq!(lease.duty(at(1_100)), Duty::Renew);
    assert!(lease.on_renewed(at(1_200), at(1_100), block(7), false));
    assert_eq!(lease.duty(at(1_200)), Duty::WaitUntil(at(2_100)));
}

#[test]
fn renewals_of_many_leases_fall_on_the_same_ticks() {
    // ttl and moment of the grant, in ms; when the renewal is due, in ms
    for (ttl, sent, due) in [
        (3_000, 0, 1_000),
        (3_000, 1, 1_100),
        (3_000, 99, 1_100),
        (60_000, 50, 20_500),
        (300, 7, 110),
    ] {
        let ttl = Ttl::new(Duration::from_millis(ttl)).expect("within bounds");
        assert_eq!(renewal_due(at(sent), ttl), at(due));
    }
}

#[test]
fn failed_renewal_is_unknown_until_validity_ends() {
    let mut lease = lease();
    let mut now = 1_000;
    let mut tries = 0;
    loop {
        match lease.duty(at(now)) {
            Duty::Renew => {
                tries += 1;
                now += 5;
                lease.on_unanswered(at(now), u32::MAX);
                assert_eq!(lease.state(), LeaseState::Held);
            }
            Duty::WaitUntil(next) => now = (next.as_nanos() / 1_000_000).max(now + 1),
            Duty::TellLost(lost) => {
                assert_eq!(lost, Lost::Deadline);
                break;
            }
            Duty::Forget | Duty::GiveUp => unreachable!("not before it was told"),
        }
    }
    assert!((TOLD_MS..TOLD_MS + 6).contains(&now), "told at the deadline, not later: {now}");
    assert!((5..100).contains(&tries), "{tries} tries");
    let again = lease.duty(at(now));
    assert_eq!(again, Duty::TellLost(Lost::Deadline), "the driver may end before it is done");
}

/// A ttl of a day makes no difference.
#[test]
fn failed_renewals_are_repeated_until_shortly_before_the_deadline() {
    for seconds in [1, 60, 24 * 3_600] {
        let ttl = Ttl::new(Duration::from_secs(seconds)).expect("within bounds");
        let (mut lease, _) = LeaseLife::granted(at(0), ttl, block(7));
        let (mut now, mut last, mut tries) = (lease.due(), at(0), 0);
        loop {
            match lease.duty(now) {
                Duty::Renew => {
                    (last, tries) = (now, tries + 1);
                    lease.on_unanswered(now, u32::MAX);
                }
                Duty::WaitUntil(next) => now = next,
                _ => break,
            }
        }
        let gap = lease.deadline().since(last);
        assert!(gap <= Duration::from_millis(30), "{seconds} s: {gap:?}");
        assert!(tries < 150, "{seconds} s: {tries} tries");
    }
}

/// Only fencing tokens run out, and this lease has none.
#[test]
fn a_lease_without_fencing_tokens_is_passed_on_for_ever() {
    let ttl = Ttl::new(Duration::from_secs(3)).expect("within bounds");
    let (mut lease, _) = LeaseLife::granted(at(0), ttl, None);
    lease.used = u32::MAX;
    let Parting::Pass(turn) = lease.part(at(1), 0, true, Duration::ZERO) else {
        panic!("it is passed on")
    };
    assert_eq!((turn.number, turn.fencing), (1, None));
}

#[test]
fn nothing_revives_a_lease_that_is_over() {
    for (end, duty) in [
        ("deadline", Duty::TellLost(Lost::Deadline)),
        ("answer", Duty::TellLost(Lost::NotOurs)),
        ("parted", Duty::Forget),
        ("released", Duty::Forget),
    ] {
        let mut lease = lease();
        assert_eq!(lease.duty(at(1_000)), Duty::Renew);
        match end {
            "deadline" => assert_eq!(lease.duty(at(TOLD_MS)), Duty::TellLost(Lost::Deadline)),
            "answer" => assert!(lease.on_lost()),
            "parted" => {
                assert_eq!(lease.part(at(1_500), 0, false, Duration::ZERO), Parting::Free);
            }
            _ => assert_eq!(lease.release(at(1_500)), Ok(())),
        }
        let over = lease.state();
        assert!(!lease.on_renewed(at(1_500), at(1_000), block(7), false), "{end}");
        assert!(!lease.on_lost(), "{end}: told once");
        assert_eq!(lease.state(), over, "{end}");
        assert!(!lease.is_held(0, at(1)), "{end}");
        assert_eq!(lease.remaining(0, at(1)), Duration::ZERO, "{end}");
        assert_eq!(lease.duty(at(1_501)), duty, "{end}");
        assert_eq!(lease.take(at(1)), Taking::Gone, "{end}");
    }
}

#[test]
fn a_deadline_that_passed_unnoticed_still_counts() {
    let mut late = lease();
    assert!(
        !late.on_renewed(at(VALID_MS), at(1_000), block(7), false),
        "the answer came after the deadline"
    );
    assert_eq!(late.release(at(VALID_MS)), Err(Lost::Deadline));
    assert!(!lease().is_held(0, at(VALID_MS)));
}

#[test]
fn an_answer_about_another_grant_moves_nothing() {
    for other in [None, block(8)] {
        let mut lease = lease();
        assert_eq!(lease.duty(at(1_000)), Duty::Renew);
        assert!(!lease.on_renewed(at(1_100), at(1_000), other, false));
        assert_eq!(lease.deadline, at(VALID_MS));
        assert!(lease.due() > at(1_120), "a strange answer is no reason to hurry");
    }
}

#[test]
fn a_deadline_moves_only_forward() {
    let mut lease = lease();
    assert_eq!(lease.duty(at(1_000)), Duty::Renew);
    assert!(lease.on_renewed(at(1_001), at(1_000), block(7), false));
    assert!(lease.on_renewed(at(1_002), at(500), block(7), false), "an older answer that was late");
    assert_eq!(lease.deadline, at(1_000 + VALID_MS));
}

const NO_TIME: Duration = Duration::ZERO;

fn wide(first: u64, count: u32) -> Option<FencingBlock> {
    block(first).map(|block| FencingBlock { count, ..block })
}

fn token(number: u64) -> Option<FencingToken> {
    FencingToken::new(number)
}

#[test]
fn a_guard_that_ends_leaves_the_lease_to_the_next_task_or_to_nobody() {
    let idle = Duration::from_secs(60);
    // Columns: fencing tokens, another client waits, now, a task waits, kept idle for, outcome.
    let pass = Parting::Pass(Turn { number: 1, fencing: token(8) });
    let table = [
        (2, false, 100, true, NO_TIME, pass),
        (2, true, 100, true, NO_TIME, pass),
        (2, true, 120, true, NO_TIME, Parting::Leave),
        (1, false, 100, true, NO_TIME, Parting::Leave),
        (2, false, VALID_MS - 1_000, true, NO_TIME, pass),
        (2, false, VALID_MS - 999, true, NO_TIME, Parting::Leave),
        (2, false, 100, false, NO_TIME, Parting::Free),
        (2, false, 100, false, idle, Parting::Idle),
        (1, false, 100, false, idle, Parting::Idle),
        (2, true, 100, false, idle, Parting::Free),
        (2, false, VALID_MS - 999, false, idle, Parting::Free),
        (2, false, VALID_MS, true, idle, Parting::Lost(Lost::Deadline)),
    ];
    for (count, wanted, now, waiting, keep_idle, expected) in table {
        let (mut life, turn) = LeaseLife::granted(at(0), ttl(), wide(7, count));
        assert_eq!(turn, Turn { number: 0, fencing: token(7) });
        if wanted {
            life.want(at(100));
        }
        let case = format!("{count} {wanted} {now} {waiting} {keep_idle:?}");
        assert_eq!(life.part(at(now), 0, waiting, keep_idle), expected, "{case}");
        assert!(!life.is_held(0, at(now)), "{case}: its turn is over");
        assert!(!life.is_turn(0) || expected == Parting::Lost(Lost::Deadline), "{case}");
        let again = life.part(at(now), 0, waiting, keep_idle);
        assert!(matches!(again, Parting::Over | Parting::Lost(_)), "{case}: it ends once");
    }
}

#[test]
fn only_the_latest_turn_counts() {
    let (mut life, _) = LeaseLife::granted(at(0), ttl(), wide(7, 3));
    assert!(matches!(life.part(at(1), 0, true, NO_TIME), Parting::Pass(_)));
    assert!(life.is_held(1, at(2)) && !life.is_held(0, at(2)));
    assert_eq!(life.remaining(0, at(2)), Duration::ZERO);
    assert_eq!(life.part(at(2), 0, true, NO_TIME), Parting::Over);
    assert!(life.is_held(1, at(2)), "the former turn cannot end it");
}

#[test]
fn an_idle_lease_is_taken_shown_renewed_and_given_up() {
    let keep_idle = Duration::from_secs(60);
    let (mut life, _) = LeaseLife::granted(at(0), ttl(), wide(7, 3));
    assert_eq!(life.part(at(10), 0, false, keep_idle), Parting::Idle);
    let taken = Turn { number: 1, fencing: token(8) };
    assert_eq!(life.take(at(20)), Taking::Take(taken));
    assert_eq!(life.take(at(20)), Taking::InUse);
    assert_eq!(life.duty(at(200)), Duty::WaitUntil(at(1_000)), "nothing was shown");

    assert_eq!(life.part(at(200), 1, false, keep_idle), Parting::Idle);
    assert_eq!(life.duty(at(200)), Duty::WaitUntil(at(300)), "it may be taken at once");
    assert_eq!(life.duty(at(300)), Duty::Renew);
    assert!(life.show(), "shown as idle");
    assert!(life.on_renewed(at(301), at(300), wide(7, 3), false));
    assert_eq!(life.duty(at(301)), Duty::WaitUntil(at(1_300)));
    assert!(matches!(life.take(at(400)), Taking::Take(_)));
    assert_eq!(life.duty(at(400)), Duty::Renew, "and is in use again");
    assert!(!life.show());

    assert_eq!(life.part(at(400), 2, false, keep_idle), Parting::Idle);
    assert_eq!(life.take(at(401)), Taking::Leave, "its fencing tokens are used up");
    assert_eq!(life.take(at(401)), Taking::Gone);

    let (mut life, _) = LeaseLife::granted(at(0), ttl(), wide(7, 3));
    assert_eq!(life.part(at(4), 0, false, Duration::from_millis(50)), Parting::Idle);
    assert_eq!(life.due(), at(54));
    assert_eq!(life.duty(at(54)), Duty::GiveUp, "it was kept for long enough");
    life.want(at(54));
    assert_eq!(life.take(at(54)), Taking::Leave, "another client waits");
}

#[test]
fn an_idle_lease_is_given_up_as_soon_as_it_is_wanted_and_lost_like_any() {
    let keep_idle = Duration::from_secs(60);
    let (mut life, _) = LeaseLife::granted(at(0), ttl(), block(7));
    assert_eq!(life.part(at(10), 0, false, keep_idle), Parting::Idle);
    let mut wanted = life.clone();
    wanted.want(at(20));
    assert_eq!(wanted.duty(at(20)), Duty::GiveUp);
    let mut told = life.clone();
    assert_eq!(told.duty(at(1_000)), Duty::Renew);
    assert!(told.on_renewed(at(1_001), at(1_000), block(7), true), "the answer says wanted");
    assert_eq!(told.duty(at(1_001)), Duty::GiveUp);
    assert_eq!(life.duty(at(TOLD_MS)), Duty::TellLost(Lost::Deadline));
    assert_eq!(life.take(at(TOLD_MS)), Taking::Gone);
}

#[test]
fn a_handed_over_lease_counts_as_wanted_until_the_store_says_otherwise() {
    let handed = || LeaseLife::handed_over(at(300), at(100), ttl(), ttl(), wide(7, 9)).0;
    assert_eq!(handed().part(at(320), 0, true, NO_TIME), Parting::Leave);
    let mut told = handed();
    assert!(told.on_renewed(at(310), at(301), wide(7, 9), false));
    assert!(matches!(told.part(at(320), 0, true, NO_TIME), Parting::Pass(_)));
    let mut heard = handed();
    assert!(heard.on_renewed(at(310), at(299), wide(7, 9), false));
    assert_eq!(heard.part(at(320), 0, true, NO_TIME), Parting::Leave, "heard of since then");
}

#[test]
fn a_handed_over_lease_has_the_short_ttl_and_is_renewed_soon() {
    let handed_ttl = Ttl::new(Duration::from_secs(1)).expect("within bounds");
    let (mut life, turn) = LeaseLife::handed_over(at(300), at(100), ttl(), handed_ttl, wide(7, 2));
    assert_eq!(turn.fencing, token(7));
    // The lease is valid for 1 s − 1 % − 2 ms from when the ask left.
    assert_eq!(life.remaining(0, at(300)), Duration::from_millis(788));
    assert_eq!(life.duty(at(300)), Duty::WaitUntil(at(400)));
    assert_eq!(life.duty(at(400)), Duty::Renew);
    assert!(life.on_renewed(at(410), at(400), wide(7, 2), false));
    assert_eq!(life.remaining(0, at(410)), Duration::from_millis(400 + VALID_MS - 410));
}

#[test]
fn a_lease_handed_over_for_very_short_is_lifted_in_a_quarter_of_what_is_left() {
    let handed_ttl = Ttl::new(Duration::from_millis(100)).expect("within bounds");
    let (mut life, _) = LeaseLife::handed_over(at(117), at(100), ttl(), handed_ttl, block(7));
    // The lease is valid for 100 ms − 1 % − 2 ms from when the ask left, so for 80 ms from now on.
    assert_eq!(life.remaining(0, at(117)), Duration::from_millis(80));
    assert_eq!(life.duty(at(117)), Duty::WaitUntil(at(137)));
}

/// A lease of a short ttl would end before the client tells the store that the lease is idle.
#[test]
fn an_idle_lease_is_renewed_in_time_even_before_it_must_be_shown() {
    let (mut life, _) = LeaseLife::granted(at(0), ttl(), block(7));
    assert_eq!(life.part(at(950), 0, false, Duration::from_secs(60)), Parting::Idle);
    assert_eq!(life.duty(at(950)), Duty::WaitUntil(at(1_000)));
}

#[test]
fn a_renewal_that_succeeds_makes_the_pauses_between_retries_short_again() {
    let mut lease = lease();
    // The first pause is a twentieth of the ttl at most, and a later one is a tenth.
    for (now, due) in [(1_000, 1_150), (1_150, 1_450)] {
        assert_eq!(lease.duty(at(now)), Duty::Renew);
        lease.on_unanswered(at(now), u32::MAX);
        assert_eq!(lease.due(), at(due));
    }
    assert_eq!(lease.duty(at(1_450)), Duty::Renew);
    assert!(lease.on_renewed(at(1_451), at(1_450), block(7), false));
    assert_eq!(lease.duty(at(2_500)), Duty::Renew);
    lease.on_unanswered(at(2_500), u32::MAX);
    assert_eq!(lease.due(), at(2_650));
}

#[test]
fn a_lease_whose_holder_was_asked_to_let_go_is_neither_passed_on_nor_kept_nor_taken() {
    let keep_idle = Duration::from_secs(60);
    for (waiting, expected) in [(true, Parting::Leave), (false, Parting::Free)] {
        let (mut life, _) = LeaseLife::granted(at(0), ttl(), wide(7, 3));
        life.revoke();
        assert!(life.is_held(0, at(10)), "the turn goes on");
        assert_eq!(life.part(at(10), 0, waiting, keep_idle), expected);
    }
    let (mut idle, _) = LeaseLife::granted(at(0), ttl(), wide(7, 3));
    assert_eq!(idle.part(at(10), 0, false, keep_idle), Parting::Idle);
    idle.revoke();
    assert_eq!(idle.clone().duty(at(20)), Duty::GiveUp);
    assert_eq!(idle.take(at(20)), Taking::Leave);
}

#[test]
fn a_hold_with_a_limit_is_renewed_for_no_longer_than_the_limit_needs() {
    let mut life = lease();
    life.hold_until(at(5_000));
    // The margin for clocks of the whole ttl is 32 ms. Columns: when the renewal leaves, its ttl.
    for (sent, ttl_ms) in [(1_000, 3_000), (2_032, 3_000), (2_100, 2_932), (4_990, 42)] {
        assert_eq!(life.ttl_at(at(sent)).as_millis(), ttl_ms, "{sent}");
    }
    assert_eq!(life.why_over(), Lost::Deadline);
    life.hold_until(at(2_000));
    assert_eq!((life.deadline(), life.why_over()), (at(2_000), Lost::MaxHold));
}

/// Its guard would learn of the loss almost at once.
#[test]
fn an_idle_lease_that_ends_soon_is_given_to_no_task() {
    for (now, is_given) in [(VALID_MS - 1_000, true), (VALID_MS - 999, false)] {
        let (mut life, _) = LeaseLife::granted(at(0), ttl(), wide(7, 3));
        assert_eq!(life.part(at(10), 0, false, Duration::from_secs(60)), Parting::Idle);
        let taking = life.take(at(now));
        assert_eq!(matches!(taking, Taking::Take(_)), is_given, "{now}: {taking:?}");
        assert!(is_given || taking == Taking::Leave, "{now}: {taking:?}");
    }
}
