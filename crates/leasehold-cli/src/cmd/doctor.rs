//! `leasehold doctor`: checks that the store keeps locks safely.

use leasehold::doctor::{Check, Diagnosis, Verdict, acl_rules, diagnose};
use leasehold::host::SystemHost;
use serde_json::json;

use super::Context;
use crate::args::Doctor;
use crate::exit::{Exit, Failure};
use crate::output::{escape, print, print_object};

/// The server that the rule is printed for if none is named.
const ANY_SERVER: &str = "redis://localhost";

/// Examines the store and prints each check, or prints a rule for a user of it.
pub(crate) async fn doctor(context: &Context, args: &Doctor) -> Result<Exit, Failure> {
    let (ttl, namespace) = (args.ttl.ttl(None)?, context.settings.namespace());
    if let Some(prefix) = &args.print_acl {
        let prefix = namespace.map_or_else(|| prefix.clone(), |it| format!("{it}:{prefix}"));
        let mut rules = acl_rules(context.settings.urls(), &prefix)?;
        if rules.is_empty() {
            if context.settings.names_a_store() {
                let message = "--print-acl is for Redis and Valkey, and no URL names one; nothing \
                               was done; docs/stores.md lists the rights for other stores";
                return Err(Failure::config(message));
            }
            rules = acl_rules(&[ANY_SERVER], &prefix)?;
        }
        return print_rules(context, &rules);
    }
    let urls = context.settings.chosen(&context.talk)?;
    let found = diagnose(urls, namespace, ttl, SystemHost::shared()).await?;
    if context.json {
        print_object("doctor", object(&found))?;
    } else {
        print(&text(&found))?;
    }
    Ok(exit(&found, args.strict))
}

fn print_rules(context: &Context, rules: &[String]) -> Result<Exit, Failure> {
    if context.json {
        print_object("acl", json!({ "rules": rules }))?;
    } else {
        let lines: Vec<_> = rules.iter().map(|rule| escape(rule) + "\n").collect();
        print(&lines.concat())?;
    }
    Ok(Exit::OK)
}

fn exit(found: &Diagnosis, strict: bool) -> Exit {
    if found.has(Verdict::Fail) {
        Exit::FAILED
    } else if strict && (found.has(Verdict::Warn) || found.has(Verdict::Unknown)) {
        Exit::WARNED
    } else {
        Exit::OK
    }
}

fn object(found: &Diagnosis) -> serde_json::Value {
    let check = |check: &Check| {
        json!({
            "id": check.id,
            "verdict": check.verdict.as_str(),
            "node": if check.node.is_empty() { None } else { Some(&check.node) },
            "evidence": check.evidence,
            "why": check.why,
            "remedy": check.remedy,
        })
    };
    json!({
        "checks": found.checks.iter().map(check).collect::<Vec<_>>(),
        "survives": found.survives,
        "does_not_survive": found.does_not_survive,
        "fencing": found.fencing,
    })
}

/// A paragraph for each store, with the reason and the remedy of each check that is not fine.
fn text(found: &Diagnosis) -> String {
    let width = found.checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
    let mut text = String::new();
    let mut node = None;
    for check in &found.checks {
        if node != Some(&check.node) {
            let head = if check.node.is_empty() { "all nodes" } else { &check.node };
            text.push_str(&format!("{}\n", escape(head)));
            node = Some(&check.node);
        }
        let (verdict, evidence) = (check.verdict.as_str().to_uppercase(), escape(&check.evidence));
        text.push_str(&format!("  {verdict:<8}{:<width$}  {evidence}\n", check.id));
        if check.verdict != Verdict::Ok {
            text.push_str(&format!("          why: {}\n", check.why));
            if let Some(remedy) = &check.remedy {
                text.push_str(&format!("          fix: {}\n", escape(remedy)));
            }
        }
    }
    // An unreachable store says nothing about the deployment.
    if found.survives.is_empty() {
        return text + "\nThe store grants no locks now. Repair what failed, and run this again.\n";
    }
    let list = |events: &[&str]| {
        let events: Vec<_> = events.iter().map(|event| format!("  - {event}\n")).collect();
        events.concat()
    };
    text.push_str(&format!(
        "\nIn this deployment the lock survives:\n{}It does not survive:\n{}Use fencing: {}\n",
        list(&found.survives),
        list(&found.does_not_survive),
        if found.fencing { "yes" } else { "no" }
    ));
    text
}
