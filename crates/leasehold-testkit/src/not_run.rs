//! Names tests that cannot run on this machine.

use std::io::Write as _;

/// Says that the test of this thread does not run here, and why. `cargo xtask test` repeats the
/// line at its end.
///
/// # Panics
///
/// If standard output takes no line.
pub fn not_run(why: &str) {
    let thread = std::thread::current();
    let said = line(thread.name(), why);
    // The runner hides the output of `println!` if the test passes.
    std::io::stdout().write_all(said.as_bytes()).expect("standard output takes a line");
}

/// The line, with its beginning and its end. If tests run one after another, they run on the main
/// thread, and the runner has begun a line with the name of the test.
fn line(thread: Option<&str>, why: &str) -> String {
    let test = thread.filter(|name| *name != "main").unwrap_or("a test");
    format!("\nnot run: {test}: {}\n", why.trim_end().replace('\n', "; "))
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn a_test_that_does_not_run_is_named_on_a_line_of_its_own() {
        for (thread, why, expected) in [
            (Some("a::b"), "no right", "\nnot run: a::b: no right\n"),
            (Some("main"), "no right", "\nnot run: a test: no right\n"),
            (None, "denied: x\nsee y\n", "\nnot run: a test: denied: x; see y\n"),
        ] {
            assert_eq!(line(thread, why), expected);
        }
    }
}
