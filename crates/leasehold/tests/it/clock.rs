//! The clock of real programs, in a time namespace.

use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host, SystemHost};

/// The test of this file, which starts itself again.
const TEST: &str = "clock::the_clock_counts_the_time_for_which_the_machine_slept";

/// Tells the inner run for how many milliseconds the machine was up before it.
const UP_BEFORE: &str = "LEASEHOLD_TEST_UP_BEFORE_MS";

/// For how many seconds the machine of the inner run seems to have slept.
const SLEPT: &str = "1000";

/// A time namespace may move CLOCK_BOOTTIME alone, as a suspend does. Without the time of a
/// suspend, a laptop that wakes up would believe that it still has its leases.
#[test]
fn the_clock_counts_the_time_for_which_the_machine_slept() {
    if let Ok(before) = std::env::var(UP_BEFORE) {
        let before = before.parse().expect("a number");
        return the_clock_agrees_with_proc(Duration::from_millis(before));
    }
    let mut denied = String::new();
    // In a container, root may create the namespace only in one of these ways.
    for user in [&[][..], &["--user", "--map-root-user"]] {
        let mut inner = Command::new("unshare");
        inner.args(user).args(["--time", "--boottime", SLEPT, "--fork"]);
        inner.arg(std::env::current_exe().expect("it runs"));
        inner.args(["--exact", TEST, "--nocapture"]);
        inner.env(UP_BEFORE, uptime().as_millis().to_string());
        let done = inner.output().expect("`unshare` is part of util-linux");
        let [out, err] =
            [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        if !err.starts_with("unshare: ") {
            assert!(done.status.success() && out.contains("1 passed"), "{out}{err}");
            return;
        }
        denied = err;
    }
    let denied = denied.trim_end().replace('\n', "; ");
    let why = format!("this machine gives no time namespaces to its users: {denied}");
    // The runner hides the output of `println!` if the test passes.
    writeln!(std::io::stdout(), "\nnot run: {TEST}: {why}").expect("standard output takes a line");
}

/// Compares the clock with /proc. `before` is how long the machine was up outside of the namespace.
fn the_clock_agrees_with_proc(before: Duration) {
    let slept = Duration::from_secs(SLEPT.parse().expect("a number"));
    assert!(uptime() >= before + slept, "the namespace does not move the clock");
    let now = || SystemHost.now().since(Moment::default());
    let (earlier, up, later) = (now(), uptime(), now());
    // /proc counts hundredths of a second.
    let rounding = Duration::from_secs(1);
    let agrees = earlier <= up + rounding && up <= later + rounding;
    assert!(agrees, "the clock is at {later:?}, and the machine is up for {up:?}");
}

/// How long the machine is up, in the time namespace of this process.
fn uptime() -> Duration {
    let text = std::fs::read_to_string("/proc/uptime").expect("/proc is there");
    let seconds = text.split(' ').next().expect("a word");
    Duration::from_secs_f64(seconds.parse().expect("a number"))
}
