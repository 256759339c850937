//! The messages for a person who waits: the holder, since when, why, and the place in line.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::core::Moment;
use leasehold::host::{Host, SystemHost};
use leasehold::{Client, Snapshot};
use serde_json::json;

use crate::duration::human;
use crate::exit::{only, unnamed};
use crate::log;
use crate::settings::Settings;
use crate::talk::{Level, Talk};
use crate::view::{self, LockObject};

/// How long we wait before the first message, so that uncontended use prints nothing.
const SILENT_FOR: Duration = Duration::from_millis(300);
/// How often we inspect the lock. An inspection takes two requests, and the wait itself one request
/// each second. More inspections by a thousand waiters would keep a server busy.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often we inspect the lock while the store does not answer.
const LOOK_EVERY_IN_TROUBLE: Duration = Duration::from_secs(2);
/// How often, and how many times, we look for our own place at first.
const PLACE_LOOK_EVERY: Duration = Duration::from_millis(100);
const PLACE_LOOKS: usize = 10;
/// How often a log gets a line although nothing changed.
const REPEAT_EVERY: Duration = Duration::from_secs(30);
/// How often the line on a terminal is updated.
const TICK: Duration = Duration::from_secs(1);

/// Tells a person about the wait for one lock, or for several.
pub(crate) struct WaitMessage<'a> {
    client: &'a Client,
    names: &'a [String],
    /// The store, for messages that name a command line.
    settings: &'a Settings,
    limit: Option<Duration>,
    talk: &'a Talk,
    began: Moment,
    /// The token that was in the way, or `None` for a quarantine, and when we reported it.
    said: Option<(Option<Vec<u8>>, Moment)>,
    position: Option<usize>,
    status_shown: bool,
    /// Whether we reported that the store does not answer.
    troubled: bool,
}

impl<'a> WaitMessage<'a> {
    /// Messages for a wait that begins now.
    pub(crate) fn new(
        client: &'a Client,
        names: &'a [String],
        limit: Option<Duration>,
        settings: &'a Settings,
        talk: &'a Talk,
    ) -> Self {
        Self {
            client,
            names,
            settings,
            limit,
            talk,
            began: SystemHost.now(),
            said: None,
            position: None,
            status_shown: false,
            troubled: false,
        }
    }

    /// Writes messages for as long as it is polled.
    pub(crate) async fn run(&mut self) -> std::convert::Infallible {
        tokio::time::sleep(SILENT_FOR).await;
        loop {
            self.look().await;
            let looked = SystemHost.now();
            while SystemHost.now() < looked + self.look_every() {
                self.refresh();
                tokio::time::sleep(TICK).await;
                // The wait itself may have failed. Only another request can tell that the trouble
                // is over.
                if let Some(cause) = log::current_trouble() {
                    self.tell_trouble(Some(cause));
                }
            }
        }
    }

    const fn look_every(&self) -> Duration {
        if self.troubled { LOOK_EVERY_IN_TROUBLE } else { LOOK_EVERY }
    }

    /// Finds out who holds the lock, and reports it.
    async fn look(&mut self) {
        for _ in 0..PLACE_LOOKS {
            let Some((name, seen)) = self.see().await else { return };
            self.position = self.place_in(&seen);
            // Look again until our own place appears. On a busy machine it comes a little later,
            // and a log gets only one line, which should name it. A quarantined store gives no
            // places.
            let is_quarantined = view::in_the_way(&seen).is_some();
            if self.position.is_some() || self.said.is_some() || is_quarantined {
                return self.tell(name, &seen);
            }
            tokio::time::sleep(PLACE_LOOK_EVERY).await;
        }
        // The store shows no place for us, so report the rest.
        if let Some((name, seen)) = self.see().await {
            self.tell(name, &seen);
        }
    }

    /// Our place in the line of a lock.
    fn place_in(&self, seen: &Snapshot) -> Option<usize> {
        let us = self.client.id();
        let mut waiters = (1..).zip(&seen.waiters);
        waiters.find_map(|(position, it)| (it.id.as_ref() == Some(&us)).then_some(position))
    }

    /// Whether a lock keeps us waiting: another client has it, or the store is quarantined.
    fn is_in_the_way(&self, seen: &Snapshot) -> bool {
        match seen.holders.first() {
            Some(holder) => {
                holder.client.as_ref().is_none_or(|client| client.id != self.client.id())
            }
            None => view::in_the_way(seen).is_some(),
        }
    }

    /// Asks the store, and reports when it stops answering and when it answers again. Returns the
    /// lock that we wait for. Of several, that is the one with our place in its line, else the
    /// first that is not free and not ours.
    async fn see(&mut self) -> Option<(&'a str, Snapshot)> {
        let mut waited_for = None;
        // The wait can fail while an inspection works, since a process that keeps the file locked
        // does not block readers.
        let mut trouble = log::current_trouble();
        for name in self.names {
            let seen = match self.client.inspect(name).await {
                Ok(seen) => seen,
                Err(error) => {
                    waited_for = None;
                    // A client that may wait is not always allowed to inspect.
                    if error.kind() != ErrorKind::Denied {
                        trouble = Some(unnamed(&error));
                    }
                    break;
                }
            };
            if self.names.len() == 1 || self.place_in(&seen).is_some() {
                waited_for = Some((&**name, seen));
                break;
            }
            if waited_for.is_none() && self.is_in_the_way(&seen) {
                waited_for = Some((name, seen));
            }
        }
        self.tell_trouble(trouble);
        waited_for
    }

    fn tell_trouble(&mut self, trouble: Option<String>) {
        if self.troubled == trouble.is_some() {
            return;
        }
        self.troubled = trouble.is_some();
        self.clear();
        if let Some(cause) = trouble {
            let text =
                format!("the store does not answer: {cause}; not acquired yet, still waiting");
            self.talk.notice(Level::Warning, "store-silent", only(self.names), &text);
        } else {
            let text = "the store answers again; still waiting";
            self.talk.notice(Level::Info, "store-answers", only(self.names), text);
        }
    }

    fn tell(&mut self, name: &str, seen: &Snapshot) {
        let now = SystemHost.now();
        let in_the_way = match (seen.holders.first(), &seen.quarantine) {
            (Some(holder), _) => {
                // Compare the ids of the clients, since two containers may have the same host name
                // and pid.
                let us = self.client.id();
                if holder.client.as_ref().is_some_and(|client| client.id == us) {
                    return; // It was handed to us just now.
                }
                Some(holder.token.clone())
            }
            (None, Some(_)) => None,
            (None, None) => return,
        };
        let due = match &self.said {
            None => true,
            Some((before, _)) if *before != in_the_way => true,
            Some((_, at)) => !self.talk.on_terminal() && now.since(*at) >= REPEAT_EVERY,
        };
        if !due {
            return;
        }
        self.said = Some((in_the_way, now));
        self.clear();
        self.say_held(name, seen, now.since(self.began));
    }

    /// Reports the holder of the lock.
    fn say_held(&self, name: &str, seen: &Snapshot, waited: Duration) {
        if self.talk.is_json() {
            self.talk.object(
                Level::Info,
                "waiting",
                json!({
                    "name": name,
                    "position": self.position,
                    "waited_ms": view::millis(waited),
                    "lock": LockObject::new(name, seen),
                }),
            );
        } else if let Some(card) = view::card(name, seen, SystemHost.wall(), self.position) {
            let words = self.settings.words(name);
            let way_out = view::is_idle(seen).then(|| view::way_out(&words));
            let lines: Vec<_> = [card].into_iter().chain(way_out).collect();
            self.talk.lines(Level::Info, &lines.join("\n"));
        }
    }

    fn refresh(&mut self) {
        if self.said.is_none() || !self.talk.on_terminal() {
            return;
        }
        let waited = human(SystemHost.now().since(self.began));
        let limit = self.limit.map(|limit| format!(" of {}", human(limit))).unwrap_or_default();
        let position = self.position.map(|at| format!(", you are #{at}")).unwrap_or_default();
        self.talk.status(&format!("waiting for {waited}{limit}{position} [Ctrl-C gives up]"));
        self.status_shown = true;
    }

    /// Clears the status line of the terminal. Returns whether there was one.
    pub(crate) fn clear(&mut self) -> bool {
        let was_shown = std::mem::take(&mut self.status_shown);
        if was_shown {
            self.talk.status("");
        }
        was_shown
    }
}
