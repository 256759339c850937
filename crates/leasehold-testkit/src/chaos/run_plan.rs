//! The plan of one `leasehold run`: the lock that it takes, and the command that it runs.

use std::path::Path;
use std::time::Duration;

use super::shares::{PERMITS, PERMITS_OF, READ};
use super::{part_of, span};
use crate::history::event::{ProcessId, Share};
use crate::virtual_host::SeededRandom;

/// One `leasehold run` in this many takes a lock that holders share.
const SHARED_ONE_IN: usize = 3;

/// The plan of one `leasehold run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunPlan {
    /// The name of its lock.
    pub(super) key: &'static str,
    /// The share of the lock that it takes. `None` for a mutex, which nobody shares.
    pub(super) share: Option<Share>,
    /// How long its command lives if nobody kills it.
    lifetime: Duration,
    /// Whether its command ignores SIGTERM.
    is_stubborn: bool,
}

impl RunPlan {
    /// Draws a plan for locks with that ttl.
    pub(super) fn draw(random: &mut SeededRandom, ttl: Duration, takes_shared: bool) -> Self {
        let (key, share, lifetime) = if takes_shared && random.once_in(SHARED_ONE_IN) {
            let (key, share) = match random.below(4) {
                0 => (READ, Share::Alone),
                1 | 2 => (READ, Share::Reader),
                _ => (PERMITS, Share::Permits { want: 2, of: PERMITS_OF }),
            };
            (key, Some(share), span(random, 50, 1_500))
        } else if random.once_in(3) {
            // If nobody kills it, the command outlives the lease of its killed `leasehold run`.
            ("d", None, part_of(random, ttl, 50, 400))
        } else {
            ("b", None, span(random, 50, 1_500))
        };
        Self { key, share, lifetime, is_stubborn: random.once_in(2) }
    }

    /// The arguments of `leasehold`. The command that it runs is `chaos child`.
    pub(super) fn args(
        &self,
        chaos: &Path,
        process: ProcessId,
        urls: &[String],
        ttl: Duration,
    ) -> Vec<String> {
        let shared = match self.share {
            Some(Share::Reader) => "--shared ".to_owned(),
            Some(Share::Permits { want, of }) => format!("--permits {of} --weight {want} "),
            None | Some(Share::Alone) => String::new(),
        };
        let urls: String = urls.iter().map(|url| format!("--url {url} ")).collect();
        let (key, ttl) = (self.key, ttl.as_millis());
        let words = format!("-q run {key} {shared}{urls}--ttl {ttl}ms --");
        let (lifetime, chaos, process) = (self.lifetime.as_millis(), chaos.display(), process.0);
        let child = format!("{chaos} child --process {process} --lives-ms {lifetime} --every-ms 5");
        let mut args: Vec<String> = words.split(' ').map(str::to_owned).collect();
        if self.is_stubborn {
            args.extend(["sh".into(), "-c".into(), format!("trap '' TERM; exec {child}")]);
        } else {
            args.extend(child.split(' ').map(str::to_owned));
        }
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(1);

    fn args(share: Option<Share>, is_stubborn: bool) -> String {
        let plan = RunPlan { key: "k", share, lifetime: Duration::from_millis(70), is_stubborn };
        let urls = ["redis://a".to_owned(), "redis://b".to_owned()];
        plan.args(Path::new("/chaos"), ProcessId(3), &urls, TTL).join("|")
    }

    #[test]
    fn the_arguments_name_the_lock_its_share_and_the_command() {
        let child = "/chaos|child|--process|3|--lives-ms|70|--every-ms|5";
        let urls = "--url|redis://a|--url|redis://b|--ttl|1000ms|--";
        assert_eq!(args(None, false), format!("-q|run|k|{urls}|{child}"));
        assert_eq!(args(Some(Share::Alone), false), args(None, false));
        assert_eq!(args(Some(Share::Reader), false), format!("-q|run|k|--shared|{urls}|{child}"));
        let permits = Some(Share::Permits { want: 2, of: 3 });
        let flags = "--permits|3|--weight|2";
        assert_eq!(args(permits, false), format!("-q|run|k|{flags}|{urls}|{child}"));
        let stubborn = format!("sh|-c|trap '' TERM; exec {}", child.replace('|', " "));
        assert_eq!(args(None, true), format!("-q|run|k|{urls}|{stubborn}"));
    }

    #[test]
    fn plans_of_every_kind_are_drawn() {
        let mut random = SeededRandom::new(1);
        let mut drawn = |takes_shared| -> Vec<RunPlan> {
            (0..200).map(|_| RunPlan::draw(&mut random, TTL, takes_shared)).collect()
        };
        assert!(drawn(false).iter().all(|plan| plan.share.is_none()));
        let plans = drawn(true);
        let has = |share| plans.iter().any(|plan| plan.share == share);
        assert!(has(None) && has(Some(Share::Alone)) && has(Some(Share::Reader)));
        assert!(has(Some(Share::Permits { want: 2, of: PERMITS_OF })));
        assert!(
            plans.iter().any(|plan| plan.key == "d") && plans.iter().any(|plan| plan.key == "b")
        );
        assert!(plans.iter().any(|plan| plan.is_stubborn));
        assert!(plans.iter().any(|plan| !plan.is_stubborn));
    }
}
