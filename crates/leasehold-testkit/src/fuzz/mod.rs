//! Functions that take any bytes, and must neither panic nor hang.
//!
//! On the stable toolchain, [`check`] runs each function over a stored corpus and over random
//! changes of it. The crate in `fuzz/` runs the same functions under cargo-fuzz. An input that
//! failed once stays in the corpus.
#![allow(clippy::disallowed_methods, reason = "a hang is seen from another thread, in real time")]

mod answers;
mod files;
mod messages;
mod mutation;
mod names;
mod replies;
mod served;
mod urls;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

pub use answers::answers;
pub use files::files;
pub use messages::messages;
pub use names::names;
pub use replies::replies;
pub use urls::urls;

use self::mutation::mutated;
use crate::servers::PATIENCE;
use crate::virtual_host::SeededRandom;

/// A function that takes any bytes, and the settings of its test.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its corpus.
    pub name: &'static str,
    /// The function. It panics if it finds a bug.
    pub run: fn(&[u8]),
    /// Words with a special meaning, to insert into inputs.
    pub words: &'static [&'static str],
    /// How many changes of the corpus are tested.
    pub changes: usize,
}

/// The directory with the corpus of a target.
#[must_use]
pub fn corpus(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target.name)
}

/// Runs `target` over its corpus and over changes of it.
///
/// The changes follow from `LEASEHOLD_FUZZ_SEED` (default: 1). Their number is
/// `LEASEHOLD_FUZZ_CHANGES`, or else the target's own number.
///
/// # Panics
///
/// If the target panics or does not return, or if there is no corpus.
pub fn check(target: &Target) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect(name));
    let seed = number("LEASEHOLD_FUZZ_SEED").unwrap_or(1);
    let changes = number("LEASEHOLD_FUZZ_CHANGES").map_or(target.changes, |changes| {
        usize::try_from(changes).expect("a number of changes fits the memory")
    });
    let corpus = kept(target);
    assert!(!corpus.is_empty(), "nothing is kept in {}", self::corpus(target).display());
    let runner = Runner::start(target);
    for (name, input) in &corpus {
        runner.run(name, input);
    }
    let inputs: Vec<_> = corpus.into_iter().map(|(_, input)| input).collect();
    let mut random = SeededRandom::new(seed);
    for number in 0..changes {
        let input = mutated(&mut random, &inputs, target.words);
        runner.run(&format!("change {number} of LEASEHOLD_FUZZ_SEED={seed}"), &input);
    }
}

/// The corpus, sorted by name.
fn kept(target: &Target) -> Vec<(String, Vec<u8>)> {
    let directory = corpus(target);
    let entries = std::fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("no corpus in {}: {error}", directory.display()));
    let mut kept: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("the corpus can be listed").path();
            (path.display().to_string(), std::fs::read(&path).expect("the corpus can be read"))
        })
        .collect();
    kept.sort();
    kept
}

/// A thread that runs the target, so that a hang can be noticed.
struct Runner {
    target: &'static str,
    inputs: mpsc::Sender<Vec<u8>>,
    ends: mpsc::Receiver<bool>,
}

impl Runner {
    fn start(target: &Target) -> Self {
        let (inputs, input) = mpsc::channel::<Vec<u8>>();
        let (end, ends) = mpsc::channel();
        let run = target.run;
        std::thread::spawn(move || {
            for input in input {
                let ended = catch_unwind(AssertUnwindSafe(|| run(&input)));
                if end.send(ended.is_ok()).is_err() {
                    return;
                }
            }
        });
        Self { target: target.name, inputs, ends }
    }

    fn run(&self, name: &str, input: &[u8]) {
        self.inputs.send(input.to_vec()).expect("the thread lives as long as this");
        let how = match self.ends.recv_timeout(PATIENCE) {
            Ok(true) => return,
            Ok(false) => "panics",
            Err(_) => "does not return",
        };
        let file = std::env::temp_dir().join(format!("{}-failed", self.target));
        let kept = std::fs::write(&file, input).map_or_else(
            |error| error.to_string(),
            |()| format!("the input is in {}, keep it in the corpus", file.display()),
        );
        panic!(
            "`{}` {how} on {name}; {kept}; it is b\"{}\"",
            self.target,
            input[..input.len().min(2_000)].escape_ascii()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(run: fn(&[u8])) -> Target {
        Target { name: "names", run, words: &[], changes: 0 }
    }

    #[test]
    #[should_panic(expected = "`names` panics on")]
    fn a_panic_is_told_with_its_input() {
        Runner::start(&target(|input| assert_ne!(input, b"x"))).run("one", b"x");
    }

    #[test]
    fn each_target_has_a_corpus() {
        assert!(!kept(&target(|_| ())).is_empty());
    }
}
