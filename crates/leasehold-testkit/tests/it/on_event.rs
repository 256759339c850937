//! A subscriber of `tracing` for tests that only want events of the library.

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

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
