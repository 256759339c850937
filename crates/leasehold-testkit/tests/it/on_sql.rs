//! Tests that the stores on SQL servers share, in real time.
#![allow(clippy::disallowed_methods, reason = "servers live in real time, on threads of their own")]

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use leasehold::store::postgres::Migrated;
use leasehold::{Client, Error, ErrorKind, Guard, Release};

use crate::real_time::{client, until};

/// The rows that a statement returns.
type Rows = Vec<Vec<String>>;

/// Makes two clients pass a lock back and forth, and asserts that no poll wakes them. `places`
/// counts the waiters. Returns the last guard.
pub(crate) async fn a_release_wakes_the_waiter(
    url: &str,
    rounds: u32,
    places: impl Fn() -> Rows,
) -> Guard {
    let (one, other) = (client(url).await, client(url).await);
    let (one, other) = (one.mutex("a"), other.mutex("a"));
    let began = Instant::now();
    let mut guard = one.lock().await.expect("free");
    for round in 0..rounds {
        let next = if round % 2 == 0 { other.clone() } else { one.clone() };
        let waiting = tokio::spawn(async move { next.lock().await });
        until("it waits", async || places() == [["1"]]).await;
        drop(guard);
        guard = waiting.await.expect("no panic").expect("its turn");
    }
    // Waiters ask for the key itself once a second.
    let each = began.elapsed() / rounds;
    assert!(each < Duration::from_millis(900), "{each:?} for each hand-over");
    guard
}

/// Tries all locks at the same time. Another transaction keeps the row of one lock locked, so only
/// that request fails. Returns the other locks.
pub(crate) async fn try_beside_a_kept_row(
    client: &Client,
    names: &[String],
    kept: &str,
) -> Vec<Guard> {
    let answers = join_all(names.iter().map(async |name| client.mutex(name).try_lock().await));
    let mut guards = Vec::new();
    for (name, answer) in names.iter().zip(answers.await) {
        match answer {
            Ok(guard) => {
                assert_ne!(name, kept, "its row is kept");
                guards.push(guard.unwrap_or_else(|| panic!("{name}: nobody else asks")));
            }
            // Requests that share its message may wait for longer than their limit.
            Err(error) => {
                let is_open = matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable);
                assert!(is_open, "{name}: {error}");
            }
        }
    }
    guards
}

/// Another transaction, the keeper, keeps the rows of the first locks locked.
pub(crate) async fn kept_rows_cost_no_other_lock_its_renewals<K>(
    url: &str,
    names: &[String],
    kept: usize,
    keeper: impl AsyncFnOnce(Vec<&str>) -> K,
) {
    let client = client(url).await;
    let mutex = |name: &String| client.mutex(name).ttl(Duration::from_secs(10));
    let guards = join_all(names.iter().map(async |name| mutex(name).lock().await)).await;
    let guards: Vec<_> = guards.into_iter().map(|guard| guard.expect("free")).collect();
    let (kept, others) = guards.split_at(kept);
    let _keeper = keeper(kept.iter().map(Guard::name).collect()).await;
    for guard in kept {
        guard.lost().await;
    }
    assert!(others.iter().all(Guard::is_held), "each was renewed for a whole ttl");
}

/// `renew` asks for a renewal by an owner that does not have the lock.
pub(crate) async fn a_kept_row_is_an_answer_to_a_renewal<K>(
    url: &str,
    renew: impl Fn(&str) -> Rows,
    keeper: impl AsyncFnOnce() -> K,
) {
    let client = client(url).await;
    let _token = client.mutex("a").lock().await.expect("free").detach();
    assert_eq!((&*renew("a")[0][0], &*renew("b")[0][0]), ("lost", "lost"));
    let _keeper = keeper().await;
    assert_eq!((&*renew("a")[0][0], &*renew("b")[0][0]), ("kept", "lost"));
}

/// `idle` counts the idle keys.
pub(crate) async fn idle_keys_are_forgotten_by_a_client_in_use(url: &str, idle: impl Fn() -> Rows) {
    let client = client(url).await;
    let mut used = 0;
    until("they are forgotten", async || {
        used += 1;
        let guard = client.mutex(format!("in use {used}")).try_lock().await.expect("asked");
        drop(guard.expect("free"));
        idle() == [["0"]]
    })
    .await;
}

/// A database of this build, whose versions a test changes.
pub(crate) struct Versioned<'a, Migrate> {
    pub(crate) url: String,
    /// The version of this build.
    pub(crate) version: u32,
    /// The table with the versions.
    pub(crate) meta: &'a str,
    pub(crate) sql: Box<dyn Fn(&str) -> Rows + 'a>,
    /// Migrates the database of a URL.
    pub(crate) migrate: Migrate,
}

impl<Migrate: AsyncFn(&str) -> Result<Migrated, Error>> Versioned<'_, Migrate> {
    fn set(&self, versions: &str) {
        (self.sql)(&format!("UPDATE {} SET {versions}", self.meta));
    }

    /// The version of the functions, and the oldest build that they serve.
    fn versions(&self) -> Rows {
        (self.sql)(&format!("SELECT version, serves FROM {}", self.meta))
    }

    /// `ages` makes the functions those of version 1, as far as clients can tell.
    pub(crate) async fn is_refused_while_it_is_older(&self, ages: impl Fn()) {
        let ttl = Duration::from_mins(10);
        let mutex = client(&self.url).await.mutex("held").ttl(ttl);
        let held = mutex.lock().await.expect("free").detach();
        ages();
        let refused = Client::connect(&self.url).await.expect_err("older");
        assert_says(&refused, &["of version 1", "no request was sent", "leasehold migrate"]);
        let done = (self.migrate)(&self.url).await.expect("migrated");
        assert_eq!((done.before, done.version, done.serves), (Some(1), self.version, 2));
        assert_eq!(self.versions(), [[self.version.to_string().as_str(), "2"]]);
        let client = client(&self.url).await;
        assert!(client.mutex("held").try_lock().await.expect("asked").is_none());
        let released = client.lease("held", held).release().await.expect("asked");
        assert_eq!(released, Release::Released);
        let guard = client.mutex("held").lock().await.expect("free");
        guard.renew().await.expect("the function is the new one");
    }

    /// A client that is connected goes on. Only a new connection asks for the versions.
    pub(crate) async fn is_used_while_it_serves_this_build(&self) {
        self.set("version = 99");
        let guard = client(&self.url).await.mutex("a").lock().await.expect("free");
        guard.renew().await.expect("it serves this build");
        let refused = (self.migrate)(&self.url).await.expect_err("newer");
        assert_says(&refused, &["of version 99", "nothing was changed", "serve this build too"]);
        self.set("serves = 99");
        guard.renew().await.expect("its connections are open");
        let refused = Client::connect(&self.url).await.expect_err("it does not serve this build");
        assert_says(&refused, &["from version 99 on", "no request was sent", "use a newer build"]);
        let refused = (self.migrate)(&self.url).await.expect_err("newer");
        assert_says(&refused, &["nothing was changed", "use a newer build"]);
        assert_eq!(self.versions(), [["99", "99"]]);
    }
}

/// Asserts that an error is about the versions, and says all this.
#[track_caller]
pub(crate) fn assert_says(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Config, "{text}");
    assert!(parts.iter().all(|part| text.contains(part)), "{parts:?}: {text}");
}
