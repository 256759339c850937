//! The locks of enclosing runs, as `LEASEHOLD_CHAIN` names them.
//!
//! It has one word for each lock: `TOKEN/FENCE/LOCK/KEEPER`. `leasehold run` writes the first three
//! parts, and the keeper adds itself before it starts the command.

use std::ffi::OsString;

use leasehold::Guard;

use crate::environment::{CHAIN, NAME, TOKEN};
use crate::hash::fnv_1a;
use crate::supervise::descent::KeeperId;

/// How many locks are remembered. If there are more, the outermost are forgotten.
const LOCKS_MAX: usize = 256;

/// Stands for a part that is not known.
const UNKNOWN: &str = "-";

/// A lock that an enclosing run or shell holds, or held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outer {
    /// Its owner token.
    pub(crate) token: String,
    /// Its fencing token.
    pub(crate) fence: Option<String>,
    /// Which lock it is.
    pub(crate) lock: Option<LockId>,
    /// The keeper that kills its commands when it is lost.
    pub(crate) keeper: Option<KeeperId>,
}

impl Outer {
    /// A lock of which only the token is known.
    const fn unknown(token: String) -> Self {
        Self { token, fence: None, lock: None, keeper: None }
    }
}

/// Tells a lock from those of other names, namespaces and stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockId(u64);

impl LockId {
    /// The lock called `name`. The store is named without its password.
    pub(crate) fn new(store: &str, namespace: Option<&str>, name: &str) -> Self {
        // None of the three contains a control character.
        let text = [store, namespace.unwrap_or_default(), name].join("\0");
        Self(fnv_1a(text.as_bytes()))
    }
}

/// The locks of the enclosing runs, the innermost last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    words: Vec<String>,
    /// The tokens of a shell, of which nothing else is known.
    tokens: Vec<String>,
}

impl Chain {
    /// The chain in the environment.
    pub(crate) fn inherited() -> Self {
        Self::read(std::env::var_os(CHAIN))
    }

    fn read(text: Option<OsString>) -> Self {
        let text = text.and_then(|text| text.into_string().ok()).unwrap_or_default();
        let all: Vec<_> = text.split_ascii_whitespace().map(str::to_owned).collect();
        Self::of(all)
    }

    /// The chain of these words, without those beyond the limit.
    fn of(mut words: Vec<String>) -> Self {
        let words = words.split_off(words.len().saturating_sub(LOCKS_MAX));
        Self { words, tokens: Vec::new() }
    }

    /// Whether no enclosing run and no shell is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty() && self.tokens.is_empty()
    }

    /// The chain for the keeper of a command that runs under these locks too.
    pub(crate) fn with<'a>(self, locks: impl IntoIterator<Item = (&'a Guard, LockId)>) -> Self {
        self.with_words(locks.into_iter().map(|(guard, LockId(lock))| {
            let fence = guard.fencing_token().map(|fence| fence.to_string());
            let fence = fence.as_deref().unwrap_or(UNKNOWN);
            format!("{}/{fence}/{lock:x}", guard.token().as_str())
        }))
    }

    fn with_words(self, words: impl IntoIterator<Item = String>) -> Self {
        // Our keeper must not vouch for an inherited word that has lost its keeper.
        let mut all = self.kept_by(None).words;
        all.extend(words);
        Self::of(all)
    }

    /// The chain for the command itself, which `keeper` watches.
    pub(crate) fn kept_by(self, keeper: Option<KeeperId>) -> Self {
        let keeper = keeper.map_or_else(|| UNKNOWN.to_owned(), |keeper| keeper.to_string());
        let complete = |word: String| match word.matches('/').count() {
            2 => format!("{word}/{keeper}"),
            _ => word,
        };
        Self::of(self.words.into_iter().map(complete).collect())
    }

    /// The text for the environment.
    pub(crate) fn text(&self) -> String {
        self.words.join(" ")
    }

    /// Adds the tokens that a script may have set for its commands.
    pub(crate) fn and_token(mut self) -> Self {
        let text = std::env::var(TOKEN).unwrap_or_default();
        self.tokens.extend(text.split_ascii_whitespace().map(str::to_owned));
        self
    }

    fn locks(&self) -> impl Iterator<Item = Outer> {
        self.words.iter().map(|word| outer(word))
    }

    /// The enclosing holder with this owner token.
    pub(crate) fn holder(&self, token: &[u8]) -> Option<Outer> {
        let of_shell = || self.tokens.iter().find(|shell| shell.as_bytes() == token);
        let known = self.locks().find(|outer| outer.token.as_bytes() == token);
        known.or_else(|| of_shell().cloned().map(Outer::unknown))
    }

    /// The tokens of a shell that was given this lock, as far as the environment says. The shell
    /// may have released it since.
    pub(crate) fn shell_tokens(&self, name: &str) -> &[String] {
        let names = std::env::var(NAME).unwrap_or_default();
        if names.lines().any(|it| it == name) { &self.tokens } else { &[] }
    }

    /// Whether a run above us was given this lock. That run would stop us if it lost the lock.
    pub(crate) fn was_given(&self, lock: LockId) -> bool {
        let of_it = |outer: Outer| outer.keeper.filter(|_| outer.lock == Some(lock));
        self.locks().filter_map(of_it).any(KeeperId::is_above_us)
    }
}

fn outer(word: &str) -> Outer {
    // Split from the end, since a token of another library may contain a slash.
    let parts: Vec<_> = word.rsplitn(4, '/').collect();
    let [keeper, lock, fence, token] = parts[..] else {
        return Outer::unknown(word.to_owned());
    };
    Outer {
        token: token.to_owned(),
        fence: (fence != UNKNOWN).then(|| fence.to_owned()),
        lock: u64::from_str_radix(lock, 16).ok().map(LockId),
        keeper: KeeperId::parse(keeper),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(text: &str) -> Chain {
        Chain::read(Some(text.into()))
    }

    #[test]
    fn a_chain_grows_by_each_run_and_is_bounded() {
        let word = |number: u32| format!("t{number}/{number}/ff");
        let keeper = KeeperId::parse("7.e").expect("a keeper");
        let mut text = String::new();
        for number in 0..300 {
            text = chain(&text).with_words([word(number)]).kept_by(Some(keeper)).text();
        }
        let all: Vec<_> = text.split(' ').collect();
        let (first, last) = ("t44/44/ff/7.e", "t299/299/ff/7.e");
        assert_eq!((all.len(), all[0], all[255]), (LOCKS_MAX, first, last));
    }

    #[test]
    fn each_lock_is_read_with_its_fence_and_its_own_keeper() {
        let (inner, outer_keeper) = (KeeperId::parse("8.f"), KeeperId::parse("7.e"));
        let outer = chain("a/1/ff").kept_by(outer_keeper);
        let both = outer.with_words(["b/-/fe".to_owned()]).kept_by(inner);
        let lock = |lock| Some(LockId(lock));
        let a = Outer {
            token: "a".to_owned(),
            fence: Some("1".to_owned()),
            lock: lock(0xff),
            keeper: outer_keeper,
        };
        let b = Outer { token: "b".to_owned(), fence: None, lock: lock(0xfe), keeper: inner };
        assert_eq!((both.holder(b"a"), both.holder(b"b")), (Some(a), Some(b)));
        assert_eq!(both.holder(b"c"), None);
        let unknown = chain("a/1/ff").kept_by(None).holder(b"a").expect("its token");
        assert_eq!(unknown.keeper, None);
    }

    #[test]
    fn no_keeper_vouches_for_a_lock_of_another_run() {
        let keeper = KeeperId::parse("7.e");
        let cut = chain("a/1/ff").with_words(["b/2/fe".to_owned()]).kept_by(keeper);
        assert_eq!(cut.holder(b"a").expect("its token").keeper, None);
        assert_eq!(cut.holder(b"b").expect("its token").keeper, keeper);
    }

    #[test]
    fn a_token_of_another_origin_has_no_keeper() {
        for token in ["a", "a/b", "a/b/c", "a/1/ff/7.e"] {
            let shell = Chain { words: Vec::new(), tokens: vec![token.to_owned()] };
            let outer = shell.holder(token.as_bytes()).expect("its token");
            assert_eq!(outer, Outer::unknown(token.to_owned()));
            assert!(!shell.is_empty() && shell.text().is_empty(), "{token}");
        }
        let slashes = chain("x/y/1/ff/7.e").holder(b"x/y").expect("its token");
        assert_eq!(slashes.fence.as_deref(), Some("1"));
    }

    #[test]
    fn locks_differ_by_store_namespace_and_name() {
        let lock = LockId::new("redis://a:6379/0", None, "x");
        assert_eq!(lock, LockId::new("redis://a:6379/0", Some(""), "x"));
        for other in [
            LockId::new("redis://b:6379/0", None, "x"),
            LockId::new("redis://a:6379/0", Some("n"), "x"),
            LockId::new("redis://a:6379/0", None, "y"),
        ] {
            assert_ne!(lock, other);
        }
        assert_ne!(LockId::new("a", Some("b"), "c"), LockId::new("a", Some("bc"), ""));
    }

    /// Another build of `leasehold` must find the same lock.
    #[test]
    fn a_lock_has_the_same_mark_in_every_build() {
        assert_eq!(LockId::new("a", None, "b"), LockId(0xac7f_ed82_0e4f_49ca));
    }
}
