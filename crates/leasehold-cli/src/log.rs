//! The log of the library, on stderr.

use std::io::{self, IsTerminal as _, Write};

use serde_json::json;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::exit::Failure;

/// Shows the log that `-v` or `LEASEHOLD_LOG` ask for; nothing by default, since every event that
/// matters to a person is a message of ours.
pub(crate) fn start(verbose: u8, json: bool) -> Result<(), Failure> {
    let level = match verbose {
        0 => LevelFilter::OFF,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let wanted = std::env::var("LEASEHOLD_LOG").ok().filter(|text| !text.is_empty());
    let filter = match (&wanted, verbose) {
        (Some(text), 0) => EnvFilter::try_new(text).map_err(|error| {
            Failure::config(format!(
                "LEASEHOLD_LOG is not understood: {error}; write a level such as `debug`"
            ))
        })?,
        _ => EnvFilter::default().add_directive(level.into()),
    };
    if wanted.is_none() && verbose == 0 {
        return Ok(());
    }
    let log = tracing_subscriber::fmt().with_env_filter(filter);
    if json {
        log.with_ansi(false).without_time().with_writer(|| Lines).init();
    } else {
        log.with_ansi(io::stderr().is_terminal()).with_writer(io::stderr).init();
    }
    Ok(())
}

/// Turns each event into a JSON line, so that stderr stays one kind of thing.
struct Lines;

impl Write for Lines {
    /// Called once for each event, with all of it.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let object = json!({ "schema": "leasehold.v1.log", "message": text.trim_end() });
        io::stderr().write_all(format!("{object}\n").as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
