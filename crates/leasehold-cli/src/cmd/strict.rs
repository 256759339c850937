//! `leasehold strict`: switches databases to strict mode, switches it off, and shows its state.

use leasehold::Identity;
use leasehold::host::SystemHost;
use leasehold::store::Quarantine;
use leasehold::strict::{Act, Node, Order, State, Strictness, status, switch};
use serde_json::json;

use super::Context;
use crate::args::{Strict, Switching};
use crate::exit::{Exit, Failure};
use crate::output::{clock, escape, print, print_object, rfc3339};
use crate::view::millis;

/// The effects of strict mode from now on.
const ON_MEANS: &str = "
What this means:
  - A client whose URL says nothing about `strict` is strict when it starts.
  - A client that runs already is refused when it reconnects, and loses the locks that it holds:
    switch while no lock is held, and restart the clients.
  - Leases longer than 60 s that were granted before are not covered by a quarantine.
  - A client with `strict=no` in its URL is refused when it connects.
  - The longest ttl is 60 s, lock delay included.
  - If the server may have forgotten leases, the first client that asks for a lock begins a
    quarantine of 65 s.
  - A server that comes back empty has forgotten this switch too. Write `strict=yes` into the URLs
    if the server keeps no file.
  - A replica that takes over before it has copied the switch does not know of it.
";

/// The effects of switching the mode off.
const OFF_MEANS: &str = "
What this means:
  - A client whose URL says nothing about `strict` is not strict when it starts. One that is strict
    already stays strict: start it again.
  - A client with `strict=yes` in its URL stays strict, but keeps nobody else out.
  - A server that forgets its leases may give a lock to a second holder.
";

/// Switches the databases, or shows their state, and prints each of them.
pub(crate) async fn strict(context: &Context, args: &Strict) -> Result<Exit, Failure> {
    let urls = context.settings.chosen(&context.talk)?;
    let (order, means) = match args {
        Strict::On(Switching { why }) => {
            (Some(Order::on(&Identity::process(), text(why.as_ref()))?), ON_MEANS)
        }
        Strict::Off(Switching { why }) => {
            (Some(Order::off(&Identity::process(), text(why.as_ref()))?), OFF_MEANS)
        }
        Strict::Status => (None, ""),
    };
    let nodes = match &order {
        Some(order) => switch(urls, order, SystemHost::shared()).await?,
        None => status(urls, SystemHost::shared()).await?,
    };
    if context.json {
        print_object("strict", json!({ "nodes": nodes.iter().map(object).collect::<Vec<_>>() }))?;
    } else {
        let is_one = nodes.len() == 1;
        // If there is one node, its failure is only told on stderr.
        let told = nodes.iter().filter(|node| node.state.is_ok() || !is_one);
        let lines: Vec<_> = told.map(|node| lines(node, order.is_some())).collect();
        let is_done = nodes.iter().any(|node| node.state.is_ok());
        print(&[lines.concat(), if is_done { means.to_owned() } else { String::new() }].concat())?;
    }
    failed(&nodes, order.is_some()).map_or(Ok(Exit::OK), Err)
}

fn text(why: Option<&String>) -> &str {
    why.map_or("", String::as_str)
}

/// The failure of all nodes, with the exit code of the first one that failed.
fn failed(nodes: &[Node], is_order: bool) -> Option<Failure> {
    let errors = nodes.iter().filter_map(|node| Some((&node.label, node.state.as_ref().err()?)));
    let errors: Vec<_> = errors.collect();
    let (_, first) = errors.first()?;
    let failure = Failure::from((*first).clone());
    if nodes.len() == 1 {
        return Some(failure);
    }
    let said: Vec<_> = errors
        .iter()
        .map(|(label, error)| {
            let message = Failure::from((*error).clone()).message;
            if message.contains(label.as_str()) { message } else { format!("{label}: {message}") }
        })
        .collect();
    let others = if errors.len() == nodes.len() { "" } else { "; the others are as shown" };
    let next = if is_order {
        "; run the same command again: it changes nothing that is done already"
    } else {
        ""
    };
    let (count, all) = (errors.len(), nodes.len());
    let message = format!("{count} of {all} servers failed{others}{next}; {}", said.join(" | "));
    Some(Failure { message, ..failure })
}

fn object(node: &Node) -> serde_json::Value {
    let state = node.state.as_ref();
    let act = state.ok().and_then(|state| state.act.as_ref());
    let quarantine = state.ok().map(|state| state.quarantine.as_ref());
    let told = |text: &String| if text.is_empty() { None } else { Some(text.clone()) };
    let failure = |error: &leasehold::Error| {
        json!({
            "kind": error.kind().as_str(),
            "message": Failure::from(error.clone()).message,
        })
    };
    json!({
        "node": node.label,
        "on": state.ok().map(State::is_on),
        "changed": state.ok().map(|state| state.is_changed),
        "since": act.and_then(|act| act.at).map(rfc3339),
        "who": act.and_then(|act| told(&act.who)),
        "why": act.and_then(|act| told(&act.why)),
        "expected": state.ok().map(|state| expected(state.expected)),
        "quarantine": quarantine.and_then(Result::ok).and_then(Option::as_ref).map(|it| json!({
            "since_ms": it.since.map(millis),
            "left_ms": millis(it.left),
        })),
        "quarantine_error": quarantine.and_then(Result::err).map(failure),
        "error": state.err().map(failure),
    })
}

const fn expected(strictness: Strictness) -> &'static str {
    match strictness {
        Strictness::No => "no",
        Strictness::AsDatabase => "as-database",
        Strictness::Yes(_) => "yes",
    }
}

/// One paragraph for each node.
fn lines(node: &Node, is_order: bool) -> String {
    let label = escape(&node.label);
    let state = match &node.state {
        Ok(state) => state,
        Err(_told_on_stderr) => return format!("{label}: failed\n"),
    };
    let act = state.act.as_ref();
    let mode = if state.is_on() { "on" } else { "off" };
    let mut text = if state.is_changed {
        format!("{label}: strict mode is now {mode}\n")
    } else if is_order {
        format!("{label}: strict mode was {mode} already, and nothing was changed\n")
    } else {
        format!("{label}: strict mode is {mode}\n")
    };
    let mut line = |head: &str, rest: String| text.push_str(&format!("  {head:<11} {rest}\n"));
    match act {
        Some(act) => line("switched", switched(act)),
        None => line("switched", "never, as far as the database knows".to_owned()),
    }
    if let Some(act) = act.filter(|act| !act.why.is_empty()) {
        line("why", escape(&act.why));
    }
    match &state.quarantine {
        Ok(None) => {}
        Ok(Some(quarantine)) if state.is_on() => line("quarantine", left(quarantine)),
        Ok(Some(quarantine)) => {
            line("quarantine", format!("for clients with `strict=yes`: {}", left(quarantine)));
        }
        Err(error) => {
            let message = Failure::from(error.clone()).message;
            line("quarantine", format!("not known: {}", escape(&message)));
        }
    }
    if !is_order {
        line("this URL", meaning(state).to_owned());
    }
    text
}

/// `on since 14:02:11 +01:00 by anna@web-3`.
fn switched(act: &Act) -> String {
    let mode = if act.is_on { "on" } else { "off" };
    let now = leasehold::host::Host::wall(&*SystemHost::shared());
    let at = act.at.map(|at| format!(" at {}", clock(at, now))).unwrap_or_default();
    let who = if act.who.is_empty() { "somebody by hand" } else { &act.who };
    format!("{mode}{at} by {}", escape(who))
}

fn left(quarantine: &Quarantine) -> String {
    match quarantine.since {
        None => format!("{quarantine}, from the first lock that a client asks for"),
        Some(_) => quarantine.to_string(),
    }
}

/// Says whether clients with this URL are strict, not strict, or refused.
fn meaning(state: &State) -> &'static str {
    match (state.expected, state.is_on()) {
        (Strictness::Yes(_), true) => "says `strict=yes`: its clients are strict",
        (Strictness::Yes(_), false) => {
            "says `strict=yes`: its clients are strict, but clients without `strict=yes` are not \
             kept out; `leasehold strict on` does that"
        }
        (Strictness::AsDatabase, true) => "does not set `strict`: its clients are strict",
        (Strictness::AsDatabase, false) => "does not set `strict`: its clients are not strict",
        (Strictness::No, true) => {
            "says `strict=no`: its clients are refused; leave `strict` out of it"
        }
        (Strictness::No, false) => "says `strict=no`: its clients are not strict",
    }
}
