//! Draws the world of a seed.

use std::time::Duration;

use strum::VariantArray as _;

use super::clock::{self, ServerClock, drift_ppm};
use super::kind::{Draw, Kind};
use super::plan::{ClientPlan, KeptIn, Plan};
use super::{copies, drawn_faults, nodes, strictness, worlds};
use crate::virtual_host::SeededRandom;

/// The time left in the shortest world for the leftovers of dead clients to expire.
const ENDS_IN_LEAST: Duration = Duration::from_secs(3);

impl Plan {
    /// The world of a seed. It lasts at least `time`. Its last seconds have no clients, to see what
    /// the clients leave behind.
    #[must_use]
    pub fn new(seed: u64, time: Duration) -> Self {
        Self::asked_for(seed, time, &[])
    }

    /// Like [`new`](Self::new), but also with these kinds, unless the kinds that the seed has
    /// exclude them.
    #[must_use]
    pub fn asked_for(seed: u64, time: Duration, wanted: &[Kind]) -> Self {
        Self::draw(Draw { seed, known: Kind::VARIANTS, wanted }, time)
    }

    /// The world of a seed if only these kinds existed, as before the other kinds were added.
    #[must_use]
    pub fn among(seed: u64, time: Duration, known: &[Kind]) -> Self {
        Self::draw(Draw { seed, known, wanted: &[] }, time)
    }

    fn draw(draw: Draw<'_>, time: Duration) -> Self {
        let seed = draw.seed;
        let span = time.saturating_sub(ENDS_IN_LEAST);
        // Neighbouring seeds must give independent worlds.
        let mut random = SeededRandom::new(SeededRandom::new(seed).next_u64() ^ 0x1ea5_e401_d000);
        let drifts = !random.once_in(4);
        // One of the ttls is longer than the life of any place in the line, and so longer than a
        // handed-over lease.
        let ttls: &[u64] =
            [&[300, 1_000, 3_000][..], &[1_000], &[400, 700], &[2_000, 4_000]][random.below(4)];
        let hot = random.below(6);
        let clients = (0..3 + random.below(6))
            .map(|number| {
                let ttl = Duration::from_millis(ttls[random.below(ttls.len())]);
                let faster_ppm = if drifts { drift_ppm(&mut random) } else { 0 };
                client(&mut random, ttl, faster_ppm, number == hot)
            })
            .collect::<Vec<_>>();
        let mut plan = Self {
            seed,
            span,
            keys: 1 + random.below(4),
            lock_delay: Duration::from_millis([0, 0, 0, 50, 500][random.below(5)]),
            clocks: vec![if drifts { clock::drawn(&mut random) } else { ServerClock::default() }],
            delay_us: [(50, 200), (100, 1_000), (1_000, 5_000)][random.below(3)],
            coexists: false,
            strict: None,
            kept_in: KeptIn::Servers,
            copies: None,
            pace: 1,
            crowd: 0,
            detaches: false,
            keeps: false,
            takes_several: false,
            runs_once: false,
            is_operated: false,
            limits_holds: false,
            limit: None,
            latch: None,
            barrier: None,
            election: None,
            is_unqueued: false,
            foreigners: 0,
            sharing: None,
            faults: Vec::new(),
            clients,
        };
        plan.faults = drawn_faults::draw(&mut random, &plan);
        nodes::draw(draw, &mut plan);
        worlds::draw_place(draw, &mut plan);
        plan.coexists = !plan.is_quorum() && coexists(draw);
        if worlds::draw_ttls(draw, &mut plan) {
            // Half of these worlds have no faults, so nothing excuses a violation there.
            plan.faults =
                if random.once_in(2) { Vec::new() } else { drawn_faults::draw(&mut random, &plan) };
        } else {
            strictness::draw(draw, &mut plan);
            copies::draw(draw, &mut plan);
        }
        worlds::draw(draw, &mut plan);
        plan
    }
}

/// Whether other clients often poll for a free key in this world, so that a release hands nothing
/// over. One world in eight. The choice uses its own random source, so all other worlds stay as
/// they are.
fn coexists(draw: Draw<'_>) -> bool {
    let mut random = SeededRandom::new(SeededRandom::new(draw.seed).next_u64() ^ 0x0c0e_7157_0b57);
    random.once_in(8) || draw.wanted.contains(&Kind::Coexist)
}

fn client(random: &mut SeededRandom, ttl: Duration, faster_ppm: i64, is_hot: bool) -> ClientPlan {
    let is_crowd = is_hot || random.once_in(3);
    let idle = [Duration::from_millis(50), Duration::from_secs(2), ttl * 2];
    ClientPlan {
        tasks: if is_crowd { 2 + random.below(5) } else { 1 + random.below(2) },
        ttl,
        faster_ppm,
        keep_idle: if random.once_in(3) { idle[random.below(3)] } else { Duration::ZERO },
        is_fenced: !random.once_in(5),
        is_fifo: random.once_in(6),
        is_mixed: random.once_in(5),
        is_hot,
        is_named: random.once_in(3),
        why: random.once_in(4).then_some("what all do"),
        namespace: None,
        shut_down_after: random
            .once_in(5)
            .then(|| Duration::from_millis(2_000 + random.next_u64() % 10_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::fault::Fault;

    #[test]
    fn every_world_is_as_large_and_as_troubled_as_promised() {
        let (mut quorums, mut coexisting, mut evicting, mut strict) = (0, 0, 0, 0);
        for seed in 0..2_000 {
            let plan = Plan::new(seed, Duration::from_secs(30));
            assert!((3..=8).contains(&plan.clients.len()));
            assert!((1..=4).contains(&plan.keys));
            assert!(plan.faults.len() >= 5 || plan.is(Kind::Long) || plan.is(Kind::Evicting));
            assert!([1, 3, 4, 5].contains(&plan.nodes()));
            quorums += u32::from(plan.is_quorum());
            coexisting += u32::from(plan.coexists);
            strict += u32::from(plan.strict.is_some());
            assert!(!(plan.is_quorum() && plan.coexists), "others would poll a majority");
            let hits = |node| plan.faults.iter().any(|one| one.nodes.has(node));
            assert!(plan.is_quorum() || plan.faults.is_empty() || hits(0) && !hits(1));
            let evicts = plan.faults.iter().any(|one| one.fault == Fault::Eviction);
            evicting += u32::from(evicts && plan.is_quorum());
            assert!(!plan.is_quorum() || plan.is_covered() != evicts, "it forgets: seed {seed}");
            assert!(plan.is_quorum() || plan.is(Kind::Evicting) == evicts, "seed {seed}");
            let kinds = |some: &[Fault]| plan.faults.iter().any(|one| some.contains(&one.fault));
            assert!(
                !(kinds(&Fault::FORGETTING) && kinds(&Fault::STEPS)),
                "a server that forgets and whose clock steps: seed {seed}"
            );
        }
        assert!((200..300).contains(&quorums), "{quorums} of 2 000 worlds have a quorum");
        assert!((180..300).contains(&strict), "{strict} of 2 000 worlds are strict");
        assert!((150..300).contains(&coexisting), "in {coexisting} of 2 000 others may poll");
        assert!((90..160).contains(&evicting), "in {evicting} of 2 000 worlds nodes evict");
    }
}
