//! Turns a refusal or a missing answer into advice for the caller.
//!
//! The kind also says whether a request may have taken effect: [`ErrorKind::Unknown`] if it may
//! have, any other kind if it granted nothing. Servers check rights, memory, role and slots before
//! a command, and in a script before its first write. Our scripts write the lock last. So a request
//! that is refused for such a reason is not applied, although it may have changed a counter or a
//! place. An error that is not in the table may have stopped a script halfway.

use super::codec::command::NoAnswer;
use crate::core::error::{Error, ErrorKind};
use crate::store::net::{Said, shown};

/// The error for a refusal. `code` is the first word of the answer, `text` is all of it.
pub(super) fn refusal(code: &str, text: &str) -> Error {
    let (kind, message) = explain(code, text);
    // The position in our script does not help users, unless nothing else is known.
    let said = if kind == ErrorKind::Unknown { text } else { without_script(code, text) };
    Error::new(kind, message).with_source(self::said(said))
}

/// The error for a request without an answer.
pub(super) fn no_answer(error: &NoAnswer) -> Error {
    match error {
        NoAnswer::Refused { code, text } => refusal(code, text),
        NoAnswer::NotSent { reason } => Error::new(
            ErrorKind::Unavailable,
            format!(
                "there is no connection to the server ({}); no request was sent; try again",
                shown(reason)
            ),
        ),
        NoAnswer::Broken { reason } => Error::new(
            ErrorKind::Unknown,
            format!(
                "the connection ended before the answer came ({}); the request may have taken \
                 effect; inspect the lock, or wait for one ttl",
                shown(reason)
            ),
        ),
    }
}

/// The text of the server, as the cause of an error.
pub(super) fn said(text: &str) -> Said {
    Said::new(shown(without_arguments(text)))
}

/// The text of the server, without the arguments of an unknown command, since they may be a
/// password or an owner token.
pub(super) fn without_arguments(text: &str) -> &str {
    text.split(", with args").next().unwrap_or_default()
}

fn explain(code: &str, text: &str) -> (ErrorKind, String) {
    let (code, text) = inside_script(code, text);
    let kind_and_message = match by_code(code) {
        Some(known) => known,
        None if code == "NOPERM" => return (ErrorKind::Denied, denied(text)),
        None if code == "ERR" => return by_text(text),
        None => return (ErrorKind::Unknown, UNKNOWN.to_owned()),
    };
    (kind_and_message.0, kind_and_message.1.to_owned())
}

/// The error inside a script, without the one or two prefixes that Redis before 7.0 adds:
/// `ERR Error running script (call to f_…): @user_script:1: @user_script: 1: -OOM command …`.
pub(super) fn inside_script<'a>(code: &'a str, text: &'a str) -> (&'a str, &'a str) {
    fn unwrapped(after: &str) -> Option<&str> {
        let (line, inner) = after.trim_start().split_once(':')?;
        let is_line = line.bytes().all(|byte| byte.is_ascii_digit());
        is_line.then(|| inner.trim_start())
    }
    let wrapped = || {
        let (_, after) = text.split_once("@user_script:")?;
        let mut inner = unwrapped(after)?;
        if let Some(after) = inner.strip_prefix("@user_script:") {
            inner = unwrapped(after)?;
        }
        let inner = inner.trim_start_matches('-');
        let code = inner.split(' ').next()?;
        let is_code = code.len() > 1 && code.bytes().all(|byte| byte.is_ascii_uppercase());
        Some(if is_code { (code, inner) } else { ("ERR", inner) })
    };
    if code == "ERR" { wrapped().unwrap_or((code, text)) } else { (code, text) }
}

/// The text of the server without the position in the script. Redis before 7.0 adds it in front,
/// later versions add it at the end, as in `… script: 74ea…, on @user_script:112.`
fn without_script<'a>(code: &'a str, text: &'a str) -> &'a str {
    let (_, inner) = inside_script(code, text);
    inner.split(" script: ").next().unwrap_or_default()
}

const UNKNOWN: &str = "the server answered with an error that Leasehold does not know; the request \
                       may have taken effect; see the cause, and inspect the lock";

/// Refusals that are known by their first word.
fn by_code(code: &str) -> Option<(ErrorKind, &'static str)> {
    to_be_put_right(code)
        .or_else(|| to_be_waited_for(code).map(|text| (ErrorKind::Unavailable, text)))
}

/// Refusals that last until somebody changes something.
fn to_be_put_right(code: &str) -> Option<(ErrorKind, &'static str)> {
    Some(match code {
        "WRONGTYPE" => (
            ErrorKind::Config,
            "the key is not a lock of this kind: it, or one of its companion keys, holds data of \
             another type; nothing was granted and the data is untouched; choose another name or \
             namespace",
        ),
        "NOAUTH" => (
            ErrorKind::Denied,
            "the server requires a password; nothing was changed; write it into the URL as in \
             `redis://USER:PASSWORD@HOST`, or `redis://:PASSWORD@HOST` without a user",
        ),
        "WRONGPASS" => (
            ErrorKind::Denied,
            "the server does not accept this user and password, or the user is disabled; nothing \
             was changed; correct them in the URL (special characters are percent-encoded)",
        ),
        "DENIED" => (
            ErrorKind::Denied,
            "the server is in protected mode and accepts only connections from its own machine; \
             nothing was changed; set a password on the server, or connect from that machine",
        ),
        "MOVED" | "ASK" | "CROSSSLOT" => (
            ErrorKind::Config,
            "this server belongs to a Redis Cluster, and another node has the slot of this name; \
             nothing was changed; write `redis+cluster://` in the URL",
        ),
        _ => return None,
    })
}

/// Refusals that may be over after a while.
fn to_be_waited_for(code: &str) -> Option<&'static str> {
    Some(match code {
        "LOADING" => "the server is loading its data; nothing was changed; try again in a moment",
        "MASTERDOWN" => {
            "the server is a replica that has lost its primary; nothing was changed; connect to \
             the primary"
        }
        "READONLY" => {
            "the server is a replica and takes no writes; nothing was changed; connect to the \
             primary, or try again if a failover is going on"
        }
        "OOM" => {
            "the server is out of memory (`maxmemory`); nothing was changed. Held leases can still \
             be renewed and released. Give the server more memory, or remove data"
        }
        "MISCONF" => {
            "the server cannot save its data to disk and so takes no writes; nothing was changed \
             and leases cannot be renewed; check its disk and its log"
        }
        "BUSY" => {
            "the server is busy with another client's script, which does not end; nothing was \
             changed; end it with `SCRIPT KILL`"
        }
        "NOREPLICAS" => {
            "the server has fewer replicas than its `min-replicas-to-write` demands; nothing was \
             changed; bring them back, or try again"
        }
        "CLUSTERDOWN" => {
            "the Redis Cluster of this server is down or does not serve this name; nothing was \
             changed; bring it back (`CLUSTER INFO` says what is missing), or try again"
        }
        "TRYAGAIN" => {
            "the Redis Cluster is just moving the slot of this name to another node; nothing was \
             changed; try again, or make sure that the move ends"
        }
        "NOSCRIPT" => "the server has forgotten the script; nothing was changed; try again",
        _ => return None,
    })
}

/// Refusals that begin with `ERR` and are known by their text.
fn by_text(text: &str) -> (ErrorKind, String) {
    let says = |words: &str| text.to_ascii_lowercase().contains(words);
    let (kind, message) = if says("the user executing the script can't") || says("no permissions") {
        return (ErrorKind::Denied, denied(text));
    } else if says("max number of clients") || says("max clients") {
        (
            ErrorKind::Unavailable,
            "the server has as many clients as it takes (`maxclients`); nothing was changed; close \
             some, or raise the limit",
        )
    } else if says("db index is out of range") || says("invalid db index") {
        (
            ErrorKind::Config,
            "the server has no database of this number; nothing was changed; correct the number \
             at the end of the URL, or raise `databases` on the server",
        )
    } else if says("select is not allowed in cluster mode") {
        (
            ErrorKind::Config,
            "this server belongs to a Redis Cluster, which has only the database 0; nothing was \
             changed; write `redis+cluster://` in the URL, and no database",
        )
    } else if says("cluster support disabled") {
        (
            ErrorKind::Config,
            "this server is not a node of a Redis Cluster; nothing was changed; write `redis://` \
             in the URL, or correct the host and the port",
        )
    } else if says("without any password configured") || says("no password is set") {
        (
            ErrorKind::Denied,
            "the URL has a password, but the server's default user has none; nothing was changed; \
             name the user, or remove the password from the URL",
        )
    } else if says("scripting engine") {
        (ErrorKind::Unsupported, NO_ENGINE)
    } else if says("from script") || says("@user_script") {
        // The error is somewhere in a script, which may have written before.
        (ErrorKind::Unknown, UNKNOWN)
    } else if says("unknown command") || says("unsupported command") {
        return (ErrorKind::Unsupported, unsupported(text));
    } else {
        (ErrorKind::Unknown, UNKNOWN)
    };
    (kind, message.to_owned())
}

/// Names the missing right, as far as the text tells.
fn denied(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    if let Some(command) = quoted(text).filter(|command| is_of_scripts(command)) {
        return format!(
            "the user has no right to run the command `{}`, so it cannot run scripts; nothing was \
             granted; allow the user `+eval +evalsha`, or {WITHOUT_SCRIPTS}",
            shown(command)
        );
    }
    let what = if let Some(command) = quoted(text) {
        format!("run the command `{}`", shown(command))
    } else if lower.contains("channel") {
        "use the channel by which clients are woken (`:lh:inbox:*`)".to_owned()
    } else if lower.contains("key") {
        "use the key of this lock, or its companion keys (`*:lh:*`)".to_owned()
    } else {
        "run one of the commands that a lock needs".to_owned()
    };
    format!(
        "the user has no right to {what}; nothing was granted; have the right added (`ACL \
         SETUSER`), or name another user in the URL"
    )
}

/// Advice for a server without scripts.
const WITHOUT_SCRIPTS: &str = "use a `Mutex` that is `unqueued().fencing(false)`: Valkey 9.0 and \
                               Redis 8.4 keep it by `SET` and `DELIFEQ` or `DELEX` alone (the \
                               command `leasehold` has no such locks)";

/// Valkey 9.1 runs scripts by a module, which may be absent.
const NO_ENGINE: &str = "the server has no engine for scripts; nothing was changed; load the \
                         module `lua`, or use another server";

fn is_of_scripts(command: &str) -> bool {
    ["eval", "evalsha"].iter().any(|name| command.eq_ignore_ascii_case(name))
}

fn unsupported(text: &str) -> String {
    if let Some(command) = quoted(text).filter(|command| is_of_scripts(command)) {
        return format!(
            "the server does not know the command `{}`, so it has no scripts; nothing was changed; \
             write `redis+sentinel://` for sentinels, use another server, or {WITHOUT_SCRIPTS}",
            shown(command)
        );
    }
    let command = quoted(text).map_or_else(String::new, |command| format!(" `{}`", shown(command)));
    format!(
        "the server does not know the command{command}: it is disabled, or this is neither Valkey \
         nor Redis 6.2 or later; nothing was changed; use another server, and write \
         `redis+sentinel://` for sentinels"
    )
}

/// The name of a command, which servers quote.
fn quoted(text: &str) -> Option<&str> {
    let (_, after) = without_arguments(text).split_once(['\'', '`'])?;
    let name = &after[..after.find(['\'', '`'])?];
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '|' | '-' | '_' | '.');
    (!name.is_empty() && name.chars().all(is_name)).then_some(name)
}

#[cfg(test)]
mod tests;
