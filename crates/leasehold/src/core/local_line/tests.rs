use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use super::*;
use crate::core::lease::LeaseState;
use crate::core::lost::Lost;
use crate::core::ttl::Ttl;

/// Two settings that a task may want.
const SAME: char = 's';
const OTHER: char = 'o';

const IDLE_FOR: Duration = Duration::from_secs(1);

#[derive(Clone)]
struct Lease(Rc<(char, RefCell<LeaseLife>)>);

impl SharedLease for Lease {
    type Settings = char;

    fn settings(&self) -> &char {
        &self.0.0
    }

    fn life(&self) -> impl DerefMut<Target = LeaseLife> + '_ {
        self.0.1.borrow_mut()
    }

    fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl PartialEq for Lease {
    fn eq(&self, other: &Self) -> bool {
        self.is(other)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({})", self.0.0)
    }
}

fn at(ms: u64) -> Moment {
    Moment::from_nanos(ms * 1_000_000)
}

/// A lease of three seconds, with its first turn.
fn lease(settings: char) -> Lease {
    let ttl = Ttl::new(Duration::from_secs(3)).expect("within bounds");
    let (life, _) = LeaseLife::granted(at(0), ttl, None);
    Lease(Rc::new((settings, RefCell::new(life))))
}

fn idle(settings: char) -> Lease {
    let lease = lease(settings);
    assert_eq!(lease.life().part(at(0), 0, false, IDLE_FOR), Parting::Idle);
    lease
}

/// A time after the deadline, which nobody has noticed yet.
const LATE: u64 = 2_980;

/// A line whose tasks are told apart by numbers.
struct Scene {
    line: LocalLine<Lease, u64>,
    arrived: u64,
}

impl Scene {
    fn new(lease: Option<&Lease>) -> Self {
        let mut line = LocalLine::default();
        lease.into_iter().for_each(|lease| line.enter(lease.clone()));
        Self { line, arrived: 0 }
    }

    fn comes_at(&mut self, now: Moment, settings: char) -> Coming<Lease> {
        self.arrived += 1;
        let number = self.arrived;
        self.line.come(now, &settings, number, || number)
    }

    fn comes(&mut self, settings: char) -> Coming<Lease> {
        self.comes_at(at(1), settings)
    }

    /// A scene with tasks that wait behind a guard with this lease.
    fn waiting_for(lease: &Lease, tasks: &str) -> Self {
        let mut scene = Self::new(Some(lease));
        for settings in tasks.chars() {
            assert_eq!(scene.comes(settings), Coming::Waits);
        }
        scene
    }

    /// A scene with an asker, and tasks that wait behind it.
    fn asking(tasks: &str) -> Self {
        let mut scene = Self::new(None);
        assert_eq!(scene.comes(SAME), Coming::Asks(Found::Nothing));
        for settings in tasks.chars() {
            assert_eq!(scene.comes(settings), Coming::Waits);
        }
        scene
    }
}

#[test]
fn a_task_takes_what_is_idle_and_asks_only_if_nobody_asks_for_it() {
    let turn = Turn { number: 1, fencing: None };
    let (used, unused, others, wanted, late) =
        (lease(SAME), idle(SAME), lease(OTHER), idle(SAME), idle(SAME));
    wanted.life().want(at(0));
    // Columns: the lease that is there, when the task comes, its next step, whether it asks then.
    let table = [
        (None, 1, Coming::Asks(Found::Nothing), true),
        (Some(&used), 1, Coming::Waits, false),
        (Some(&unused), 1, Coming::Takes(unused.clone(), turn), false),
        (Some(&others), 1, Coming::Asks(Found::OfOthers(others.clone())), true),
        (Some(&wanted), 1, Coming::Asks(Found::Leaving(wanted.clone())), true),
        (Some(&late), LATE, Coming::Asks(Found::Nothing), true),
    ];
    for (lease, ms, does, asks) in table {
        let mut scene = Scene::new(lease);
        assert_eq!(scene.comes_at(at(ms), SAME), does);
        assert_eq!(scene.line.has_asker(), asks, "{does:?}");
        let stays = matches!(does, Coming::Waits | Coming::Takes(..));
        assert_eq!(scene.line.lease().is_some(), stays, "{does:?}");
        // The next task waits behind an asker, also if it wants something else.
        if asks {
            assert_eq!(scene.comes(SAME), Coming::Waits);
            assert_eq!(scene.comes(OTHER), Coming::Waits);
        }
    }
}

#[test]
fn a_task_that_does_not_wait_takes_what_is_idle_and_changes_nothing_else() {
    let turn = Turn { number: 1, fencing: None };
    let (used, unused, others, wanted, late) =
        (lease(SAME), idle(SAME), lease(OTHER), idle(SAME), idle(SAME));
    wanted.life().want(at(0));
    let table = [
        (None, 1, Err(Found::Nothing)),
        (Some(&used), 1, Err(Found::Nothing)),
        (Some(&unused), 1, Ok((unused.clone(), turn))),
        (Some(&others), 1, Err(Found::OfOthers(others.clone()))),
        (Some(&wanted), 1, Err(Found::Leaving(wanted.clone()))),
        (Some(&late), LATE, Err(Found::Nothing)),
    ];
    for (lease, ms, tried) in table {
        let scene = Scene::new(lease);
        assert_eq!(scene.line.try_take(at(ms), &SAME), tried);
        assert_eq!(scene.line.lease(), lease);
        assert!(!scene.line.is_wanted());
        assert_eq!(scene.line.is_vacant(), lease.is_none());
    }
    // A task that does not wait does not get ahead of tasks that wait.
    let unused = idle(SAME);
    let mut scene = Scene::asking("");
    scene.line.enter(unused);
    assert_eq!(scene.line.try_take(at(1), &SAME), Err(Found::Nothing));
}

#[test]
fn a_lease_passes_to_the_first_task_that_wants_the_same() {
    let passes = Parting::Pass(Turn { number: 1, fencing: None });
    // Columns: the tasks, how long the lease may be idle, where the lease goes, who is told.
    let table = [
        ("", IDLE_FOR, Parting::Idle, None),
        ("", Duration::ZERO, Parting::Free, None),
        ("s", IDLE_FOR, passes, Some(1)),
        ("ss", Duration::ZERO, passes, Some(1)),
    ];
    for (tasks, keep_idle, becomes, told) in table {
        let lease = lease(SAME);
        let mut scene = Scene::waiting_for(&lease, tasks);
        let ended = scene.line.end_turn(at(2), &lease, 0, keep_idle);
        assert_eq!(ended, (becomes, told), "{tasks}");
        let stays = matches!(becomes, Parting::Pass(_) | Parting::Idle);
        assert_eq!(scene.line.lease().is_some(), stays, "{tasks}");
        assert!(!scene.line.has_asker());
    }
}

#[test]
fn a_lease_that_is_too_old_to_be_passed_on_leaves_and_the_first_task_asks() {
    let old = lease(SAME);
    let mut scene = Scene::waiting_for(&old, "ss");
    assert_eq!(scene.line.end_turn(at(2_900), &old, 0, IDLE_FOR), (Parting::Leave, None));
    assert!(scene.line.has_asker() && scene.line.lease().is_none());
    assert_eq!(scene.line.end_turn(at(2_901), &old, 0, IDLE_FOR), (Parting::Over, None));
    assert!(scene.line.has_asker());
    assert_eq!(scene.line.next_with(&SAME), Some(1));
}

#[test]
fn a_task_does_not_overtake_one_that_waits_for_a_lease_in_use() {
    let used = lease(SAME);
    let mut scene = Scene::waiting_for(&used, "so");
    assert_eq!(scene.line.lease(), Some(&used));
    let (passed, told) = scene.line.end_turn(at(2), &used, 0, IDLE_FOR);
    assert!(matches!(passed, Parting::Pass(_)) && told == Some(1), "{passed:?} {told:?}");
    // The next task wants other settings, so the lease is neither passed to it nor kept idle.
    assert_eq!(scene.line.end_turn(at(3), &used, 1, IDLE_FOR), (Parting::Free, None));
    assert_eq!(scene.line.next_asker(), Some(2));
}

#[test]
fn a_lease_is_not_passed_past_an_asker_nor_to_other_settings() {
    // Another task asked for other settings while the guard went on.
    let used = lease(SAME);
    let mut scene = Scene::new(Some(&used));
    assert_eq!(scene.comes(OTHER), Coming::Asks(Found::OfOthers(used.clone())));
    assert_eq!(scene.comes(SAME), Coming::Waits);
    assert_eq!(scene.line.end_turn(at(2), &used, 0, IDLE_FOR), (Parting::Free, None));
    assert!(scene.line.has_asker(), "that task still asks");
    // A task that does not wait got the lease. The asker may soon have one too.
    let (mut scene, got) = (Scene::asking(""), lease(SAME));
    scene.line.enter(got.clone());
    assert_eq!(scene.line.end_turn(at(2), &got, 0, IDLE_FOR), (Parting::Free, None));
    assert!(scene.line.has_asker() && !scene.line.is_vacant());
    // The first task that waits wants other settings, and asks.
    let mut scene = Scene::asking("os");
    let got = lease(SAME);
    scene.line.enter(got.clone());
    assert_eq!(scene.line.end_asker(), Some(2));
    assert_eq!(scene.line.end_turn(at(2), &got, 0, IDLE_FOR), (Parting::Free, None));
    assert_eq!(scene.line.lease(), None);
}

#[test]
fn a_lost_lease_is_passed_to_nobody() {
    let lost = lease(SAME);
    let mut scene = Scene::waiting_for(&lost, "ss");
    assert!(lost.life().on_lost());
    let ended = scene.line.end_turn(at(2), &lost, 0, IDLE_FOR);
    assert_eq!(ended, (Parting::Lost(Lost::NotOurs), None));
    assert_eq!(scene.line.next_asker(), Some(1));
}

#[test]
fn only_the_lease_that_is_shared_is_forgotten_and_only_idle_ones_are_ended() {
    let (old, new) = (lease(SAME), idle(SAME));
    let mut scene = Scene::new(Some(&new));
    scene.line.forget(&old);
    assert_eq!(scene.line.end_turn(at(2), &old, 0, IDLE_FOR), (Parting::Free, None));
    assert_eq!(scene.line.lease(), Some(&new));
    assert!(!scene.line.end_idle(at(2), &old), "it is over");
    let (replaced, in_use) = (idle(SAME), lease(SAME));
    assert!(scene.line.end_idle(at(2), &replaced) && !scene.line.end_idle(at(2), &in_use));
    assert_eq!(scene.line.lease(), Some(&new));
    assert!(scene.line.end_idle(at(2), &new));
    assert_eq!(new.life().state(), LeaseState::Released);
    assert!(scene.line.is_vacant());
}

#[test]
fn a_lease_that_another_has_replaced_is_passed_to_nobody() {
    let (old, new) = (lease(SAME), lease(SAME));
    let mut scene = Scene::waiting_for(&old, "s");
    scene.line.enter(new.clone());
    assert_eq!(scene.line.end_turn(at(2), &old, 0, IDLE_FOR), (Parting::Free, None));
    assert_eq!(scene.line.lease(), Some(&new));
}

#[test]
fn the_first_task_asks_if_no_asker_and_no_lease_is_before_it() {
    let mut scene = Scene::asking("ss");
    assert_eq!(scene.line.next_asker(), None, "one asks");
    assert_eq!(scene.line.end_asker(), Some(2));
    assert_eq!(scene.line.next_asker(), None);
    // The asker got the lease, so the next task waits for that.
    scene.line.enter(lease(SAME));
    assert_eq!(scene.line.end_asker(), None);
    // A lease with other settings is not worth waiting for.
    let mut scene = Scene::asking("o");
    scene.line.enter(lease(SAME));
    assert_eq!(scene.line.end_asker(), Some(2));
    let mut nobody = Scene::new(None);
    assert_eq!(nobody.line.next_asker(), None);
    assert!(nobody.line.is_vacant() && !nobody.line.has_asker());
}

#[test]
fn an_asker_that_goes_away_leaves_its_work_to_a_task_that_wants_the_same() {
    let mut scene = Scene::asking("sos");
    // A task that does not wait has the lease. The asker keeps its place at the store anyway.
    scene.line.enter(lease(SAME));
    assert_eq!(scene.line.next_with(&SAME), Some(2));
    assert_eq!(scene.line.next_with(&SAME), None, "the first one wants something else");
    assert!(scene.line.has_asker());
    assert_eq!(scene.line.end_asker(), Some(3));
}

#[test]
fn a_failure_is_told_to_the_tasks_that_would_fail_like_the_asker() {
    let mut scene = Scene::asking("sosoo");
    assert_eq!(scene.line.asker_failed(|settings| *settings == SAME), [2, 4]);
    assert_eq!(scene.line.next_asker(), Some(3));
    assert_eq!(scene.line.take_tasks().collect::<Vec<_>>(), [5, 6]);
}

#[test]
fn a_task_that_goes_away_is_told_nothing() {
    let lease = lease(SAME);
    let mut scene = Scene::waiting_for(&lease, "ss");
    assert_eq!(scene.line.leave(1), Some(1));
    assert_eq!(scene.line.leave(1), None);
    let (_, told) = scene.line.end_turn(at(2), &lease, 0, IDLE_FOR);
    assert_eq!(told, Some(2));
    assert_eq!(scene.line.leave(2), None, "it was told");
}

#[test]
fn a_line_that_is_full_takes_no_more_tasks() {
    let mut scene = Scene::asking("");
    for _ in 0..TASKS_MAX {
        assert_eq!(scene.comes(SAME), Coming::Waits);
    }
    assert_eq!(scene.comes(SAME), Coming::Full);
    scene.line.leave(2);
    assert_eq!(scene.comes(SAME), Coming::Waits);
}
