//! A subscriber of `tracing` for tests that only want events of the library.

use std::fmt;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Metadata, Subscriber};

/// The warnings of the library on this thread, until the guard is dropped.
pub(crate) fn warnings() -> (DefaultGuard, UnboundedReceiver<String>) {
    let (sender, warnings) = unbounded_channel();
    let telling = OnEvent::warning(move |event| {
        let mut text = String::new();
        event.record(&mut |field: &Field, value: &dyn fmt::Debug| {
            text.push_str(&format!("{}: {value:?} ", field.name()));
        });
        // The end of the test may be the reason for a warning.
        let _gone = sender.send(text);
    });
    (set_default(telling), warnings)
}

/// Calls a function with each event that passes a filter.
pub(crate) struct OnEvent<F> {
    is_wanted: fn(&Metadata<'_>) -> bool,
    call: F,
}

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> OnEvent<F> {
    /// Calls it with every event of the library.
    pub(crate) fn any(call: F) -> Self {
        Self { is_wanted: |_| true, call }
    }

    /// Calls it with every warning of the library.
    pub(crate) fn warning(call: F) -> Self {
        Self { is_wanted: |metadata| *metadata.level() == tracing::Level::WARN, call }
    }
}

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Subscriber for OnEvent<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("leasehold") && (self.is_wanted)(metadata)
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        (self.call)(event);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
