//! `leasehold migrate`: makes the tables of a PostgreSQL store.

use leasehold::host::SystemHost;
use leasehold::store::postgres::{Migrated, migrate as migrate_url};
use leasehold::store::redact_url;
use serde_json::json;

use super::Context;
use crate::exit::{Exit, Failure};
use crate::output::print_object;
use crate::talk::Level;
use crate::urls::after_scheme;

/// Migrates each database that is named.
pub(crate) async fn migrate(context: &Context) -> Result<Exit, Failure> {
    let (urls, _) = context.settings.named();
    for url in urls {
        let is_database =
            ["postgres", "postgresql"].iter().any(|it| after_scheme(url, it).is_some());
        if !is_database {
            return Err(Failure::config(format!(
                "`{}` has no tables that must be made; nothing was changed; name a PostgreSQL \
                 store, as in --url postgres://USER@HOST/DATABASE",
                redact_url(url)
            )));
        }
    }
    let mut done = Vec::new();
    for url in urls {
        done.push(migrate_url(url, SystemHost::shared()).await?);
    }
    if context.json {
        let nodes: Vec<_> = done.iter().map(object).collect();
        print_object("migration", json!({ "nodes": nodes }))?;
        return Ok(Exit::OK);
    }
    for node in &done {
        context.talk.notice(Level::Info, "migrated", None, &text(node));
    }
    Ok(Exit::OK)
}

fn object(node: &Migrated) -> serde_json::Value {
    json!({ "store": node.store, "before": node.before, "version": node.version })
}

fn text(node: &Migrated) -> String {
    let Migrated { store, before, version, .. } = node;
    match before {
        None => format!("{store}: the tables were made, version {version}"),
        Some(before) if before == version => {
            format!("{store}: the tables are of version {version}; their functions were renewed")
        }
        Some(before) => {
            format!("{store}: the tables were of version {before}, and are of {version}")
        }
    }
}
