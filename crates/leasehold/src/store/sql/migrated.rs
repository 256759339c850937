//! The result of a migration, and the part that the migrations of all engines share.

use std::sync::Arc;
use std::time::Duration;

use super::version::{Build, Found};
use crate::core::error::{Error, ErrorKind};
use crate::host::Host;
use crate::store::within;

/// How long a migration may take. It may wait for another one, and for tables that are in use.
const LIMIT: Duration = Duration::from_secs(120);

/// The result of a migration of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrated {
    /// The URL of the store, without the password.
    pub store: String,
    /// The version of the tables before; `None` if there were none.
    pub before: Option<u32>,
    /// The version of the tables now.
    pub version: u32,
    /// The oldest build that they serve. A build has the version of the tables that it makes. A
    /// client of an older build is refused when it connects.
    pub serves: u32,
}

impl Migrated {
    /// Migrates within a limit. `migrating` brings the tables from the version before, if there
    /// were any, to that of `build`. `store` is the label of the database.
    pub(in crate::store) async fn by(
        host: &Arc<dyn Host>,
        (store, build): (String, Build),
        migrating: impl Future<Output = Result<Option<u32>, Error>>,
    ) -> Result<Self, Error> {
        match within(Arc::clone(host), LIMIT, migrating).await {
            Ok(before) => Ok(Self { store, before, version: build.version, serves: build.serves }),
            Err(error) if error.kind() == ErrorKind::Unknown => {
                let message = "the server does not answer, or the connection ended; the migration \
                               may still go on; run it again: it changes nothing that is done";
                Err(Error::new(ErrorKind::Unknown, message).with_source(error).at(&store))
            }
            Err(error) => Err(error.at(&store)),
        }
    }
}

/// The version that was read before a migration; `None` if there are no tables.
///
/// # Errors
///
/// If it could not be read, or if `ours` must not migrate this database.
pub(in crate::store) fn version_before(
    read: Result<Found, Error>,
    ours: Build,
) -> Result<Option<u32>, Error> {
    match read {
        // Version 0: a migration that was not finished made the tables, perhaps one by a newer
        // build.
        Ok(found) => {
            ours.check_before(found)?;
            Ok((found.version > 0).then_some(found.version))
        }
        // There is no such table.
        Err(error) if error.kind() == ErrorKind::Config => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_tables_and_older_ones_are_migrated() {
        let build = Build { version: 2, needs: 1, serves: 1 };
        let found = |version: u32| Ok(Found::read(&[vec![None, Some(version.to_string())]]));
        let begun = |serves: u32| {
            let said = |number: u32| Some(number.to_string());
            Ok(Found::read(&[vec![None, said(0), None, None, None, said(serves)]]))
        };
        let failed = |kind| Err(Error::new(kind, "why"));
        for (read, before) in [
            (found(0), Ok(None)),
            (begun(2), Ok(None)),
            (begun(3), Err(ErrorKind::Config)),
            (found(1), Ok(Some(1))),
            (found(2), Ok(Some(2))),
            (found(3), Err(ErrorKind::Config)),
            (failed(ErrorKind::Config), Ok(None)),
            (failed(ErrorKind::Unavailable), Err(ErrorKind::Unavailable)),
        ] {
            assert_eq!(version_before(read, build).map_err(|error| error.kind()), before);
        }
    }
}
