//! An SQLite file. It has no server, so there is no yardstick.

use leasehold::{Error, ErrorKind};

use super::{Engine, Extent};
use crate::figure::Report;

pub(super) async fn measure(extent: Extent, report: &mut Report) -> Result<(), Error> {
    let folder = tempfile::tempdir().map_err(|error| {
        Error::new(ErrorKind::Unavailable, "no folder for the file").with_source(error)
    })?;
    let url = format!("sqlite:{}", folder.path().join("bench.db").display());
    let engine = Engine { name: "SQLite", url: &url };
    engine.round_trips_alone(extent.pairs, report).await?;
    engine.hand_overs_alone(extent.pairs / 4, report).await?;
    engine.leases(extent, report).await
}
