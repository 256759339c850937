//! Text for debugging shows no secret.

use std::fmt::Debug;
use std::time::Duration;

use leasehold::{Client, Error, Guarded, MultiGuard};

#[track_caller]
fn assert_hidden(secret: &str, value: &impl Debug) {
    for text in [format!("{value:?}"), format!("{value:#?}")] {
        assert!(!text.contains(secret), "{text}");
    }
}

/// A person who reads an owner token in a log can release the lock.
#[tokio::test]
async fn text_for_debugging_shows_no_owner_token() -> Result<(), Error> {
    let client = Client::connect("memory:").await?;
    let guard = client.mutex("a").lock().await?;
    let token = guard.token().clone();
    let secret = &token.as_str()[..8];
    assert_hidden(secret, &token);
    assert_hidden(secret, &guard);
    assert_hidden(secret, &client.lease("a", token.clone()));
    assert_hidden(secret, &client.inspect("a").await?);
    assert_hidden(secret, &MultiGuard::from(guard));

    let leadership = client.election("b").campaign().await?;
    assert_hidden(&leadership.guard().token().as_str()[..8], &leadership);
    let run = client.once("c", Duration::from_mins(1)).start().await?.expect("nobody did it");
    assert_hidden(&run.guard().token().as_str()[..8], &run);
    let data = Guarded::new(client.mutex("d"), 3);
    let held = data.lock().await?;
    assert_hidden(&held.guard().token().as_str()[..8], &held);
    Ok(())
}

#[test]
fn text_for_debugging_shows_no_password() {
    assert_hidden("hunter2", &Client::builder("redis://app:hunter2@localhost"));
    assert_hidden("hunter2", &Client::quorum(["redis://app:hunter2@a", "redis://app:hunter2@b"]));
}
