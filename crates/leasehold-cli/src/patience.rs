//! `--wait-store`: retries while the store cannot be reached.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host as _, SystemHost};
use leasehold::{Error, ErrorKind};

use crate::duration::human;
use crate::exit::unnamed;
use crate::log;
use crate::talk::{Level, Talk};

/// The first and the longest pause between two tries; each is twice the one before.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// How long to retry a store that cannot be reached.
#[derive(Debug)]
pub(crate) struct Patience {
    /// How long in all, and until when. `None` means for ever.
    limit: Option<(Duration, Moment)>,
    pause: Duration,
    told: bool,
    last_failure: LastFailure,
}

/// When a try failed last. Other tasks than the trying one may look.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastFailure(Arc<Mutex<Option<Moment>>>);

impl LastFailure {
    fn note(&self, now: Moment) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    /// Whether a try failed so shortly ago that the store may still be out of reach.
    pub(crate) fn is_recent(&self) -> bool {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|last| SystemHost.now().since(last) < log::TROUBLE_LASTS)
    }
}

impl Patience {
    /// Retries for `span` from now; without a span, not at all.
    pub(crate) fn new(span: Option<Duration>) -> Self {
        let span = span.unwrap_or_default();
        Self { limit: Some((span, SystemHost.now() + span)), ..Self::endless() }
    }

    /// Retries for ever.
    pub(crate) fn endless() -> Self {
        Self { limit: None, pause: PAUSES.0, told: false, last_failure: LastFailure::default() }
    }

    /// The same patience, which also notes each failure in `last_failure`.
    pub(crate) fn noting(self, last_failure: LastFailure) -> Self {
        Self { last_failure, ..self }
    }

    /// Waits before the next try and returns `true`. Returns `false` if the time is over, or if
    /// trying again cannot help.
    pub(crate) async fn try_again(
        &mut self,
        error: &Error,
        name: Option<&str>,
        talk: &Talk,
    ) -> bool {
        let now = SystemHost.now();
        if !may_pass(error.kind()) || self.limit.is_some_and(|(_, until)| now >= until) {
            return false;
        }
        self.last_failure.note(now);
        if !std::mem::replace(&mut self.told, true) {
            let cause = unnamed(error);
            let how = match self.limit {
                Some((span, _)) => format!("trying for {}", human(span)),
                None => "still trying".to_owned(),
            };
            let text =
                format!("the store cannot be used yet: {cause}; the lock is not acquired, {how}");
            talk.notice(Level::Warning, "store-silent", name, &text);
        }
        let left = self.limit.map_or(Duration::MAX, |(_, until)| until.since(now));
        tokio::time::sleep(self.pause.min(left)).await;
        self.pause = (self.pause * 2).min(PAUSES.1);
        true
    }
}

/// Whether another try may succeed by itself. If a server fell silent in the middle of a request,
/// its outcome is unknown, and the client has released what it may have taken.
const fn may_pass(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Color;

    #[test]
    fn a_server_that_is_away_or_falls_silent_is_tried_again_and_a_refusal_is_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.expect("a runtime of one thread");
        let talk = Talk::new(false, true, Color::Never);
        for (kind, expected) in [
            (ErrorKind::Unavailable, true),
            (ErrorKind::Unknown, true),
            (ErrorKind::Config, false),
            (ErrorKind::Denied, false),
            (ErrorKind::Unsupported, false),
            (ErrorKind::WaitElapsed, false),
        ] {
            let error = Error::new(kind, "on purpose");
            let mut patience = Patience { pause: Duration::ZERO, ..Patience::endless() };
            let is_tried = runtime.block_on(patience.try_again(&error, None, &talk));
            assert_eq!(is_tried, expected, "{kind:?}");
        }
    }
}
