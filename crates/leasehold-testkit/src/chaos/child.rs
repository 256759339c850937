//! The command that `leasehold run` runs. It only reports that it lives.

use std::process::ExitCode;
use std::time::Duration;

use super::teller::{Teller, first_number};
use crate::history::event::{CallId, ProcessId, What, WindowId};

/// The settings from its command line.
#[derive(Clone, Copy, Debug)]
pub struct ChildPlan {
    /// The `leasehold run` that started it.
    pub process: ProcessId,
    /// How long it lives if nobody kills it.
    pub lives: Duration,
    /// How often it reports.
    pub every: Duration,
}

/// Lives and reports. Its environment names its lock.
#[must_use]
pub fn run(plan: &ChildPlan) -> ExitCode {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let teller = Teller::new(plan.process);
    let window = WindowId(teller.number());
    let began = teller.now();
    let granted = What::Granted {
        window,
        call: CallId(first_number(plan.process)),
        token: variable("LEASEHOLD_TOKEN").into(),
        fence: variable("LEASEHOLD_FENCE").parse().ok(),
        until: began,
    };
    teller.tell_at(began, granted);
    let mut seen = began;
    loop {
        let now = teller.now();
        teller.tell_if_it_stood_still(seen, now, plan.every);
        seen = now;
        if now.since(began) >= plan.lives {
            break;
        }
        teller.tell_at(now, What::Extended { window, until: now });
        std::thread::park_timeout(plan.every);
    }
    teller.tell_at(seen, What::GaveUp { window });
    ExitCode::SUCCESS
}
