//! `--wait-store`: retries while the store cannot be reached.

use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host as _, SystemHost};
use leasehold::{Error, ErrorKind};

use crate::duration::human;
use crate::exit::unnamed;
use crate::talk::{Level, Talk};

/// The first and the longest pause between two tries; each is twice the one before.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// How long to retry a store that cannot be reached.
#[derive(Debug)]
pub(crate) struct Patience {
    span: Duration,
    until: Moment,
    pause: Duration,
    told: bool,
}

impl Patience {
    /// Retries for `span` from now; without a span, not at all.
    pub(crate) fn new(span: Option<Duration>) -> Self {
        let span = span.unwrap_or_default();
        Self { span, until: SystemHost.now() + span, pause: PAUSES.0, told: false }
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
        let may_help = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown);
        if !may_help || now >= self.until {
            return false;
        }
        if !std::mem::replace(&mut self.told, true) {
            let (cause, span) = (unnamed(error), human(self.span));
            let text = format!(
                "the store cannot be used yet: {cause}; the lock is not acquired, trying for {span}"
            );
            talk.notice(Level::Warning, "store-silent", name, &text);
        }
        tokio::time::sleep(self.pause.min(self.until.since(now))).await;
        self.pause = (self.pause * 2).min(PAUSES.1);
        true
    }
}
