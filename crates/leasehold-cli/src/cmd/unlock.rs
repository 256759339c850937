//! `leasehold unlock NAME`: ends somebody else's lease, with care, or asks its holder to let go.

use std::io::{BufRead as _, IsTerminal as _};

use leasehold::host::{Host as _, SystemHost};
use leasehold::store::{Evicted, Holder};
use leasehold::{Client, Identity, Snapshot};
use serde_json::json;

use super::Context;
use super::revoke;
use crate::args::Unlock;
use crate::exit::{Exit, Failure};
use crate::output::{escape, print_object};
use crate::talk::Level;
use crate::view;

/// Ends exactly the lease that was shown.
pub(crate) async fn unlock(context: &Context, args: &Unlock) -> Result<Exit, Failure> {
    if args.why.trim().is_empty() {
        return Err(Failure::config("--why is empty; nothing was done; give a reason for the log"));
    }
    let client = context.settings.connect_to_existing(Identity::process(), &context.talk).await?;
    let mut seen = client.inspect(&args.name).await?;
    if seen.holders.is_empty() {
        context.talk.notice(
            Level::Info,
            "nothing-held",
            Some(&args.name),
            "nobody holds it; nothing was done",
        );
        return done(context, args, 0, 0);
    }
    let shows_all = view::shows_all(&seen);
    seen.holders.retain(|holder| is_meant(args, holder));
    if seen.holders.is_empty() {
        let what = if shows_all {
            "it is held by a token that does not begin with the given one; nothing was done"
                .to_owned()
        } else {
            format!(
                "no holder that is shown has a token that begins with the given one; {}; nothing \
                 was done",
                view::left_out()
            )
        };
        return Err(changed(context, args, &what));
    }
    if args.ask {
        return ask_to_let_go(context, args, &client, &seen.holders, shows_all).await;
    }
    if let Some(card) = view::card(&args.name, &seen, SystemHost.wall(), None)
        && !context.json
    {
        context.talk.lines(Level::Warning, &card);
    }
    if !args.yes {
        confirm(context, args, &seen)?;
    }
    let mut ended = 0;
    for holder in &seen.holders {
        let who = view::who(holder.client.as_ref());
        // Do not say that nothing was done, since a minority of a quorum may have ended its part of
        // the lease.
        if client.evict(&args.name, &holder.token, &args.why).await? == Evicted::Changed {
            let text = format!("the lease of {who} had already ended");
            context.talk.notice(Level::Info, "let-go", Some(&args.name), &text);
            continue;
        }
        ended += 1;
        let (why, effect) = (&args.why, effect_of_end(holder));
        let text = format!("the lease of {who} was ended (why: {why}); {effect}");
        context.talk.notice(Level::Info, "unlocked", Some(&args.name), &text);
    }
    if ended == 0 {
        return Err(changed(
            context,
            args,
            "the lease that was shown has already ended; no other lease was ended",
        ));
    }
    if !shows_all {
        say_left_out(context, args);
    }
    done(context, args, ended, 0)
}

/// Asks the holders that were chosen to let go, and waits for that as long as the user wants.
async fn ask_to_let_go(
    context: &Context,
    args: &Unlock,
    client: &Client,
    chosen: &[Holder],
    shows_all: bool,
) -> Result<Exit, Failure> {
    // Before the requests, because their time counts as part of `--wait`.
    let until = SystemHost.now() + args.wait.unwrap_or_default();
    let asked = revoke::ask(context, args, client, chosen).await?;
    if !shows_all {
        say_left_out(context, args);
    }
    if asked.is_empty() {
        let what = "the holder that was seen has let go already; nobody was asked";
        return Err(changed(context, args, what));
    }
    let ended = revoke::wait(context, args, client, &asked, until).await?;
    done(context, args, ended, asked.len())
}

/// How the former holder learns that its lease was ended.
fn effect_of_end(holder: &Holder) -> &'static str {
    if holder.idle {
        "no work held it"
    } else if view::may_be_foreign(holder) {
        "if it uses another library, it may never learn of this"
    } else {
        "its former holder learns of it at its next renewal"
    }
}

/// Warns that there may be more holders than this command has dealt with.
fn say_left_out(context: &Context, args: &Unlock) {
    let text = format!("{}; run this again when these have let go", view::left_out());
    context.talk.notice(Level::Warning, "holders-left-out", Some(&args.name), &text);
}

fn is_meant(args: &Unlock, holder: &Holder) -> bool {
    let Some(hint) = &args.token else { return true };
    !hint.is_empty()
        && (holder.token.starts_with(hint.as_bytes())
            || in_hexadecimal(hint).is_some_and(|bytes| holder.token.starts_with(&bytes)))
}

/// The bytes of a hint such as `0xff1b6162`: what `inspect` shows of a token that is not text.
fn in_hexadecimal(hint: &str) -> Option<Vec<u8>> {
    let digits = hint.strip_prefix("0x").filter(|digits| !digits.is_empty())?.as_bytes();
    let value =
        |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let bytes = digits.chunks(2).map(|pair| match pair {
        [high, low] => Some(value(*high)? * 16 + value(*low)?),
        _ => None,
    });
    bytes.collect()
}

fn changed(context: &Context, args: &Unlock, what: &str) -> Failure {
    let (name, word) = (escape(&args.name), context.settings.words(&args.name));
    let message = format!("`{name}`: {what}; see `leasehold inspect {word}` and decide again");
    Failure::new(Exit::TAKEN, "changed", message).about(&args.name)
}

/// Asks the user to type the name, since many users press `y` without reading.
fn confirm(context: &Context, args: &Unlock, seen: &Snapshot) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new(
            Exit::USAGE,
            "usage",
            format!(
                "unlocking `{}` needs a confirmation, but there is no terminal to ask on; nothing \
                 was done; add --yes if its holder is dead",
                escape(&args.name)
            ),
        )
        .about(&args.name));
    }
    context.talk.notice(
        Level::Warning,
        "confirm",
        Some(&args.name),
        if view::is_endless(seen) {
            "its lease has no end, so the key may hold data that is not a lock; type the name to \
             delete the key:"
        } else if view::is_idle(seen) {
            "its work has ended, and others may start once the lock is free; type the name to \
             free it:"
        } else if seen.holders.len() > 1 {
            "each of these holders may still act until it notices; type the name to end the leases \
             of all of them:"
        } else {
            "its holder may still act until it notices; type the name to end its lease:"
        },
    );
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    if read.is_ok() && line.trim_end_matches(['\n', '\r']) == &*args.name {
        return Ok(());
    }
    Err(Failure::new(
        Exit::USAGE,
        "usage",
        format!(
            "not confirmed: the name was not typed; nothing was done; see `leasehold inspect {}`",
            context.settings.words(&args.name)
        ),
    )
    .about(&args.name))
}

/// Prints how many leases were ended. With `--ask`, it also prints how many holders were asked.
fn done(context: &Context, args: &Unlock, ended: usize, asked: usize) -> Result<Exit, Failure> {
    if context.json {
        let mut answer = json!({ "name": &*args.name, "ended": ended });
        if args.ask {
            answer["asked"] = asked.into();
        }
        print_object("unlock", answer)?;
    }
    Ok(Exit::OK)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::args::{Command, Parsed, parse};

    /// A variable of a script may be empty.
    #[test]
    fn a_hint_means_the_tokens_that_begin_with_it_and_an_empty_one_means_none() {
        for (flag, token, is_its) in [
            ("--force", &b"abcd"[..], true),
            ("--token=abc", b"abcd", true),
            ("--token=abcd", b"abcd", true),
            ("--token=abcde", b"abcd", false),
            ("--token=bcd", b"abcd", false),
            ("--token=0xff1b", b"\xff\x1ba", true),
            ("--token=0xff1b", b"a\xff\x1b", false),
            ("--token=", b"abcd", false),
            ("--token=0x", b"abcd", false),
        ] {
            let words = ["leasehold", "unlock", "x", flag, "--why", "y"].map(OsString::from);
            let Ok(Parsed::Invocation(invocation)) = parse(words) else { panic!("{flag}") };
            let Command::Unlock(args) = invocation.command else { panic!("{flag}") };
            assert_eq!(is_meant(&args, &Holder::new(token)), is_its, "{flag} {token:?}");
        }
    }

    #[test]
    fn a_hint_in_hexadecimal_is_read_byte_by_byte() {
        for (hint, bytes) in [
            ("0xff1b61", Some(&b"\xff\x1ba"[..])),
            ("0xFF", Some(b"\xff")),
            ("0x", None),
            ("0xf", None),
            ("0xfg", None),
            ("0x+1", None),
            ("ff", None),
        ] {
            assert_eq!(in_hexadecimal(hint).as_deref(), bytes, "{hint}");
        }
    }
}
