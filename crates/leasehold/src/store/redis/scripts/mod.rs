//! The scripts that do the steps of the store, each atomically on the server.
//!
//! | step | script | for a strict client |
//! |---|---|---|
//! | acquire | `ACQUIRE`; of several locks first `TOGETHER`, see [`together`] | `ACQUIRE_STRICTLY` |
//! | acquire, without companion keys | `ACQUIRE_PLAIN`, or `SET … NX GET PX`, see [`bare`] | `ACQUIRE_PLAIN_STRICTLY` |
//! | renew | `RENEW` | the same |
//! | release, keep, hand over | `RELEASE`; to release several locks first `TOGETHER` | `RELEASE` |
//! | release, without companion keys or a wake-up | `RELEASE_PLAIN`, or a command, see [`bare`] | the same |
//! | resize | `RESIZE` | refused |
//! | evict | `EVICT` | the same |
//! | revoke | `REVOKE` | the same |
//! | inspect | `INSPECT` | the same |
//! | list: whether a key is in use | `LIVING` | the same |

pub(super) mod abilities;
mod bare;
pub(super) mod call;
pub(super) mod native;
pub(super) mod reasons;
pub(super) mod reply;
pub(super) mod scripted;
pub(super) mod step;
pub(super) mod together;

use std::sync::OnceLock;

use sha1_smol::Sha1;

use super::codec::command::Command;

/// A script.
pub(super) struct Script {
    source: &'static str,
    /// The SHA-1 of the source, by which a server knows the script.
    hash: OnceLock<String>,
    bit: u32,
}

/// Joins files of `lua/` into a script. Code that runs before an answer costs time in every step.
/// Code after the answer costs that step nothing.
macro_rules! script {
    ($number:literal: $($file:literal),+) => {
        Script::new($number, concat!($(include_str!(concat!("lua/", $file))),+))
    };
}

pub(super) static ACQUIRE: Script = script!(
    0: "prelude.lua",
    "acquire_at_once.lua",
    "share_at_once.lua",
    "counter.lua",
    "grant.lua",
    "shares.lua",
    "line.lua",
    "open.lua",
    "acquire.lua"
);
pub(super) static RENEW: Script =
    script!(1: "prelude.lua", "counter.lua", "grant.lua", "shares.lua", "renew.lua");
pub(super) static RELEASE: Script = script!(
    2: "prelude.lua",
    "release_at_once.lua",
    "leave_at_once.lua",
    "hand_over_at_once.lua",
    "counter.lua",
    "grant.lua",
    "shares.lua",
    "line.lua",
    "open.lua",
    "release.lua"
);
pub(super) static EVICT: Script =
    script!(3: "prelude.lua", "counter.lua", "grant.lua", "shares.lua", "line.lua", "evict.lua");
pub(super) static INSPECT: Script =
    script!(4: "prelude.lua", "counter.lua", "shares.lua", "inspect.lua");
pub(super) static LIVING: Script = script!(5: "prelude.lua", "counter.lua", "living.lua");
pub(super) static RELEASE_PLAIN: Script = script!(6: "release_plain.lua");
pub(super) static ACQUIRE_PLAIN: Script = script!(7: "prelude_plain.lua", "acquire_plain.lua");
pub(super) static ACQUIRE_STRICTLY: Script = script!(
    8: "prelude.lua",
    "strict.lua",
    "acquire_at_once.lua",
    "counter.lua",
    "grant.lua",
    "shares.lua",
    "line.lua",
    "open.lua",
    "acquire.lua"
);
pub(super) static ACQUIRE_PLAIN_STRICTLY: Script =
    script!(9: "prelude_plain.lua", "strict.lua", "acquire_plain.lua");

pub(super) static RESIZE: Script =
    script!(11: "prelude.lua", "counter.lua", "grant.lua", "shares.lua", "line.lua", "resize.lua");

pub(super) static REVOKE: Script =
    script!(12: "prelude.lua", "counter.lua", "grant.lua", "shares.lua", "revoke.lua");

pub(super) static TOGETHER: Script = script!(13: "together.lua");

/// Switches strict mode. It is no step of a lock.
pub(super) static SWITCH: Script = script!(10: "switch.lua");

impl Script {
    const fn new(number: u32, source: &'static str) -> Self {
        Self { source, hash: OnceLock::new(), bit: 1 << number }
    }

    /// The bit of the script in a set of scripts.
    pub(super) const fn bit(&self) -> u32 {
        self.bit
    }

    /// Begins a call by the hash of the script. A server that has not seen the script since its
    /// start refuses the call with `NOSCRIPT` and does nothing.
    pub(super) fn by_hash(&self) -> Command {
        let hash = self.hash.get_or_init(|| Sha1::from(self.source).digest().to_string());
        Command::new("EVALSHA").arg(hash)
    }

    /// Begins a call with the whole script, which the server remembers for calls by hash.
    pub(super) fn in_full(&self) -> Command {
        Command::new("EVAL").arg(self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::claim::PERMITS_MAX;
    use crate::core::line::{GIVES_WAY_FOR, PLACES_MAX, REAPED_MAX, RUN_MAX};
    use crate::core::token::{ClientId, FencingToken};
    use crate::store::FENCE_IDLE;

    #[test]
    fn scripts_know_the_limits_that_the_library_knows() {
        let limits = [
            format!("local FENCE_IDLE_MS = {}\n", FENCE_IDLE.as_millis()),
            format!("local FENCE_IDLE = '{}'\n", FENCE_IDLE.as_millis()),
            format!("local FENCING_MAX = {}\n", FencingToken::MAX),
            format!("local PLACES_MAX = {PLACES_MAX}\n"),
            format!("local REAPED_MAX = {REAPED_MAX}\n"),
            format!("local REAPED = '{REAPED_MAX}'\n"),
            format!("local RUN_MAX = {RUN_MAX}\n"),
            format!("local SCORE_MIN = '({PERMITS_MAX}'\n"),
            format!("local GIVES_WAY_MS = {}\n", GIVES_WAY_FOR.as_millis()),
            format!("local GIVES_WAY = '{}'\n", GIVES_WAY_FOR.as_millis()),
            format!("string.sub(inbox, -{})", ClientId::CHARS),
            format!("#client == {}", ClientId::CHARS),
        ];
        let idle_ms = FENCE_IDLE.as_millis();
        for limit in [
            format!("local FENCE_IDLE_MS, FENCE_IDLE = {idle_ms}, '{idle_ms}'\n"),
            format!("local FENCING_MAX = {}\n", FencingToken::MAX),
        ] {
            assert!(TOGETHER.source.contains(&limit), "{limit}");
        }
        for limit in limits {
            assert!(ACQUIRE.source.contains(&limit), "{limit}");
            assert!(ACQUIRE_STRICTLY.source.contains(&limit), "{limit}");
        }
    }

    #[test]
    fn a_script_is_called_by_its_hash_or_in_full() {
        let args = |command: &Command| command.args().map(<[u8]>::to_vec).collect::<Vec<_>>();
        let hash = Sha1::from(RENEW.source).digest().to_string();
        assert_eq!(args(&RENEW.by_hash()), [b"EVALSHA".to_vec(), hash.into_bytes()]);
        assert_eq!(args(&RENEW.in_full()), [b"EVAL".to_vec(), RENEW.source.as_bytes().to_vec()]);
    }
}
