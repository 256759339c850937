//! Plays one seed to the reference and to all other stores.

use std::sync::Arc;

use leasehold::Key;
use leasehold::host::Host;
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::ms;
use leasehold_testkit::virtual_host::SeededRandom;

use super::request::{KEYS, Places, Plan, Request, draw, owners};
use super::side::{Answer, Side};
use super::{CONTENDERS, Contender, EXCLUSIONS, Exclusion, Look, excludes};
use crate::stores;

/// The time until every store has sent its hints, since some stores look for changes only now and
/// then.
const HINTS_MS: u64 = 21;

/// The reference, and the stores that are compared with it.
struct Table {
    reference: Side,
    others: Vec<(&'static Contender, Side, Look)>,
    log: Vec<String>,
}

/// Plays a seed, and returns how many hints of grants were equal.
pub(super) async fn play(host: &Arc<VirtualHost>, seed: u64, plan: &Plan) -> usize {
    let mut random = SeededRandom::new(seed);
    let owners = owners(&mut random, plan.owners);
    let mut table = Table::open(host, plan).await;
    if plan.hears {
        for (number, owner) in owners.iter().enumerate() {
            table.sides().for_each(|side| side.hear(owner, number % 2));
        }
    }
    let (mut places, mut grants) = (Places::default(), 0);
    for number in 0..plan.requests {
        let (owner, request) = draw(&mut random, &owners, plan);
        let request = places.spare_the_dead(request, host.now());
        if let Request::Pass(span) = request {
            host.advance(ms(span)).await;
            continue;
        }
        // An owner whose hints are compared asks through the handle that receives them.
        let handle = if plan.hears { owner % 2 } else { random.below(2) };
        let title = format!("request {number} of seed {seed}, handle {handle}");
        table.ask(host, &title, handle, request).await;
        if plan.hears {
            host.advance(ms(HINTS_MS)).await;
            let heard = table.reference.heard();
            grants += heard.grants();
            let others = table.others.iter_mut().map(|(_, side, _)| side.heard()).collect();
            table.compare(&format!("hints after {title}"), heard, others, &[]);
        }
    }
    grants
}

impl Table {
    async fn open(host: &Arc<VirtualHost>, plan: &Plan) -> Self {
        let reference = Side::open(stores::memory(host)).await;
        let mut others = Vec::new();
        for contender in &CONTENDERS {
            if plan.blurred || !excludes(contender.name, Exclusion::LastMillisecond) {
                let (opener, look) = (contender.setup)(host);
                others.push((contender, Side::open(opener).await, look));
            }
        }
        Self { reference, others, log: Vec::new() }
    }

    fn sides(&mut self) -> impl Iterator<Item = &mut Side> {
        let others = self.others.iter_mut().map(|(_, side, _)| side);
        std::iter::once(&mut self.reference).chain(others)
    }

    async fn ask(&mut self, host: &VirtualHost, title: &str, handle: usize, request: Request) {
        let now = host.now();
        let mut bare = Vec::new();
        if let Request::List(_) = request {
            for key in KEYS.map(|name| Key::new(name).expect("a name")) {
                if self.reference.is_bare(&key).await {
                    bare.push(key);
                }
            }
        }
        let expected = self.reference.ask(host, 0, request.clone()).await;
        let mut found = Vec::new();
        for (_, side, look) in &mut self.others {
            found.push(side.ask(host, handle, request.clone()).await);
            look();
        }
        self.compare(&format!("{title}, at {now:?}: {request:?}"), expected, found, &bare);
        assert_eq!(host.now(), now, "no store takes virtual time");
    }

    fn compare(&mut self, title: &str, expected: Answer, found: Vec<Answer>, bare: &[Key]) {
        self.log.push(format!("{title} -> {expected:?}"));
        for ((contender, _, _), found) in self.others.iter().zip(found) {
            let name = contender.name;
            let excluded = |exclusion| excludes(name, exclusion);
            let (expected, found) =
                (expected.clone().seen(excluded, bare), found.seen(excluded, bare));
            assert!(
                expected == found,
                "{}\n{name} answers {found:?}\nand not {expected:?}\nwhat is excluded is\n{}",
                self.log.join("\n"),
                EXCLUSIONS
                    .map(|(what, stores, why)| format!("{what:?} {stores:?}: {why}"))
                    .join("\n")
            );
        }
    }
}
