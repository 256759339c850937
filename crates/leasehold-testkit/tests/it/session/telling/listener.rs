//! A subscriber that keeps the spans and events that it is told.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The fields of a span or an event, as text.
pub(super) type Fields = BTreeMap<String, String>;

/// An event.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) level: Level,
    pub(super) message: String,
    pub(super) fields: Fields,
    /// The number of the span that the event is in.
    pub(super) span: Option<usize>,
}

/// A span.
#[derive(Clone, Debug, Default)]
pub(super) struct Spanned {
    pub(super) name: String,
    pub(super) fields: Fields,
    pub(super) parent: Option<usize>,
    handles: usize,
}

impl Spanned {
    pub(super) fn is_closed(&self) -> bool {
        self.handles == 0
    }
}

/// Keeps the spans and events about locks, up to a level. Clones share them.
#[derive(Clone)]
pub(super) struct Listener {
    level: Level,
    heard: Arc<Mutex<Everything>>,
}

#[derive(Default)]
struct Everything {
    spans: Vec<Spanned>,
    events: Vec<Heard>,
    inside: Vec<usize>,
}

impl Listener {
    pub(super) fn new(level: Level) -> Self {
        Self { level, heard: Arc::default() }
    }

    fn all(&self) -> MutexGuard<'_, Everything> {
        self.heard.lock().expect("no panic")
    }

    pub(super) fn spans(&self) -> Vec<Spanned> {
        self.all().spans.clone()
    }

    pub(super) fn events(&self) -> Vec<Heard> {
        self.all().events.clone()
    }

    /// The messages, in order.
    pub(super) fn messages(&self) -> Vec<String> {
        self.events().into_iter().map(|event| event.message).collect()
    }

    /// The only event with this message.
    #[track_caller]
    pub(super) fn event(&self, message: &str) -> Heard {
        let events = self.events();
        let mut found = events.iter().filter(|event| event.message == message);
        match (found.next(), found.next()) {
            (Some(event), None) => event.clone(),
            _ => panic!("not one `{message}`: {events:#?}"),
        }
    }
}

/// The fields as text.
#[derive(Default)]
struct Texts(Fields);

impl Visit for Texts {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

fn number(id: &Id) -> usize {
    usize::try_from(id.into_u64()).expect("a small number") - 1
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "leasehold::lock" && *metadata.level() <= self.level
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut all = self.all();
        let mut texts = Texts::default();
        span.record(&mut texts);
        let (name, parent) = (span.metadata().name().to_owned(), all.inside.last().copied());
        all.spans.push(Spanned { name, fields: texts.0, parent, handles: 1 });
        Id::from_u64(all.spans.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut texts = Texts::default();
        values.record(&mut texts);
        self.all().spans[number(span)].fields.extend(texts.0);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut texts = Texts::default();
        event.record(&mut texts);
        let message = texts.0.remove("message").expect("each has one");
        let mut all = self.all();
        let (level, span) = (*event.metadata().level(), all.inside.last().copied());
        all.events.push(Heard { level, message, fields: texts.0, span });
    }

    fn enter(&self, span: &Id) {
        self.all().inside.push(number(span));
    }

    fn exit(&self, span: &Id) {
        assert_eq!(self.all().inside.pop(), Some(number(span)), "spans are nested");
    }

    fn clone_span(&self, span: &Id) -> Id {
        self.all().spans[number(span)].handles += 1;
        span.clone()
    }

    fn try_close(&self, span: Id) -> bool {
        let mut all = self.all();
        let span = &mut all.spans[number(&span)];
        span.handles -= 1;
        span.is_closed()
    }
}
