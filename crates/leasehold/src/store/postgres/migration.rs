//! The migration: it makes the tables and functions of a store.

use std::sync::Arc;

use super::connect::{Facts, PostgresConnector};
use super::error::{failure, is_refusal};
use super::schema::{BUILD, script};
use crate::core::error::{Error, ErrorKind};
use crate::host::Host;
use crate::store::net::Said;
use crate::store::sql::errors::{Stage, said};
use crate::store::sql::{Engine as _, Migrated, version_before};

/// Makes the tables and functions of a store in the database and schema of the URL, or brings those
/// of an older version up to date.
///
/// Running it again changes nothing. Locks may be in use meanwhile, and [`Migrated`] says which
/// builds may go on. For the first migration, the user must be allowed to create the schema (`GRANT
/// CREATE ON DATABASE`). For later ones, it must own the schema, its tables and its functions.
/// Users of locks need less:
///
/// ```sql
/// GRANT USAGE ON SCHEMA leasehold TO app;
/// GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold TO app;
/// ```
///
/// # Errors
///
/// - [`Config`](ErrorKind::Config) for an invalid URL, a server before PostgreSQL 13, or tables of
///   a newer version.
/// - [`Denied`](ErrorKind::Denied) for a wrong password or a missing right.
/// - [`Unavailable`](ErrorKind::Unavailable) if the server cannot be reached, or another
///   transaction keeps a table for seconds. Nothing was changed; if the kind is
///   [`Unknown`](ErrorKind::Unknown), perhaps everything was.
///
/// # Cancel safety
///
/// The migration is done as a whole or not at all.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), leasehold::Error> {
/// use leasehold::host::SystemHost;
/// use leasehold::store::postgres::migrate;
///
/// let done = migrate("postgres://owner:secret@db/app", SystemHost::shared()).await?;
/// println!("{} has tables of version {}", done.store, done.version);
/// # Ok(()) }
/// ```
pub async fn migrate(url: &str, host: Arc<dyn Host>) -> Result<Migrated, Error> {
    let connector = PostgresConnector::new(url)?;
    host.start()?;
    let migrating = async {
        let mut link = connector.log_in_within_limit(&host).await?;
        Facts::read(&mut link).await?.check()?;
        let before = version_before(connector.found(&mut link).await, BUILD).map_err(advise)?;
        let Err(error) = link.ask(&script(&connector.address)).await else { return Ok(before) };
        if is_refusal(&error) {
            // Perhaps a newer build has migrated meanwhile. This error says so.
            version_before(connector.found(&mut link).await, BUILD).map_err(advise)?;
        }
        Err(advise(failure(&error, Stage::Asking)))
    };
    // On the heap, because it is large.
    Migrated::by(&host, (connector.label(), BUILD), Box::pin(migrating)).await
}

/// Replaces the advice in an error about rights, which is for users of locks, by advice for those
/// who migrate.
fn advise(error: Error) -> Error {
    if error.kind() != ErrorKind::Denied {
        return error;
    }
    let message = "this user has no right to create the schema, its tables or its functions; \
                   nothing was changed; migrate as the owner of all three, or, if there is no \
                   schema yet, as a user who may create one";
    let text = said(&error).map(|said| said.text.clone()).unwrap_or_default();
    Error::new(ErrorKind::Denied, message).with_source(Said::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_who_may_not_migrate_is_not_told_of_the_rights_for_locks() {
        let source = Said::new("permission denied for database".to_owned());
        let denied = Error::new(ErrorKind::Denied, "`GRANT USAGE ON SCHEMA`").with_source(source);
        let refused = advise(denied);
        let cause = std::error::Error::source(&refused).expect("a cause").to_string();
        assert!(cause.contains("permission denied for database"), "{cause}");
        assert!(!refused.to_string().contains("GRANT") && !cause.contains("GRANT"), "{cause}");
        let other = advise(Error::new(ErrorKind::Unavailable, "no connection"));
        assert_eq!((other.kind(), other.message()), (ErrorKind::Unavailable, "no connection"));
    }
}
