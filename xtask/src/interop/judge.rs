//! Judges what two libraries did on one key: whether they excluded each other, and whether both had
//! their turns.

use std::time::Duration;

use super::contender::{Nanos, Turn, Turns};

/// How long it may take until a side has the lock for the first time. A client that polls rarely
/// may miss some of the moments when the lock is free.
const FIRST_WITHIN: Duration = Duration::from_secs(15);

/// The longest time that a side may then go without the lock, if the other side had it more often
/// than this meanwhile. If the machine stands still, neither side has it, and that is no fault.
const WAIT_MAX: Duration = Duration::from_secs(3);
const TURNS_MAX: usize = 20;

/// The smallest part of the turns for a side, as a fraction of half of all turns.
const SHARE_MIN: f64 = 0.1;

/// The turns of one side of a pair, counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tally {
    turns: usize,
    /// How long it took until the side had the lock for the first time.
    first: Duration,
    /// The longest time without the lock after that, and how often the other side had it meanwhile.
    longest_gap: Duration,
    passed_by: usize,
    /// The longest time without the lock for one of its tasks.
    longest_wait: Duration,
}

/// The rules for a pair, besides the rule that no two processes have the lock at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    /// Whether the other library, too, must get the lock as often as wanted.
    pub(super) their_turns: bool,
    /// Whether a side must have its share, and how long it may wait. A busy machine distorts both.
    pub(super) fairness: bool,
}

/// The result of one pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    ours: Tally,
    theirs: Tally,
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

    /// The first rule that the pair broke.
    pub(super) fn complaint(&self, judged: Judged) -> Option<String> {
        let Self { ours, theirs, overlaps, wanted, span } = self;
        let least = SHARE_MIN * (ours.turns + theirs.turns) as f64 / 2.0;
        if *overlaps > 0 {
            return Some(format!("two had the lock at once, {overlaps} times"));
        }
        let theirs = judged.their_turns.then_some(("they", theirs));
        [("we", ours)].into_iter().chain(theirs).find_map(|(who, side)| {
            if side.turns < *wanted {
                Some(format!("{who} had the lock {} times in {span:?}", side.turns))
            } else if !judged.fairness {
                None
            } else if (side.turns as f64) < least {
                Some(format!("{who} had the lock {} times, too small a share", side.turns))
            } else if side.first > FIRST_WITHIN {
                Some(format!("{who} had the lock for the first time after {:?}", side.first))
            } else if side.longest_gap > WAIT_MAX && side.passed_by > TURNS_MAX {
                Some(format!("{who} went without the lock for {:?}", side.longest_gap))
            } else {
                None
            }
        })
    }
}

/// Judges what both sides said from the moment at which all were told to contend.
pub(super) fn judge(
    ours: &[Turns],
    theirs: &[Turns],
    from: Nanos,
    wanted: usize,
) -> Result<Verdict, String> {
    let all = || ours.iter().chain(theirs);
    let ends = all().flat_map(|turns| &turns.0).filter_map(|turn| turn.to);
    let to = ends.max().ok_or("nobody had the lock")?;
    Ok(Verdict {
        overlaps: overlaps(&all().collect::<Vec<_>>()),
        ours: tally(ours, theirs, from, to),
        theirs: tally(theirs, ours, from, to),
        wanted,
        span: Duration::from_nanos(to.saturating_sub(from)),
    })
}

/// How often a turn began while another one lasted. All processes ended at the same time, so a turn
/// without an end lasted until then.
pub(super) fn overlaps(all: &[&Turns]) -> usize {
    let mut turns: Vec<&Turn> = all.iter().flat_map(|turns| &turns.0).collect();
    turns.sort_by_key(|turn| turn.from);
    let overlaps = turns.windows(2).filter(|two| two[0].to.is_none_or(|to| two[1].from < to));
    overlaps.count()
}

fn tally(side: &[Turns], other: &[Turns], from: Nanos, to: Nanos) -> Tally {
    let mut all: Vec<Turn> = side.iter().flat_map(|turns| turns.0.clone()).collect();
    all.sort_by_key(|turn| turn.from);
    let task = |process: &Turns, task| -> Vec<Turn> {
        process.0.iter().filter(|turn| turn.task == task).copied().collect()
    };
    let waits = side.iter().flat_map(|process| {
        let tasks = process.0.iter().map(|turn| turn.task).max().map_or(0, |most| most + 1);
        (0..tasks).map(move |number| length(longest_gap(&task(process, number), from, to)))
    });
    let first = all.first().map_or(to, |turn| turn.from).max(from);
    let gap = longest_gap(&all, first, to);
    let within = |turn: &&Turn| gap.0 <= turn.from && turn.from < gap.1;
    Tally {
        turns: all.len(),
        first: Duration::from_nanos(first - from),
        longest_gap: length(gap),
        passed_by: other.iter().flat_map(|turns| &turns.0).filter(within).count(),
        longest_wait: waits.max().unwrap_or_default(),
    }
}

/// The beginning and the end of the longest time between two turns. The turns are in order.
fn longest_gap(turns: &[Turn], from: Nanos, to: Nanos) -> (Nanos, Nanos) {
    let ends = std::iter::once(from).chain(turns.iter().map(|turn| turn.to.unwrap_or(to)));
    let begins = turns.iter().map(|turn| turn.from).chain([to]);
    let longest = ends.zip(begins).max_by_key(|(end, begin)| begin.saturating_sub(*end));
    longest.unwrap_or((from, from))
}

fn length((from, to): (Nanos, Nanos)) -> Duration {
    Duration::from_nanos(to.saturating_sub(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Judged = Judged { their_turns: true, fairness: true };

    /// A process of one task with turns of 1 ms at these moments.
    fn told(at_ms: impl IntoIterator<Item = u64>) -> Turns {
        let turn = |ms: u64| Turn { task: 0, from: ms * 1_000_000, to: Some((ms + 1) * 1_000_000) };
        Turns(at_ms.into_iter().map(turn).collect())
    }

    fn complaint(ours: Turns, theirs: Turns) -> String {
        let verdict = judge(&[ours], &[theirs], 0, 10).expect("they had turns");
        verdict.complaint(ALL).unwrap_or_default()
    }

    #[test]
    fn the_judge_names_the_fault_of_a_pair() {
        let every = |first: u64, step: usize| (first..4_000).step_by(step);
        assert_eq!(complaint(told(every(0, 10)), told(every(5, 20))), "");
        assert!(complaint(told(every(0, 10)), told(every(0, 20))).contains("at once"));
        assert!(
            complaint(told(every(0, 10)), told((0..9).map(|n| n * 400 + 5))).contains("9 times")
        );
        assert!(complaint(told(every(0, 4)), told(every(2, 400))).contains("they had the lock 10"));
        let early = || told((0..10).map(|n| n * 2).chain([3_100]));
        let many = told((0..25).map(|n| n * 120 + 41));
        assert!(complaint(early(), many).contains("we went without"));
        let unfair = judge(&[early()], &[told((0..25).map(|n| n * 120 + 41))], 0, 10);
        let judged = Judged { fairness: false, ..ALL };
        assert_eq!(unfair.expect("they had turns").complaint(judged), None);
        let few = told((0..15).map(|n| n * 200 + 41));
        assert_eq!(complaint(early(), few), "", "the machine stood still");
        let late = told((15_100..16_000).step_by(10));
        assert!(
            complaint(late, told((5..16_000).step_by(100))).contains("we had the lock for the fi")
        );
        let mut open = told([0]);
        open.0[0].to = None;
        assert_eq!(overlaps(&[&open, &told([7])]), 1, "it lasts until the end");
        assert!(judge(&[Turns::default()], &[Turns::default()], 0, 1).is_err());
    }

    #[test]
    fn a_row_shows_the_counts_and_the_waits_of_both_sides() {
        let verdict = judge(&[told([0, 10])], &[told([5])], 0, 1).expect("they had turns");
        let row = "| bsm | 1 : 2 | 0.0 s | 5 / 0 ms | 5 / 9 ms | 5 / 9 ms | 0 |";
        assert_eq!(verdict.row("bsm"), row);
        let verdict = judge(&[told(0..1)], &[Turns::default()], 0, 1).expect("we had a turn");
        assert!(verdict.complaint(ALL).is_some());
        let judged = Judged { their_turns: false, ..ALL };
        assert_eq!(verdict.complaint(judged), None, "they cannot have turns");
    }
}
