//! The whole conformance suite on a real server, in real time.
//!
//! It needs its own test program. Test programs run one after the other. On a machine that is busy
//! with other tests, leases of the suite would end too early.

use std::sync::Mutex;
use std::thread;

use leasehold_conformance::{Case, Failure, Opener, Outcome, cases};

/// How many cases run at a time. Most of a case is waiting.
const AT_ONCE: usize = 8;

/// Runs one case on the stores that the function opens.
pub type Run = fn(&Case, fn() -> Opener) -> Result<Outcome, Failure>;

/// Runs every case, or those whose name contains `LEASEHOLD_CONFORMANCE_CASE`. At most `cut_max`
/// cases may stop before their end, because they step the server's clock, which a real server does
/// not allow, or take too long.
///
/// # Panics
///
/// If a case does not hold, or too many stop before their end.
pub fn every_case_holds(run: Run, setup: fn() -> Opener, cut_max: usize) {
    let chosen = std::env::var("LEASEHOLD_CONFORMANCE_CASE").unwrap_or_default();
    let mut left: Vec<_> = cases().into_iter().filter(|case| case.name.contains(&chosen)).collect();
    left.reverse();
    let (left, ended) = (Mutex::new(left), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let next = left.lock().expect("no panic leaves a case").pop();
            let Some(case) = next else { return };
            let ran = run(&case, setup);
            ended.lock().expect("no panic leaves a case").push((case, ran));
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    let ended = ended.into_inner().expect("no panic leaves a case");
    let mut cut: Vec<_> = ended
        .iter()
        .filter_map(|(case, ran)| match ran {
            Ok(Outcome::OnVirtualTimeOnly(why)) => Some(format!("{}: {why}", case.name)),
            _ => None,
        })
        .collect();
    cut.sort_unstable();
    println!("{cut:#?}");
    let failed: Vec<_> =
        ended.iter().filter_map(|(_, ran)| Some(ran.as_ref().err()?.to_string())).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(cut.len() <= cut_max, "{} cases were cut short", cut.len());
}
