//! The log on stderr, if the user wants it, and its last warning for use in our messages.

use std::ffi::OsString;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host as _, SystemHost};
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};

use crate::environment::LOG;
use crate::exit::Failure;
use crate::output::{escape, object, rfc3339};
use crate::stderr;

/// Shows the log that `-v` or `LEASEHOLD_LOG` asks for. The default is nothing, since every event
/// that matters to a person is already one of our messages.
pub(crate) fn start(verbose: u8, json: bool) -> Result<(), Failure> {
    let level = match verbose {
        0 => LevelFilter::OFF,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let wanted = std::env::var_os(LOG).map(OsString::into_string).transpose();
    let wanted = wanted.map_err(|_| {
        let message = "is not valid UTF-8; nothing was done; write a level such as `debug`";
        Failure::config(format!("{LOG} {message}"))
    })?;
    let wanted = wanted.filter(|text| !text.is_empty());
    let filter = match (&wanted, verbose) {
        (Some(text), 0) => match text.parse() {
            Ok(level) => of_level(level),
            Err(_) if is_one_word(text) => {
                return Err(Failure::config(format!(
                    "LEASEHOLD_LOG=`{text}` is not a level; nothing was done; write one of \
                     `error`, `warn`, `info`, `debug` and `trace`, or `{text}=debug` if that is a \
                     crate"
                )));
            }
            Err(_) => EnvFilter::try_new(text).map_err(|error| {
                Failure::config(format!(
                    "LEASEHOLD_LOG is not understood: {error}; write a level such as `debug`"
                ))
            })?,
        },
        _ => of_level(level),
    };
    let mut layers = vec![Keep.with_filter(LevelFilter::WARN).boxed()];
    if wanted.is_some() || verbose > 0 {
        layers.push(Shown { json }.with_filter(filter).boxed());
    }
    tracing_subscriber::registry().with(layers).init();
    Ok(())
}

/// Whether a text is one word that does not begin like our crates. As a filter it would name a
/// crate, but a misspelt level is likelier.
fn is_one_word(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric()) && !text.starts_with("leasehold")
}

/// Shows everything up to a level, and from `debug` on also each renewal. That is one line every
/// third of the ttl, since the command holds one lock. A program may hold thousands.
fn of_level(level: LevelFilter) -> EnvFilter {
    let filter = EnvFilter::default().add_directive(level.into());
    if level == LevelFilter::DEBUG {
        filter.add_directive(RENEWALS.parse().expect("a filter"))
    } else {
        filter
    }
}

const RENEWALS: &str = "leasehold::lock=trace";

/// The last failure of the store that the library survived, and when.
static TROUBLE: Mutex<Option<(Moment, String)>> = Mutex::new(None);

/// Why the store could not be reached, if that happened after `since`.
pub(crate) fn trouble_since(since: Moment) -> Option<String> {
    let trouble = TROUBLE.lock().expect("it is only copied").clone();
    trouble.filter(|(at, _)| *at >= since).map(|(_, cause)| cause)
}

/// A failure counts as current for this long, since requests are at most about 2 s apart, and an
/// answer takes a while.
pub(crate) const TROUBLE_LASTS: Duration = Duration::from_secs(4);

/// Why the store cannot be reached, as far as we know.
pub(crate) fn current_trouble() -> Option<String> {
    trouble_since(SystemHost.now().minus(TROUBLE_LASTS))
}

/// Keeps warnings of the library, so that our messages can give the reason.
struct Keep;

impl<S: Subscriber> Layer<S> for Keep {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut cause = Cause::default();
        event.record(&mut cause);
        let is_ours = event.metadata().target().starts_with("leasehold");
        if let (true, Some(cause)) = (is_ours, cause.unnamed()) {
            *TROUBLE.lock().expect("it is only copied") = Some((SystemHost.now(), cause));
        }
    }
}

/// The fields `error` and `key` of an event.
#[derive(Default)]
struct Cause {
    error: Option<String>,
    key: Option<String>,
}

impl Cause {
    /// The error without the leading name of the lock, since our messages name it.
    fn unnamed(self) -> Option<String> {
        let error = self.error?;
        let head = self.key.map(|key| format!("`{}`: ", key.escape_debug())).unwrap_or_default();
        Some(error.strip_prefix(&head).map(str::to_owned).unwrap_or(error))
    }
}

impl Visit for Cause {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "error" => self.error = Some(format!("{value:?}")),
            "key" => self.key = Some(format!("{value:?}")),
            _ => {}
        }
    }
}

/// Writes each event as a line: a JSON object, or text.
struct Shown {
    json: bool,
}

impl<S: Subscriber> Layer<S> for Shown {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut seen = Seen::default();
        event.record(&mut seen);
        let (level, target) = (event.metadata().level(), event.metadata().target());
        let line = if self.json {
            let level = level.as_str().to_ascii_lowercase();
            let Seen { message, fields } = seen;
            let fields = Value::Object(fields);
            let time = rfc3339(SystemHost.wall());
            object(
                "log",
                json!({
                    "time": time, "level": level, "target": target,
                    "message": message, "fields": fields,
                }),
            )
        } else {
            let fields: String = seen.fields.iter().map(shown).collect();
            let (time, message) = (rfc3339(SystemHost.wall()), escape(&seen.message));
            format!("{time} {level:>5} {target}: {message}{fields}\n")
        };
        stderr::write(&line);
    }
}

/// A field as ` name=value`.
fn shown((name, value): (&String, &Value)) -> String {
    match value {
        Value::String(text) => format!(" {name}={}", escape(text)),
        value => format!(" {name}={value}"),
    }
}

/// The content of an event.
#[derive(Default)]
struct Seen {
    message: String,
    fields: Map<String, Value>,
}

impl Seen {
    fn add(&mut self, field: &Field, value: Value) {
        self.fields.insert(field.name().to_owned(), value);
    }
}

impl Visit for Seen {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.add(field, text.into());
        }
    }
}
