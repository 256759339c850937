//! `cargo xtask interop`: Leasehold and other libraries on one key of a real server.

mod contender;
mod contest;
mod faults;
mod judge;
mod pairs;

use self::contest::Contest;
use self::judge::{Judged, Verdict};
use self::pairs::{OF_ANOTHER_TYPE, On, Pair, has_turns};
use crate::rivals::{SUBJECTS, Subject};
use crate::{suite, tools};

/// How often each side must have the lock.
const ACQUISITIONS: usize = 200;

/// The wishes in `args`.
struct Wanted {
    pairs: Vec<Pair>,
    /// The library whose locks have another type. Leasehold must leave them alone.
    of_another_type: Option<&'static Subject>,
    acquisitions: usize,
    /// Whether a program that cannot be built here is a failure.
    all: bool,
    /// Whether shares and waits are judged, too.
    fairness: bool,
}

/// Runs all pairs, or those that `args` name.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let wanted = parse(args)?;
    suite::need()?;
    let mut contest = Contest::new()?;
    let (mut lines, mut failures) = (vec![Verdict::HEAD.to_owned()], Vec::new());
    let mut not_run = Vec::new();
    for pair in &wanted.pairs {
        let name = pair.name();
        if !contest.can_run(pair.theirs) {
            continue;
        }
        eprintln!("== {name}");
        if pair.on == On::Zookeeper
            && let Err(why) = tools::ZOOKEEPER.get()
        {
            not_run.push(format!("{name}: {why}"));
            continue;
        }
        if let Err(error) = contest.serve(pair.on) {
            failures.push(format!("{name}: {error}"));
            continue;
        }
        match contest.contend(pair, wanted.acquisitions) {
            Ok(verdict) => {
                lines.push(verdict.row(&name));
                let their_turns = has_turns(pair.theirs);
                let judged = Judged { their_turns, fairness: wanted.fairness && pair.is_quick() };
                let complaint = verdict.complaint(judged);
                failures.extend(complaint.map(|what| format!("{name}: {what}")));
            }
            Err(error) => {
                lines.push(format!("| {name} | failed: see below | | | | | |"));
                failures.push(format!("{name}: {error}"));
            }
        }
        failures.extend(contest.faults(pair).into_iter().map(|what| format!("{name}: {what}")));
    }
    if let Some(theirs) = wanted.of_another_type.filter(|theirs| contest.can_run(theirs)) {
        eprintln!("== {}", theirs.name);
        let done = contest.leaves_another_type_alone(theirs);
        failures.extend(done.err().map(|what| format!("{}: {what}", theirs.name)));
    }
    println!("{}", lines.join("\n"));
    not_run.extend(contest.not_built());
    for why in not_run {
        println!("not run: {why}");
        if wanted.all {
            failures.push(why);
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Understands names of pairs and of rivals, and flags.
fn parse(args: &[String]) -> Result<Wanted, String> {
    let known = pairs::all();
    let other = SUBJECTS.iter().find(|subject| subject.name == OF_ANOTHER_TYPE);
    let mut wanted = Wanted {
        pairs: Vec::new(),
        of_another_type: None,
        acquisitions: ACQUISITIONS,
        all: false,
        fairness: true,
    };
    let mut args = args.iter();
    while let Some(word) = args.next() {
        match word.as_str() {
            "--acquisitions" => {
                let number = args.next().and_then(|number| number.parse().ok());
                wanted.acquisitions = number.filter(|number| *number > 0).ok_or_else(|| {
                    "--acquisitions needs a number: how often each side must have the lock"
                        .to_owned()
                })?;
            }
            "--all" => wanted.all = true,
            "--exclusion" => wanted.fairness = false,
            OF_ANOTHER_TYPE => wanted.of_another_type = other,
            name => {
                let named: Vec<_> = known.iter().filter(|pair| pair.name() == name).collect();
                if named.is_empty() {
                    let names: Vec<_> = known.iter().map(Pair::name).collect();
                    let names = names.join(", ");
                    return Err(format!(
                        "there is no pair `{name}`; there are {names}, {OF_ANOTHER_TYPE}"
                    ));
                }
                wanted.pairs.extend(named);
            }
        }
    }
    if wanted.pairs.is_empty() && wanted.of_another_type.is_none() {
        (wanted.pairs, wanted.of_another_type) = (known, other);
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<(Vec<String>, bool, usize), String> {
        let args: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        let wanted = parse(&args)?;
        let names = wanted.pairs.iter().map(Pair::name).collect();
        Ok((names, wanted.of_another_type.is_some(), wanted.acquisitions))
    }

    #[test]
    fn pairs_and_numbers_are_understood_or_refused() {
        let (names, of_another_type, acquisitions) = parsed("").expect("all pairs");
        assert_eq!((names.len(), of_another_type, acquisitions), (pairs::all().len(), true, 200));
        let two = vec!["rslock".to_owned(), "bsm".to_owned()];
        assert_eq!(parsed("--acquisitions 7 rslock bsm --all"), Ok((two, false, 7)));
        assert_eq!(parsed("redisson"), Ok((Vec::new(), true, 200)));
        for (line, complaint) in [
            ("--acquisitions", "needs a number"),
            ("--acquisitions 0", "needs a number"),
            ("--acquisitions many", "needs a number"),
            ("zookeeper", "there are go-zero, redsync"),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(complaint), "{line}: {error}");
        }
    }
}
