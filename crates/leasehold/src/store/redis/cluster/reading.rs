//! Reads the map of the slots: at first, when it may be wrong, and from time to time.
//!
//! One node after the other is asked until one answers. If a node fails or is slow, the next one is
//! asked. A node that was cut off from the others has an old map. So an answer with an older epoch
//! than the current map counts only if no node has a newer one.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{Notify, watch};

use super::map::{Map, epoch, has_failed};
use super::{Cluster, Member};
use crate::core::error::{Error, ErrorKind};
use crate::host::shielded::{Shielded, run_again};
use crate::host::{Host, Task};
use crate::store::net::host_and_port_text;
use crate::store::redis::LIMIT;
use crate::store::redis::codec::command::Command;
use crate::store::redis::node::Way;
use crate::store::redis::wire::serving::Home;
use crate::store::redis::wire::{Plain, connection_lost};

/// How often the map is read while it is used.
pub(super) const READ_EVERY: Duration = Duration::from_secs(5);

/// The shortest time between two readings.
const READ_AGAIN: Duration = Duration::from_millis(100);

/// How long a node may take before another one is asked, too.
const SLOW: Duration = Duration::from_millis(100);

/// A reading of the map, and how it ends.
pub(super) type Reading = watch::Receiver<Option<Result<(), Error>>>;

/// The answer of one node.
type Said = (Member, Result<Answer, Error>);

/// The answer of a node about its cluster.
struct Answer {
    /// `None` if the node may not tell.
    epoch: Option<u64>,
    /// Whether the node serves nobody, perhaps since it is cut off from the others.
    has_failed: bool,
    map: Map,
}

impl Cluster {
    /// Starts the task that reads the map again, once.
    pub(super) fn watch_over(self: &Arc<Self>) {
        self.watched.get_or_init(|| {
            let (cluster, host) = (Arc::downgrade(self), Arc::clone(&self.host));
            let (stale, in_use) = (Arc::clone(&self.stale), Arc::clone(&self.in_use));
            let begin = move || -> Task {
                Box::pin(watch_over(
                    Weak::clone(&cluster),
                    Arc::clone(&host),
                    Arc::clone(&stale),
                    Arc::clone(&in_use),
                ))
            };
            self.host.spawn(Box::pin(run_again(Arc::clone(&self.host), begin)));
        });
    }

    /// Reads the map. Callers at the same time share one reading, and its failure.
    pub(super) async fn read(self: &Arc<Self>, way: Way) -> Result<(), Error> {
        // The first reading may end with the runtime of another caller.
        for _ in 0..2 {
            let mut reading = self.reading(way);
            let reading = pin!(reading.wait_for(Option::is_some));
            let ended = Shielded::new(reading).await;
            if let Some(ended) = ended.ok().and_then(|ended| ended.clone()) {
                return ended;
            }
        }
        Err(connection_lost())
    }

    /// The reading that is under way, or a new one. A reading is a task of its own, so that a
    /// caller that waits for something else holds nobody up.
    fn reading(self: &Arc<Self>, way: Way) -> Reading {
        let (done, new) = watch::channel(None);
        let mut reading = self.reading.lock();
        // A reading has no sender if its task was dropped.
        if let Some(reading) = reading.as_ref().filter(|reading| reading.has_changed().is_ok()) {
            return reading.clone();
        }
        *reading = Some(new.clone());
        drop(reading);
        let cluster = Arc::clone(self);
        // The connections of the reading stay on the runtime where they are made.
        let home = match way {
            Way::Asks => Home::Asker,
            Way::Renewals => Home::Host,
        };
        home.spawn(
            &self.host,
            Box::pin(async move {
                let ended = cluster.read_alone(way).await;
                *cluster.reading.lock() = None;
                // All callers may have given up.
                let _gone = done.send(Some(ended));
            }),
        );
        new
    }

    async fn read_alone(&self, way: Way) -> Result<(), Error> {
        let known = self.state.lock().epoch;
        let mut left = self.candidates();
        let mut asked = FuturesUnordered::new();
        let (mut failures, mut older) = (Vec::new(), None::<(u64, Map)>);
        while let Some(next) = left.pop_front() {
            asked.push(ask(next, way));
            let slow = self.host.sleep_until(self.host.now() + SLOW);
            tokio::pin!(slow);
            loop {
                let (member, said) = tokio::select! {
                    biased;
                    Some(said) = asked.next() => said,
                    () = &mut slow, if !left.is_empty() || older.is_some() => break,
                    else => break,
                };
                match said {
                    Ok(Answer { epoch, has_failed, map }) => {
                        let epoch = epoch.unwrap_or(known);
                        if epoch >= known && !has_failed {
                            self.adopt(epoch, map, &member);
                            return Ok(());
                        }
                        older = Some(newest(older, (epoch, map)));
                    }
                    Err(error) => failures.push((member, error)),
                }
                if !left.is_empty() {
                    break;
                }
            }
        }
        let mut state = self.state.lock();
        state.first = state.first.wrapping_add(1);
        let first = state.anybody();
        drop(state);
        let (epoch, map) = older.ok_or_else(|| no_map(&failures))?;
        self.adopt(epoch, map, &first);
        Ok(())
    }

    /// The nodes to ask: those of the map, then the seeds.
    fn candidates(&self) -> VecDeque<Member> {
        let state = self.state.lock();
        let (before, after) = state.members.split_at(state.first % state.members.len());
        let mut candidates: VecDeque<_> = after.iter().chain(before).cloned().collect();
        drop(state);
        for seed in self.connector.seeds() {
            if candidates.iter().all(|known| *known.place != seed) {
                candidates.push_back(self.member(seed));
            }
        }
        candidates
    }

    /// Uses a map. Nodes that are in both maps stay connected. `by` is asked first next time.
    fn adopt(&self, epoch: u64, map: Map, by: &Member) {
        let mut state = self.state.lock();
        let has_failed_over = epoch != state.epoch;
        (state.read, state.epoch, state.used) = (Some(self.host.now()), epoch, false);
        let keep = |members: &[Member]| members.iter().position(|it| it.place == by.place);
        if map == state.map {
            state.first = keep(&state.members).unwrap_or(state.first);
            // The primary may have changed and changed back. Then a replica without the last grants
            // was the primary meanwhile.
            if has_failed_over {
                state.members.iter().for_each(Member::forget_counters);
            }
            return;
        }
        let members = map.places().iter().map(|place| {
            let known = state.members.iter().find(|known| *known.place == *place);
            known.cloned().unwrap_or_else(|| self.member(place.clone()))
        });
        let members: Vec<_> = members.collect();
        members.iter().for_each(Member::forget_counters);
        for (number, member) in members.iter().enumerate() {
            member.node.hints.live_at(map.tag(number));
        }
        state.first = keep(&members).unwrap_or_default();
        let old = std::mem::replace(&mut state.members, members);
        state.map = map;
        drop(state);
        // A holder that sends nothing must still be told of waiters.
        for gone in old.iter().filter(|old| !self.has(old)) {
            gone.node.hints.inboxes().iter().for_each(|inbox| self.listen(inbox));
        }
    }

    fn has(&self, member: &Member) -> bool {
        self.state.lock().members.iter().any(|known| Arc::ptr_eq(&known.node, &member.node))
    }
}

/// Reads the map when it may be wrong, and from time to time while it is used. Sleeps while it is
/// not used.
async fn watch_over(
    cluster: Weak<Cluster>,
    host: Arc<dyn Host>,
    stale: Arc<Notify>,
    in_use: Arc<Notify>,
) {
    loop {
        let is_used = cluster.upgrade().is_some_and(|cluster| cluster.state.lock().used);
        let is_due = async {
            let mut since = host.now();
            if !is_used {
                in_use.notified().await;
                // Count from the reading, because the request may have come long after it.
                let read = cluster.upgrade().and_then(|cluster| cluster.state.lock().read);
                since = read.unwrap_or(since);
            }
            host.sleep_until(since + READ_EVERY).await;
        };
        let is_stale = tokio::select! {
            biased;
            () = stale.notified() => true,
            () = is_due => false,
        };
        let Some(cluster) = cluster.upgrade() else { return };
        let is_used = cluster.state.lock().used;
        if (is_stale || is_used)
            && let Err(error) = cluster.read(Way::Renewals).await
        {
            tracing::debug!(%error, "no node says which node has which slot");
        }
        drop(cluster);
        host.sleep_until(host.now() + READ_AGAIN).await;
    }
}

/// Asks one node for its map.
async fn ask(member: Member, way: Way) -> Said {
    let wire = member.node.wire(way);
    let cluster = |question| Box::new(Plain(Command::new("CLUSTER").arg(question)));
    let slots = wire.submit(LIMIT, cluster("SLOTS"));
    let info = wire.submit(LIMIT, cluster("INFO"));
    let said = match slots.await {
        // The right to `CLUSTER INFO` is useful, but not needed.
        Ok(slots) => Ok((slots, info.await.ok())),
        Err(error) if error.kind() == ErrorKind::Unsupported => Err(no_command(error)),
        Err(error) => Err(error),
    };
    let said = said.and_then(|(slots, info)| match Map::read(&slots, &member.place) {
        Some(map) if map.is_empty() => Err(no_slots()),
        Some(map) => {
            let has_failed = info.as_ref().is_some_and(has_failed);
            Ok(Answer { epoch: info.as_ref().and_then(epoch), has_failed, map })
        }
        None => Err(strange()),
    });
    (member, said)
}

fn no_command(cause: Error) -> Error {
    let message = "a node of a cluster is asked for its slots, and it does not know the command; \
                   no request was sent; enable `CLUSTER` on every node";
    Error::new(ErrorKind::Unsupported, message).with_source(cause)
}

fn no_slots() -> Error {
    let message = "this node knows no slots of its cluster; no request was sent; create the \
                   cluster (`redis-cli --cluster create`), or let the node join it";
    Error::new(ErrorKind::Unavailable, message)
}

fn strange() -> Error {
    let message = "the answer to CLUSTER SLOTS is not understood; no request was sent; check that \
                   this is a Redis or Valkey server";
    Error::new(ErrorKind::Unavailable, message)
}

/// The map with the higher epoch. If both are of one epoch, the one that came later.
fn newest<M>(before: Option<(u64, M)>, said: (u64, M)) -> (u64, M) {
    before.filter(|before| before.0 > said.0).unwrap_or(said)
}

/// The error if no node has a map.
fn no_map(failures: &[(Member, Error)]) -> Error {
    if let [(_, error)] = failures {
        return error.clone();
    }
    let is_all = |kind| failures.iter().all(|(_, error)| error.kind() == kind);
    let kinds = [ErrorKind::Denied, ErrorKind::Config, ErrorKind::Unsupported];
    let kind = kinds.into_iter().find(|kind| is_all(*kind)).unwrap_or(ErrorKind::Unavailable);
    let said = failures.iter().map(|(member, error)| {
        let (host, port) = &*member.place;
        format!("{}: {error}", host_and_port_text(host, *port))
    });
    let said: Vec<_> = said.collect();
    let message = format!(
        "no node of the cluster says which node has which slot; no request was sent; see what they \
         say: {}",
        said.join(" | ")
    );
    Error::new(kind, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::SystemHost;
    use crate::store::redis::connector::{Connector, Opening};
    use crate::store::redis::node::Node;
    use crate::store::sinks::Sinks;

    #[test]
    fn of_old_maps_the_newest_counts() {
        let newest_of = |maps: [(u64, &'static str); 3]| {
            maps.into_iter().fold(None, |before, said| Some(newest(before, said)))
        };
        assert_eq!(newest_of([(3, "a"), (5, "b"), (4, "c")]), Some((5, "b")));
        assert_eq!(newest_of([(5, "a"), (3, "b"), (4, "c")]), Some((5, "a")));
        assert_eq!(newest_of([(3, "a"), (4, "b"), (4, "c")]), Some((4, "c")));
    }

    /// A connector that reaches nobody.
    struct Nowhere;

    impl Connector for Nowhere {
        fn open(&self) -> Opening {
            Box::pin(async { Err(Error::new(ErrorKind::Unavailable, "nobody is there")) })
        }

        fn label(&self) -> String {
            "nowhere".to_owned()
        }
    }

    /// While one node is only out of reach, trying again may help.
    #[test]
    fn without_a_map_the_error_is_final_only_if_all_nodes_say_so() {
        use ErrorKind::{Config, Denied, Unavailable, Unsupported};
        let host: Arc<dyn Host> = SystemHost::shared();
        let (connector, sinks) =
            (Arc::new(Nowhere) as Arc<dyn Connector>, Arc::new(Sinks::default()));
        let failed = |(number, kind): (usize, &ErrorKind)| {
            let place = Arc::new((format!("h{number}"), 1));
            let node = Node::new(&host, &connector, &sinks, None);
            (Member { place, node, number: 0 }, Error::new(*kind, "no"))
        };
        for (kinds, expected) in [
            (&[Denied][..], Denied),
            (&[Unavailable], Unavailable),
            (&[Denied, Denied], Denied),
            (&[Config, Config, Config], Config),
            (&[Unsupported, Unsupported], Unsupported),
            (&[Denied, Unavailable], Unavailable),
            (&[Unavailable, Denied, Denied], Unavailable),
            (&[Denied, Config], Unavailable),
        ] {
            let failures: Vec<_> = kinds.iter().enumerate().map(failed).collect();
            let error = no_map(&failures);
            assert_eq!(error.kind(), expected, "{kinds:?}");
            assert_eq!(error.to_string().contains("h1:1: no"), kinds.len() > 1, "{error}");
        }
    }
}
