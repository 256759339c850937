//! A command may ask for a lock that an enclosing run holds. A `run` joins it, if the enclosing run
//! will surely stop it when the lock is lost. Every other request is refused, since the command
//! would wait for itself.
//!
//! | The enclosing run has NAME | `run NAME` | `run NAME --shared` | `run NAME --permits N --weight W` |
//! |---|---|---|---|
//! | alone | joins | joins | refused |
//! | shared | refused | joins | refused |
//! | as W or more of N permits | refused | refused | joins |

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use leasehold::host::{Host as _, SystemHost};
use leasehold::store::{Claim, Holder};
use leasehold::{Client, Error, ErrorKind, OwnerToken, Snapshot};
use serde_json::Value;

use super::Context;
use super::holding::not_begun;
use super::variables::{Joined, variables};
use crate::args::Run;
use crate::chain::{Chain, LockId, Outer};
use crate::environment::{EXPIRES_AT_MS, TTL_MS};
use crate::exit::{Exit, Failure, only};
use crate::output::escape;
use crate::stderr;
use crate::talk::Level;
use crate::view;

/// The state of the lock. `None` if this user may take locks but not inspect them.
async fn look(client: &Client, name: &str) -> Result<Option<Snapshot>, Failure> {
    match client.inspect(name).await {
        Ok(seen) => Ok(Some(seen)),
        Err(error) if error.kind() == ErrorKind::Denied => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The lease of an enclosing run or shell among the holders.
fn find(chain: &Chain, seen: Snapshot) -> Option<(Outer, Holder)> {
    let mut holders = seen.holders.into_iter();
    holders.find_map(|holder| Some((chain.holder(&holder.token)?, holder)))
}

/// A lock that an enclosing run or shell has.
pub(super) struct Own {
    how: &'static str,
    why: &'static str,
    /// Its first holder, for programs.
    holder: Option<Value>,
}

impl Own {
    /// The lease of an enclosing run or shell, if it has the lock.
    pub(super) async fn find(
        context: &Context,
        client: &Client,
        name: &str,
    ) -> Result<Option<Self>, Failure> {
        let chain = Chain::inherited().and_token();
        if chain.is_empty() {
            return Ok(None);
        }
        let lock = LockId::new(&client.store_label(), context.settings.namespace(), name);
        let Some(seen) = look(client, name).await? else {
            let is_own = may_have(client, &chain, lock, name).await;
            return Ok(is_own.then_some(Self { how: "held", why: BLIND, holder: None }));
        };
        let (holder, shows_all) = (view::first_holder(&seen), view::shows_all(&seen));
        let (how, why) = match find(&chain, seen) {
            Some((_, Holder { claim: Claim::Shared, .. })) => ("shared", NO_SHARE),
            Some((_, Holder { claim: Claim::Permits { .. }, .. })) => ("held", NO_MORE),
            Some(_) => ("held", "this command would wait for itself"),
            None if !shows_all && may_have(client, &chain, lock, name).await => ("held", UNSEEN),
            None => return Ok(None),
        };
        Ok(Some(Self { how, why, holder }))
    }

    /// The failure of the command that asks for the lock. `advice` says what to do instead.
    pub(super) fn refused(self, name: &str, advice: &str) -> Failure {
        Failure { holder: self.holder, ..refused(name, self.how, self.why, advice) }
    }
}

/// The advice to a command that runs inside a holder of the lock.
pub(super) const INNER_ADVICE: &str =
    "run the inner command without leasehold, or use another name";

const NO_SHARE: &str = "a second share would wait behind a command that wants the lock alone, and \
                        a share cannot become the whole lock";

const NO_MORE: &str = "more permits may be free only after it has returned its own";

/// Not all holders are shown, and the lease of the enclosing run or shell is not among them. A
/// lease of its own is one that this command might wait for in vain.
const UNSEEN: &str =
    "it has so many holders that this command cannot see whether that lock is still held";

/// This user may not inspect the lock. The inner command might wait for the outer one in vain.
const BLIND: &str = "this user lacks a right to inspect it, so this command cannot see whether \
                     that lock is still held";

const ELSEWHERE: &str = "its store or namespace was named differently there: this may be a copy of \
                         that store, whose lock nobody renews";

fn refused(name: &str, how: &str, why: &str, advice: &str) -> Failure {
    let message = format!(
        "`{}` is already {how} by an outer leasehold command or by this shell, and {why}; nothing \
         was changed; {advice}",
        escape(name)
    );
    Failure::config(message).about(name)
}

/// The locks among those of `args` that enclosing runs hold, and that the command joins.
pub(super) async fn join(
    context: &Context,
    client: &Client,
    chain: &Chain,
    args: &Run,
) -> Result<Vec<Joined>, Failure> {
    let mut joined = Vec::new();
    if chain.is_empty() {
        return Ok(joined);
    }
    let (store, namespace) = (client.store_label(), context.settings.namespace());
    for name in args.names.iter() {
        if joined.iter().any(|lock: &Joined| lock.name == *name) {
            return Err(twice(name));
        }
        let lock = LockId::new(&store, namespace, name);
        let Some(seen) = look(client, name).await? else {
            if may_have(client, chain, lock, name).await {
                return Err(refused(name, "held", BLIND, INNER_ADVICE));
            }
            continue;
        };
        let shows_all = view::shows_all(&seen);
        if let Some((outer, holder)) = find(chain, seen) {
            if outer.lock.is_some_and(|theirs| theirs != lock) {
                return Err(refused(name, "held", ELSEWHERE, INNER_ADVICE));
            }
            if let Some((how, why)) = why_not(args, &outer, &holder) {
                return Err(refused(name, how, why, INNER_ADVICE));
            }
            let Outer { token, fence, .. } = outer;
            joined.push(Joined { name: name.clone(), token, fence, holder: Some(holder) });
        } else if !shows_all && may_have(client, chain, lock, name).await {
            return Err(refused(name, "held", UNSEEN, INNER_ADVICE));
        } else if chain.was_given(lock) {
            return Err(lost(name));
        }
    }
    Ok(joined)
}

/// Whether a run above us, or this shell, may have the lock, although its lease cannot be seen. A
/// shell that released a lock keeps the variables. So this renews the lease of each of its tokens
/// for a second. A lease that is over stays over.
async fn may_have(client: &Client, chain: &Chain, lock: LockId, name: &str) -> bool {
    if chain.was_given(lock) {
        return true;
    }
    for token in chain.shell_tokens(name).iter().filter_map(|it| OwnerToken::new(it).ok()) {
        let lease = client.lease(name, token);
        let mut renewed = lease.renew(PROBE).await;
        // The connection for renewals may have been made meanwhile.
        if renewed.as_ref().is_err_and(Error::is_retryable) {
            renewed = lease.renew(PROBE).await;
        }
        if renewed.map_or_else(|error| error.kind() != ErrorKind::Lost, |()| true) {
            return true;
        }
    }
    false
}

/// For how long such a lease is renewed. Its answer may take a fraction of that.
const PROBE: Duration = Duration::from_secs(1);

fn twice(name: &str) -> Failure {
    let name = escape(name);
    Failure::config(format!("`{name}` was named twice; nothing was run; name each lock once"))
}

/// The failure if the enclosing run has lost the lock, and is about to stop us.
fn lost(name: &str) -> Failure {
    let message = format!(
        "`{}`: the outer leasehold command has lost this lock; nothing was run; start the outer \
         command again",
        escape(name)
    );
    Failure::new(Exit::LOST, ErrorKind::Lost.as_str(), message).about(name)
}

/// How an enclosing run or shell holds a lock, and why a run cannot join it.
fn why_not(args: &Run, outer: &Outer, holder: &Holder) -> Option<(&'static str, &'static str)> {
    let how = if holder.claim == Claim::Shared { "shared" } else { "held" };
    let why = match (holder.claim, args.take.claim()) {
        (Claim::Shared, Claim::Exclusive) => {
            "a share cannot become the whole lock: the outer command would wait for itself"
        }
        (Claim::Permits { want: has, of: all }, Claim::Permits { want, of }) if of == all => {
            if want <= has {
                return why_not_below(args, outer).map(|why| (how, why));
            }
            "the inner command wants more permits than the outer one has"
        }
        (Claim::Permits { .. }, Claim::Permits { .. }) => {
            "the two commands name different numbers of permits"
        }
        (Claim::Permits { .. }, _) | (_, Claim::Permits { .. }) => {
            "one of the two commands uses the name as a semaphore, and the other as a lock"
        }
        _ => return why_not_below(args, outer).map(|why| (how, why)),
    };
    Some((how, why))
}

fn why_not_below(args: &Run, outer: &Outer) -> Option<&'static str> {
    if args.once_per.is_some() || args.max_hold.is_some() {
        return Some("--once-per and --max-hold need a lock of their own");
    }
    let is_below = outer.keeper.is_some_and(|keeper| keeper.is_above_us());
    (!is_below).then_some(
        "waiting would never end; only a command that surely runs below `leasehold run` joins its \
         lock, since nothing would stop another command when the lock is lost",
    )
}

/// Says which locks are joined.
pub(super) fn say(context: &Context, joined: &[Joined]) {
    for Joined { name, .. } in joined {
        let text = "joined the lock of the outer leasehold command, which keeps and releases it";
        context.talk.notice(Level::Info, "joined", Some(name), text);
    }
}

/// Becomes the command. The keeper above us watches the command, so this process is not needed any
/// more. Returns only if that fails.
pub(super) fn become_command(
    context: &Context,
    client: &Client,
    args: &Run,
    joined: &[Joined],
) -> Failure {
    let words = &args.guarded.command;
    let (program, rest) = words.split_first().expect("the command line has one");
    let mut command = Command::new(program);
    command.args(rest);
    let mut env = match variables(context, client, joined) {
        Ok(env) => env,
        Err(failure) => return failure,
    };
    env.extend(times(joined));
    for (name, value) in env {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    stderr::finish();
    let error: io::Error = command.exec();
    let state = "the outer command still holds the lock";
    not_begun(words, &error, state).about_any(only(&args.names))
}

/// The times of the leases, as far as the store knows them.
fn times(joined: &[Joined]) -> [(&'static str, Option<String>); 2] {
    let holders = || joined.iter().filter_map(|lock| lock.holder.as_ref());
    let left = holders().filter_map(|holder| holder.ttl_left).min();
    let expires = left.map(|left| (SystemHost.wall() + left).as_unix_millis().to_string());
    let ttl = holders().filter_map(|holder| holder.ttl).min();
    [(EXPIRES_AT_MS, expires), (TTL_MS, ttl.map(|ttl| ttl.as_millis().to_string()))]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command must not believe that it has time until the last of its locks ends.
    #[test]
    fn a_command_that_joins_several_locks_is_told_the_end_of_the_first() {
        let joined = |ttl: Option<u64>, left: Option<u64>| {
            let mut holder = Holder::new("token");
            (holder.ttl, holder.ttl_left) =
                (ttl.map(Duration::from_secs), left.map(Duration::from_secs));
            let (name, token) = ("x".to_owned(), "token".to_owned());
            Joined { name, token, fence: None, holder: Some(holder) }
        };
        let own = Joined { holder: None, ..joined(None, None) };
        let now = SystemHost.wall().as_unix_millis();
        let [expires, ttl] =
            times(&[joined(Some(60), Some(3_000)), own, joined(Some(30), Some(500))]);
        assert_eq!(ttl, (TTL_MS, Some("30000".to_owned())));
        let expires: u64 = expires.1.expect("they end").parse().expect("a number");
        assert!(expires.abs_diff(now + 500_000) < 1_000_000, "{expires} is that of the first");
        assert_eq!(times(&[joined(None, None)]), [(EXPIRES_AT_MS, None), (TTL_MS, None)]);
    }
}
