//! `leasehold migrate`: makes the tables of a PostgreSQL or MySQL store.

use leasehold::host::SystemHost;
use leasehold::store::postgres::Migrated;
use leasehold::store::redact_url;
use leasehold::store::{mysql, postgres};
use serde_json::json;

use super::Context;
use crate::exit::{Exit, Failure};
use crate::output::print_object;
use crate::talk::Level;
use crate::urls::after_scheme;

/// Migrates each database that is named.
pub(crate) async fn migrate(context: &Context) -> Result<Exit, Failure> {
    for url in context.settings.urls() {
        if !is_mysql(url) && !is_postgres(url) {
            return Err(Failure::config(format!(
                "`{}` has no tables that must be made; nothing was changed; name a PostgreSQL \
                 or MySQL store, as in --url postgres://USER@HOST/DATABASE",
                redact_url(url)
            )));
        }
    }
    let mut done = Vec::new();
    for url in context.settings.chosen(&context.talk)? {
        let host = SystemHost::shared();
        done.push(match is_mysql(url) {
            true => mysql::migrate(url, host).await?,
            false => postgres::migrate(url, host).await?,
        });
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

fn is_mysql(url: &str) -> bool {
    ["mysql", "mariadb"].iter().any(|it| after_scheme(url, it).is_some())
}

fn is_postgres(url: &str) -> bool {
    ["postgres", "postgresql"].iter().any(|it| after_scheme(url, it).is_some())
}

fn object(node: &Migrated) -> serde_json::Value {
    let Migrated { store, before, version, serves, .. } = node;
    json!({ "store": store, "before": before, "version": version, "serves": serves })
}

fn text(node: &Migrated) -> String {
    let Migrated { store, before, version, serves, .. } = node;
    match before {
        None => format!("{store}: the tables were made, version {version}"),
        Some(before) if before == version => {
            format!("{store}: the tables are of version {version}; their functions were renewed")
        }
        Some(before) => format!(
            "{store}: the tables were of version {before}, and are of {version}; they serve builds \
             from version {serves} on"
        ),
    }
}
