//! `--wait-store`: trying again while the store cannot be asked.

use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host as _, SystemHost};
use leasehold::{Error, ErrorKind};

use crate::duration::human;
use crate::exit::unnamed;
use crate::talk::{Level, Talk};

/// The first and the longest pause between two tries; each is twice the one before.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// How long a store that cannot be asked is tried again.
#[derive(Debug)]
pub(crate) struct Patience {
    span: Duration,
    until: Moment,
    pause: Duration,
    told: bool,
}

impl Patience {
    /// For `span` from now; for no time at all without one.
    pub(crate) fn new(span: Option<Duration>) -> Self {
        let span = span.unwrap_or_default();
        Self { span, until: SystemHost.now() + span, pause: PAUSES.0, told: false }
    }

    /// Waits before the next try, or says that there is none: the time is over, or trying again
    /// cannot help.
    pub(crate) async fn try_again(&mut self, error: &Error, name: &str, talk: &Talk) -> bool {
        let now = SystemHost.now();
        let may_help = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown);
        if !may_help || now >= self.until {
            return false;
        }
        if !std::mem::replace(&mut self.told, true) {
            let (cause, span) = (unnamed(error), human(self.span));
            let text =
                format!("the store does not answer: {cause}; not acquired yet, trying for {span}");
            talk.notice(Level::Warning, "store-silent", Some(name), &text);
        }
        tokio::time::sleep(self.pause.min(self.until.since(now))).await;
        self.pause = (self.pause * 2).min(PAUSES.1);
        true
    }
}
