//! `leasehold ls [PATTERN]`: lists locks that are held or waited for.

use std::io::IsTerminal as _;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use leasehold::core::WallTime;
use leasehold::host::{Host as _, SystemHost};
use leasehold::store::{Quarantine, Stopped};
use leasehold::{Client, Error, ErrorKind, Identity, Key, Snapshot};
use serde_json::json;

use super::Context;
use crate::args::Ls;
use crate::duration::{self, human};
use crate::escape::escape;
use crate::exit::{Exit, Failure, unnamed};
use crate::output::{
    can_overwrite, clock, columns, json_line, object, print, refuse_without_reader, rfc3339,
};
use crate::talk::Level;
use crate::view::table::{COLUMNS, Row, row, table};
use crate::view::{self, LockObject};

/// The pause between two listings if none is given, as the help of `--watch` says too.
const WATCH_EVERY: Duration = Duration::from_secs(2);

/// The shortest pause between two listings.
const WATCH_EVERY_MIN: Duration = Duration::from_millis(100);

/// How many locks are looked at side by side.
const LOOKS_MAX: usize = 16;

/// Lists locks: as a table, or as one JSON object per line.
pub(crate) async fn ls(context: &Context, args: &Ls) -> Result<Exit, Failure> {
    let is_bare = args.watch == Some(WATCH_EVERY);
    if is_bare && duration::parse(&args.pattern).is_ok() {
        let text = format!(
            "`{0}` would be read as a pattern, not as an interval; write `--watch={0}`",
            escape(&args.pattern)
        );
        return Err(Failure::new(Exit::USAGE, "usage", text));
    }
    if let Some(every) = args.watch.filter(|every| *every < WATCH_EVERY_MIN) {
        let text = format!(
            "--watch={}: the shortest interval is {}",
            human(every),
            human(WATCH_EVERY_MIN)
        );
        return Err(Failure::new(Exit::USAGE, "usage", text));
    }
    let client = context.settings.connect_to_existing(Identity::anonymous(), &context.talk).await?;
    if let Some(every) = args.watch {
        return Err(watch(context, args, &client, every).await);
    }
    let mut list = List::default();
    list.look(&client, args, context.json).await?;
    list.say_what_is_missing(context);
    list.say_quarantine(context);
    print(&list.text(context.json))?;
    let says_nothing = list.is_empty() && list.is_complete() && list.quarantine.is_none();
    if says_nothing && std::io::stdout().is_terminal() && !context.json {
        context.talk.notice(Level::Info, "nothing-held", None, "no locks are held");
    }
    Ok(Exit::OK)
}

/// Lists the locks again and again, until a failure that waiting cannot cure.
async fn watch(context: &Context, args: &Ls, client: &Client, every: Duration) -> Failure {
    let is_screen = can_overwrite(&std::io::stdout()) && !context.json;
    let mut shown: Option<List> = None;
    let mut is_silent = false;
    loop {
        let mut list = List::default();
        match list.look(client, args, context.json).await {
            Ok(()) => {
                is_silent = false;
                if shown.as_ref().is_none_or(|before| before.is_complete()) {
                    list.say_what_is_missing(context);
                }
                if shown.as_ref().is_none_or(|before| before.quarantine.is_none()) {
                    list.say_quarantine(context);
                }
                let is_news = shown.as_ref().is_none_or(|before| before.who != list.who);
                let printed = match (is_screen, is_news) {
                    (true, _) => print(&list.screen(every)),
                    (false, true) => print(&list.batch(context.json)),
                    (false, false) => Ok(()),
                };
                if let Err(failure) = printed {
                    return failure;
                }
                shown = Some(list);
            }
            Err(failure) if shown.is_some() && may_pass(&failure) => {
                if !std::mem::replace(&mut is_silent, true) {
                    let text = format!("{}; looking again every {}", failure, view::span(every));
                    context.talk.notice(Level::Warning, "store-silent", None, &text);
                }
            }
            Err(failure) => return failure,
        }
        tokio::time::sleep(every).await;
        // Without this check, we would notice only at the next change that the reader is gone.
        if let Err(failure) = refuse_without_reader() {
            return failure;
        }
    }
}

fn may_pass(failure: &Failure) -> bool {
    [ErrorKind::Unavailable, ErrorKind::Unknown].iter().any(|kind| failure.kind == kind.as_str())
}

/// The locks that one listing found.
#[derive(Debug, Default)]
struct List {
    rows: Vec<Row>,
    objects: String,
    /// The name, the state and the owners of each lock.
    who: Vec<(String, &'static str, Vec<Vec<u8>>)>,
    /// Why the listing may be incomplete.
    stopped: Option<Stopped>,
    /// Keys that look like locks and hold something else: the name, and what the store says.
    skipped: Vec<(String, String)>,
    /// How many locks `--older-than` left out, because the store does not know since when they are
    /// held.
    ageless: usize,
    /// Why the store grants nothing new.
    quarantine: Option<Quarantine>,
}

impl List {
    async fn look(&mut self, client: &Client, args: &Ls, json: bool) -> Result<(), Failure> {
        let listing = client.list(&args.pattern).await;
        let listing = listing.map_err(|error| may_not_list(error, &args.pattern))?;
        self.stopped = listing.stopped();
        let names = listing.names().iter().map(Key::as_str);
        let looks = names.map(async |name| (name, client.inspect(name).await));
        let mut looks = stream::iter(looks).buffered(LOOKS_MAX);
        while let Some((name, seen)) = looks.next().await {
            let seen = match seen {
                Ok(seen) => seen,
                // The key holds data of another type. Go on, since it hides no other lock.
                Err(error) if error.kind() == ErrorKind::Config => {
                    self.skipped.push((name.to_owned(), unnamed(&error)));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            self.quarantine = self.quarantine.or(seen.quarantine);
            // The lock may have been released since it was listed.
            if view::is_unused(&seen) {
                continue;
            }
            if let Some(than) = args.older_than {
                match age(&seen, SystemHost.wall()) {
                    Some(age) if age >= than => {}
                    _ if seen.holders.iter().any(|holder| holder.since.is_none()) => {
                        self.ageless += 1;
                        continue;
                    }
                    _ => continue,
                }
            }
            let owners = seen.holders.iter().map(|holder| holder.token.clone()).collect();
            self.who.push((name.to_owned(), view::state(&seen), owners));
            if json {
                self.objects.push_str(&json_line(&LockObject::new(name, &seen))?);
            } else {
                self.rows.push(row(name, &seen, SystemHost.wall()));
            }
        }
        if self.is_empty() {
            // A store that forgot its locks lists none. Inspect one name to learn of a quarantine.
            // It must match, since the user may have rights to such names only.
            let name = args.pattern.replace(['*', '?'], "x");
            let seen = client.inspect(&name).await.ok();
            let quarantine = seen.and_then(|seen| seen.quarantine);
            self.quarantine = self.quarantine.or(quarantine);
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.stopped.is_none() && self.skipped.is_empty() && self.ageless == 0
    }

    /// Warns about an incomplete listing.
    fn say_what_is_missing(&self, context: &Context) {
        for (name, text) in &self.skipped {
            context.talk.notice(Level::Warning, "list-skipped", Some(name), text);
        }
        if let Some(stopped) = self.stopped {
            context.talk.notice(Level::Warning, "list-stopped", None, &stopped.to_string());
        }
        if self.ageless > 0 {
            let text = format!(
                "{} left out, since the store does not know for how long they have been held; `ls` \
                 without --older-than shows them",
                locks(self.ageless)
            );
            context.talk.notice(Level::Warning, "list-ageless", None, &text);
        }
    }

    /// Warns that the store may have forgotten locks.
    fn say_quarantine(&self, context: &Context) {
        if let Some(quarantine) = &self.quarantine {
            let text = format!(
                "{}; `ls` does not show locks that the store forgot",
                view::reason(quarantine)
            );
            context.talk.notice(Level::Warning, "quarantined", None, &text);
        }
    }

    fn is_empty(&self) -> bool {
        self.who.is_empty()
    }

    /// The objects for programs, or a table for people. Empty if there are no locks, since a script
    /// could take a heading for a lock.
    fn text(&self, json: bool) -> String {
        if json || self.is_empty() {
            return self.objects.clone();
        }
        let heads = [COLUMNS.map(str::to_owned)];
        table(&[&heads[..], &self.rows].concat(), columns(rustix::stdio::stdout()))
    }

    /// A listing that replaces the one on the terminal.
    fn screen(&self, every: Duration) -> String {
        let now = SystemHost.wall();
        let (count, every) = (self.who.len(), view::span(every));
        let text = self.text(false);
        format!("\x1b[H\x1b[2J{}, every {every}: {}\n{text}", clock(now, now), locks(count))
    }

    /// A listing to print after the previous one, with a heading that separates them.
    fn batch(&self, json: bool) -> String {
        let (now, count) = (SystemHost.wall(), self.who.len());
        let head = if json {
            object("listing", json!({ "time": rfc3339(now), "locks": count }))
        } else {
            format!("{}: {}\n", clock(now, now), locks(count))
        };
        head + &self.text(json)
    }
}

/// The failure of a listing, with advice for a user who may only use some names.
fn may_not_list(error: Error, pattern: &str) -> Failure {
    let is_denied = error.kind() == ErrorKind::Denied;
    let failure = Failure::from(error);
    if !is_denied || !pattern.starts_with('*') {
        return failure;
    }
    let message = format!(
        "{}; a user who may only use names with some prefix gives a pattern, as in `leasehold ls \
         'app:*'`, or a --namespace",
        failure.message
    );
    Failure { message, ..failure }
}

fn locks(count: usize) -> String {
    if count == 1 { "1 lock".to_owned() } else { format!("{count} locks") }
}

/// For how long the lock has been held, if the store knows that.
fn age(seen: &Snapshot, now: WallTime) -> Option<Duration> {
    let age = |since: WallTime| now.as_unix_micros().saturating_sub(since.as_unix_micros());
    let ages = seen.holders.iter().filter_map(|holder| holder.since).map(age);
    ages.max().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use leasehold::store::Holder;

    use super::*;

    #[test]
    fn a_lock_that_several_share_is_as_old_as_its_oldest_holder() {
        let now = WallTime::from_unix_micros(100_000_000);
        let held_since = |seconds: &[u64]| {
            let mut seen = Snapshot::default();
            for since in seconds {
                let mut holder = Holder::new("token");
                holder.since = Some(WallTime::from_unix_micros(since * 1_000_000));
                seen.holders.push(holder);
            }
            seen
        };
        for (since, expected) in [
            (&[90][..], Some(10)),
            (&[50, 91], Some(50)),
            (&[91, 50], Some(50)),
            (&[101], Some(0)),
            (&[], None),
        ] {
            let expected = expected.map(Duration::from_secs);
            assert_eq!(age(&held_since(since), now), expected, "{since:?}");
        }
    }
}
