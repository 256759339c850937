//! All servers answer. Measures the time to acquire, compared with a bare `SET` to each.

use leasehold::{Client, Error};
use leasehold_testkit::servers::RedisServer;

use super::bare::BareQuorum;
use super::{Extent, KEYS, Kind, Locks};
use crate::figure::{Compared, Report};
use crate::samples::{Samples, quantiles_us};

/// How many locks of one kind are acquired in a row.
const TURN: usize = 20;

const SET: &str = "5 bare SET at once, the third answer";
const SAME: &str = "same 5 requests at once, the third answer";

pub(super) async fn measure(
    report: &mut Report,
    servers: &[RedisServer],
    extent: Extent,
) -> Result<(), Error> {
    let client = Client::quorum(servers.iter().map(RedisServer::url)).connect().await?;
    let mut locks = Kind::ALL.map(|kind| Locks::new(&client, kind, KEYS));
    for locks in &locks {
        locks.warm_up().await?;
    }
    let mut bare = BareQuorum::connect(servers).await?;
    let mut rounds = Rounds::default();
    // The first round warms up.
    for round in 0..=extent.rounds {
        let mut of_ours = Kind::ALL.map(|_| Samples::default());
        let (mut of_set, mut of_same) = (Samples::default(), Samples::default());
        let turns = if round == 0 { 1 } else { extent.acquires.div_ceil(TURN) };
        for _ in 0..turns {
            for (locks, samples) in locks.iter_mut().zip(&mut of_ours) {
                for _ in 0..TURN {
                    samples.push(locks.acquire().await?);
                }
            }
            for _ in 0..TURN {
                of_set.push(bare.set().await?);
            }
            for _ in 0..TURN {
                of_same.push(bare.ask_the_same().await?);
            }
        }
        if round > 0 {
            rounds.ours.iter_mut().zip(of_ours).for_each(|(rounds, round)| rounds.push(round));
            rounds.set.push(of_set);
            rounds.same.push(of_same);
        }
    }
    rounds.add_to(report);
    Ok(())
}

/// The measured samples, one set per round.
#[derive(Default)]
struct Rounds {
    /// By kind.
    ours: [Vec<Samples>; Kind::ALL.len()],
    set: Vec<Samples>,
    same: Vec<Samples>,
}

impl Rounds {
    fn add_to(&mut self, report: &mut Report) {
        for (quantile, share) in [("p50", 0.5), ("p99", 0.99)] {
            let set = quantiles_us(&mut self.set, share);
            let same = quantiles_us(&mut self.same, share);
            for (kind, rounds) in Kind::ALL.iter().zip(&mut self.ours) {
                let ours = quantiles_us(rounds, share);
                let subject = format!("5 nodes, all healthy, {}", kind.name());
                let figure = format!("acquire, {quantile}");
                report.add(&subject, &figure, &ours, "us");
                let beside = |theirs, to| Compared { ours: &ours, theirs, unit: "us", to };
                let ratio = report.ratio(&subject, &figure, beside(&set, SET));
                if quantile == "p50" {
                    ratio.at_most(1.5);
                }
                if *kind == Kind::Fenced {
                    report.ratio(&subject, &figure, beside(&same, SAME));
                }
            }
        }
    }
}
