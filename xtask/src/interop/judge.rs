//! What two libraries did on one key: did they exclude each other, and did both have their turns.

use std::time::Duration;

use super::contender::{Nanos, Told, Turn};

/// How long it may take until a side has the lock for the first time. A client that polls rarely
/// may miss some of the openings that are there for it.
const FIRST_WITHIN: Duration = Duration::from_secs(15);

/// The longest time that a side may go without the lock from then on.
const WAIT_MAX: Duration = Duration::from_secs(3);

/// The smallest share of a side, as a part of an equal share.
const SHARE_MIN: f64 = 0.1;

/// One side of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Side {
    turns: usize,
    /// How long it took until the side had the lock for the first time.
    first: Duration,
    /// The longest time without the lock after that, and that of one of its tasks.
    longest_gap: Duration,
    longest_wait: Duration,
}

/// The result of one pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    ours: Side,
    theirs: Side,
    overlaps: usize,
    wanted: usize,
    span: Duration,
}

impl Verdict {
    /// The head of the table.
    pub(super) const HEAD: &str = "\
        | Beside | Grants, theirs : ours | In | First after, theirs / ours | Longest without, \
        theirs / ours | Longest wait of a task, theirs / ours | Overlaps |\n\
        |---|---|---|---|---|---|---|";

    /// The row of a rival.
    pub(super) fn row(&self, name: &str) -> String {
        let Self { ours, theirs, overlaps, span, .. } = self;
        format!(
            "| {name} | {} : {} | {:.1} s | {} / {} ms | {} / {} ms | {} / {} ms | {overlaps} |",
            theirs.turns,
            ours.turns,
            span.as_secs_f64(),
            theirs.first.as_millis(),
            ours.first.as_millis(),
            theirs.longest_gap.as_millis(),
            ours.longest_gap.as_millis(),
            theirs.longest_wait.as_millis(),
            ours.longest_wait.as_millis(),
        )
    }

    /// What is wrong with it. Some libraries cannot have their turns.
    pub(super) fn broken(&self, have_turns: bool) -> Option<String> {
        let Self { ours, theirs, overlaps, wanted, span } = self;
        let least = SHARE_MIN * (ours.turns + theirs.turns) as f64 / 2.0;
        let mut sides = vec![("we", ours), ("they", theirs)];
        if *overlaps > 0 {
            return Some(format!("two had the lock at once, {overlaps} times"));
        }
        if !have_turns {
            sides.pop();
        }
        sides.into_iter().find_map(|(who, side)| {
            if side.turns < *wanted {
                Some(format!("{who} had the lock {} times in {span:?}", side.turns))
            } else if (side.turns as f64) < least {
                Some(format!("{who} had the lock {} times, too small a share", side.turns))
            } else if side.first > FIRST_WITHIN {
                Some(format!("{who} had the lock for the first time after {:?}", side.first))
            } else if side.longest_gap > WAIT_MAX {
                Some(format!("{who} went without the lock for {:?}", side.longest_gap))
            } else {
                None
            }
        })
    }
}

/// Judges what both sides said since all of them ran.
pub(super) fn judge(
    ours: &[Told],
    theirs: &[Told],
    from: Nanos,
    wanted: usize,
) -> Result<Verdict, String> {
    let all = || ours.iter().chain(theirs);
    let ends = all().flat_map(|told| &told.0).filter_map(|turn| turn.to);
    let to = ends.max().ok_or("nobody had the lock")?;
    Ok(Verdict {
        overlaps: overlaps(&all().collect::<Vec<_>>()),
        ours: side(ours, from, to),
        theirs: side(theirs, from, to),
        wanted,
        span: Duration::from_nanos(to.saturating_sub(from)),
    })
}

/// How often a turn began while another one lasted. One whose end was not heard does not count.
pub(super) fn overlaps(told: &[&Told]) -> usize {
    let mut turns: Vec<&Turn> = told.iter().flat_map(|told| &told.0).collect();
    turns.sort_by_key(|turn| turn.from);
    let overlaps = turns.windows(2).filter(|two| two[0].to.is_some_and(|to| two[1].from < to));
    overlaps.count()
}

fn side(told: &[Told], from: Nanos, to: Nanos) -> Side {
    let mut all: Vec<Turn> = told.iter().flat_map(|told| told.0.clone()).collect();
    all.sort_by_key(|turn| turn.from);
    let task = |process: &Told, task| -> Vec<Turn> {
        process.0.iter().filter(|turn| turn.task == task).copied().collect()
    };
    let waits = told.iter().flat_map(|process| {
        let tasks = process.0.iter().map(|turn| turn.task).max().map_or(0, |most| most + 1);
        (0..tasks).map(move |number| longest_gap(&task(process, number), from, to))
    });
    let first = all.first().map_or(to, |turn| turn.from).max(from);
    Side {
        turns: all.len(),
        first: Duration::from_nanos(first - from),
        longest_gap: longest_gap(&all, first, to),
        longest_wait: waits.max().unwrap_or_default(),
    }
}

/// The longest time between two turns. They are in order.
fn longest_gap(turns: &[Turn], from: Nanos, to: Nanos) -> Duration {
    let ends = std::iter::once(from).chain(turns.iter().map(|turn| turn.to.unwrap_or(to)));
    let begins = turns.iter().map(|turn| turn.from).chain([to]);
    let gaps = ends.zip(begins).map(|(end, begin)| begin.saturating_sub(end));
    Duration::from_nanos(gaps.max().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process of one task with turns of 1 ms at these moments.
    fn told(at_ms: impl IntoIterator<Item = u64>) -> Told {
        let turn = |ms: u64| Turn { task: 0, from: ms * 1_000_000, to: Some((ms + 1) * 1_000_000) };
        Told(at_ms.into_iter().map(turn).collect())
    }

    fn broken(ours: Told, theirs: Told) -> String {
        let verdict = judge(&[ours], &[theirs], 0, 10).expect("they had turns");
        verdict.broken(true).unwrap_or_default()
    }

    #[test]
    fn what_is_wrong_with_a_pair_is_named() {
        let every = |first: u64, step: usize| (first..4_000).step_by(step);
        assert_eq!(broken(told(every(0, 10)), told(every(5, 20))), "");
        assert!(broken(told(every(0, 10)), told(every(0, 20))).contains("at once"));
        assert!(broken(told(every(0, 10)), told((0..9).map(|n| n * 400 + 5))).contains("9 times"));
        assert!(broken(told(every(0, 4)), told(every(2, 400))).contains("they had the lock 10"));
        let early = told((0..10).map(|n| n * 2).chain([3_100]));
        assert!(broken(early, told((0..20).map(|n| n * 160 + 41))).contains("we went without"));
        let late = told((15_100..16_000).step_by(10));
        assert!(
            broken(late, told((5..16_000).step_by(100))).contains("we had the lock for the fi")
        );
        assert!(judge(&[Told::default()], &[Told::default()], 0, 1).is_err());
    }

    #[test]
    fn a_row_shows_the_counts_and_the_waits_of_both_sides() {
        let verdict = judge(&[told([0, 10])], &[told([5])], 0, 1).expect("they had turns");
        let row = "| bsm | 1 : 2 | 0.0 s | 5 / 0 ms | 5 / 9 ms | 5 / 9 ms | 0 |";
        assert_eq!(verdict.row("bsm"), row);
        let verdict = judge(&[told(0..1)], &[Told::default()], 0, 1).expect("we had a turn");
        assert!(verdict.broken(true).is_some());
        assert_eq!(verdict.broken(false), None, "they cannot have turns");
    }
}
