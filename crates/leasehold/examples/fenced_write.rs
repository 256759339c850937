//! A holder is paused past its lease and writes late. The fencing token stops it.
//!
//! No lock can do that: between *am I still the holder?* and the write, a process can be stopped
//! for any time. So the resource remembers the highest token that it has seen, and refuses a lower
//! one.

use std::sync::Mutex;
use std::time::Duration;

use leasehold::{Client, Error, FencingToken};

/// The protected resource. In SQL: `UPDATE … SET …, fence = $1 WHERE id = $2 AND fence <= $1`.
#[derive(Default)]
struct Document {
    text: String,
    fence: Option<FencingToken>,
}

/// Checks and writes in one step. That is enough.
fn write(document: &Mutex<Document>, text: &str, fence: FencingToken) -> bool {
    let mut document = document.lock().expect("no panic");
    let fresh = document.fence.is_none_or(|highest| fence >= highest);
    if fresh {
        document.text = text.to_owned();
        document.fence = Some(fence);
    }
    fresh
}

/// Returns whether the late write succeeded, and the final text of the document.
pub async fn write_late(url: &str) -> Result<(bool, String), Error> {
    let document = Mutex::default();
    let slow = Client::connect(url).await?.mutex("document:9").ttl(Duration::from_millis(50));
    let quick = Client::connect(url).await?.mutex("document:9");

    let paused = slow.lock().await?;
    let stale = paused.fencing_token().expect("fencing is on by default");
    // The store sees a paused process as one that no longer renews.
    let _token = paused.detach();

    let guard = quick.lock().await?; // Granted when the lease of the paused one has run out.
    let fence = guard.fencing_token().expect("fencing is on by default");
    assert!(write(&document, "written by the new holder", fence));

    // The paused process wakes up, believes that it holds the lock, and writes.
    let late_write_went_through = write(&document, "written late", stale);
    let _released = guard.release().await?;
    let text = document.into_inner().expect("no panic").text;
    Ok((late_write_went_through, text))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = tempfile::tempdir()?;
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| format!("sqlite:{}", scratch.path().join("locks.db").display()));
    let (went_through, text) = write_late(&url).await?;
    println!(
        "the late write {}; the document says: {text}",
        if went_through { "went through" } else { "was refused" }
    );
    Ok(())
}
