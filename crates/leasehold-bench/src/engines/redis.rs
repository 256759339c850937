//! Redis, compared with the textbook lock and a bare `PUBLISH`.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use leasehold::{Error, ErrorKind};
use leasehold_testkit::servers::RedisServer;
use tokio::task::spawn_blocking;

use super::{Engine, Extent};
use crate::bare_lock::BareLock;
use crate::bare_redis::{connect, unavailable};
use crate::figure::Report;
use crate::requests::RequestMeter;

const CHANNEL: &str = "bench:engines";

pub(super) async fn measure(extent: Extent, report: &mut Report) -> Result<(), Error> {
    let server = spawn_blocking(RedisServer::start).await.expect("the server starts");
    let url = server.url();
    let engine = Engine { name: "Redis", url: &url };
    let bare = BareLock::connect(&url).await?.with_keys(vec!["bare".to_owned()]);
    let pair = async || bare.clone().set_and_delete(0).await;
    engine.round_trips((extent.pairs, "the textbook lock"), pair, report).await?;

    let mut publishing = connect(&url).await?;
    let subscribed = async {
        let mut listening = redis::Client::open(&*url)?.get_async_pubsub().await?;
        listening.subscribe(CHANNEL).await?;
        Ok(listening.into_on_message())
    };
    let mut messages = Box::pin(subscribed.await.map_err(|error| unavailable(&error))?);
    let hop = async || -> Result<Duration, Error> {
        let called = Instant::now();
        let sent = redis::cmd("PUBLISH").arg(CHANNEL).arg("hop").exec_async(&mut publishing).await;
        sent.map_err(|error| unavailable(&error))?;
        let ended = || Error::new(ErrorKind::Unavailable, "the connection that listens ended");
        messages.next().await.ok_or_else(ended)?;
        Ok(called.elapsed())
    };
    engine.hand_overs((extent.pairs / 4, "a bare PUBLISH"), hop, report).await?;

    let mut meter = RequestMeter::connect(&url).await?;
    let first = meter.look().await?;
    let count = async || Ok(meter.look().await?.requests_since(&first));
    engine.waiters((extent.watched, "requests"), count, report).await?;
    engine.leases(extent, report).await
}
