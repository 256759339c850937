//! Examines the file of a store: its place, its permissions, and whether a lease works in it.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::SqliteStore;
use super::boot::boot_id;
use super::file::shared_by_others;
use crate::core::error::Error;
use crate::host::Host;
use crate::store::try_out;

/// The facts about a file. Plain values, without any judgement.
#[derive(Debug)]
pub(crate) struct FileFacts {
    pub(crate) path: PathBuf,
    pub(crate) exists: bool,
    /// The file system that other machines or programs may share, if it is one.
    pub(crate) shared_by: Result<Option<&'static str>, String>,
    pub(crate) has_directory: bool,
    /// Why no file can be made in the directory.
    pub(crate) no_new_file: Option<String>,
    /// The user that the file belongs to, this user, and the permissions.
    pub(crate) owner: Option<(u32, u32, u32)>,
    /// The free bytes of the file system for this user.
    pub(crate) free: Option<u64>,
    pub(crate) has_boot_id: bool,
    /// Why the store cannot be opened. Not tried without a file.
    pub(crate) unopened: Option<Error>,
    pub(crate) round_trips: Vec<Duration>,
    /// Whether a probe lease worked: granted, renewed, and released by no other token than its own.
    pub(crate) lease: Option<Result<bool, Error>>,
}

/// Examines the file at `path`. Makes no store: a file that does not exist stays missing.
pub(crate) async fn examine(path: &Path, host: &Arc<dyn Host>, canary: &str) -> FileFacts {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let metadata = std::fs::metadata(&path).ok();
    let directory = path.parent().unwrap_or_else(|| Path::new("/"));
    let place = if metadata.is_some() { path.as_path() } else { directory };
    let mut facts = FileFacts {
        exists: metadata.is_some(),
        shared_by: shared_by_others(place).map_err(|error| error.to_string()),
        has_directory: directory.is_dir(),
        no_new_file: make_and_remove(directory, canary).err().map(|error| error.to_string()),
        owner: metadata.map(|it| (it.uid(), rustix::process::geteuid().as_raw(), it.mode())),
        free: free(directory),
        has_boot_id: boot_id().is_ok(),
        unopened: None,
        round_trips: Vec::new(),
        lease: None,
        path,
    };
    let path = facts.path.clone();
    if facts.exists {
        match SqliteStore::open(&path, Arc::clone(host)) {
            Ok(store) => {
                let (lease, round_trips) = try_out(&store, &**host, canary).await;
                (facts.lease, facts.round_trips) = (Some(lease), round_trips);
            }
            Err(error) => facts.unopened = Some(error),
        }
    }
    facts
}

fn free(directory: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(directory).ok()?;
    // A file system of the kernel has no size.
    (found.f_blocks > 0).then(|| found.f_bavail.saturating_mul(found.f_frsize))
}

/// Makes an empty file, as SQLite does beside the store, and removes it.
fn make_and_remove(directory: &Path, canary: &str) -> io::Result<()> {
    // Without the namespace, which may be longer than the name of a file.
    let random = canary.rsplit(':').next().unwrap_or_default();
    let path = directory.join(format!(".leasehold-probe-{random}"));
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(path)
}
