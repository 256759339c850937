//! Every command line is either understood or refused with a message.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use leasehold_testkit::fuzz::{Target, check};

use crate::args::{Command, Parsed, parse};
use crate::duration;
use crate::exit::{Exit, only};

/// Parses one argument from each line, and runs nothing.
fn arguments(data: &[u8]) {
    let lines = data.split(|byte| *byte == b'\n').map(|line| OsString::from_vec(line.to_vec()));
    match parse(std::iter::once("leasehold".into()).chain(lines)) {
        Ok(Parsed::Invocation(invocation)) => {
            let _shown = format!("{invocation:?}");
            match invocation.command {
                Command::Run(run) => {
                    assert!(!run.guarded.command.is_empty(), "there is something to run");
                    assert!(!run.names.is_empty(), "there is something to lock");
                    let ttl = run.guarded.ttl.ttl(only(&run.names));
                    let _read = (run.take.wait(), run.take.taken(), ttl);
                }
                Command::Elect(elect) => {
                    assert!(!elect.guarded.command.is_empty(), "there is something to run");
                    let _read = elect.guarded.ttl.ttl(Some(&elect.name));
                }
                Command::Acquire(acquire) => {
                    let _read = (acquire.take.wait(), acquire.ttl.ttl(Some(&acquire.name)));
                }
                _ => {}
            }
        }
        Ok(Parsed::Text(text, _)) => assert!(text.contains("leasehold"), "{text}"),
        Err(failure) => {
            assert_eq!(failure.exit, Exit::USAGE, "{}", failure.message);
            assert!(!failure.message.is_empty());
        }
    }
    // A span of time can appear in any argument.
    let text = String::from_utf8_lossy(data);
    text.lines().for_each(|line| drop(duration::parse(line)));
}

#[test]
fn any_command_line_is_understood_or_refused() {
    let words = &[
        "run",
        "elect",
        "acquire",
        "unlock",
        "--",
        "\n--\n",
        "\n-n\n",
        "\n--ttl\n",
        "\n--serve\n",
        "127.0.0.1:80",
        "\n-w\n",
        "1m30s",
        "0.5",
        "1h1h",
        "999999999999999999999d",
        "--url",
        "--json",
        "-E\n",
        "\n-qv\n",
        "=",
    ];
    check(&Target { name: "arguments", run: arguments, words, changes: 1_500 });
}
