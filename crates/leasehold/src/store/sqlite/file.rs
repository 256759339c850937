//! The file of a store: where it may be, who may read it, and whether it is still the same.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, StatxAttributes, StatxFlags};

use super::bells::Belfry;
use crate::core::error::{Error, ErrorKind};

/// A checked file with its identity.
#[derive(Clone, Debug)]
pub(super) struct StoreFile {
    path: PathBuf,
    id: FileId,
    /// The log and the shared memory beside the file. SQLite finds them by path only. Processes
    /// with the same file but other companions do not see one another.
    companions: [PathBuf; 2],
    companion_ids: [Option<FileId>; 2],
    belfry: Belfry,
}

/// Device and inode.
type FileId = (u64, u64);

impl StoreFile {
    /// Checks `path`, and makes an empty file if there is none, for this user only.
    ///
    /// Never opens an existing file. Closing it again would drop the locks that another connection
    /// of this process has on it: POSIX file locks belong to the process.
    pub(super) fn prepare(path: &Path) -> Result<Self, Error> {
        let path = std::path::absolute(path).map_err(|error| cannot(path, "be used", error))?;
        refuse_left_companions(&path)?;
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {
                return Err(refused(&path, "is a directory; name a file in it"));
            }
            Ok(metadata) if !metadata.is_file() => {
                let kind = metadata.file_type();
                let kind = if kind.is_fifo() {
                    "a pipe"
                } else if kind.is_socket() {
                    "a socket"
                } else {
                    "a device"
                };
                return Err(refused(&path, &format!("is {kind}, not a file; choose another path")));
            }
            Ok(_) => refuse_network(&path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => create(&path)?,
            Err(error) => return Err(cannot(&path, "be read", error)),
        }
        let real = path.canonicalize().map_err(|error| cannot(&path, "be read", error))?;
        check_access(&path, &real)?;
        refuse_second_paths(&path)?;
        let id = file_id(&path).map_err(|error| cannot(&path, "be read", error))?;
        let mode =
            std::fs::metadata(&path).map_err(|error| cannot(&path, "be read", error))?.mode();
        let belfry = Belfry::beside(&real, mode);
        Ok(Self { path, id, companions: companions(&real), companion_ids: [None; 2], belfry })
    }

    /// Whether a log and a shared memory exist beside the file.
    pub(super) fn has_companions(&self) -> bool {
        self.companions.iter().all(|path| path.exists())
    }

    /// Remembers the companions of the file. They stay the same while a connection uses the file.
    pub(super) fn remember_companions(&mut self) -> Result<(), Error> {
        for (id, path) in self.companion_ids.iter_mut().zip(&self.companions) {
            *id = Some(file_id(path).map_err(|_| moved(&self.path))?);
        }
        if self.is_still_there() { Ok(()) } else { Err(moved(&self.path)) }
    }

    /// The length of the log beside the file.
    pub(super) fn log_bytes(&self) -> u64 {
        std::fs::metadata(&self.companions[0]).map_or(0, |metadata| metadata.len())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory for the bells of waiters.
    pub(super) fn belfry(&self) -> &Belfry {
        &self.belfry
    }

    /// Whether the file and its companions are still in place: not deleted, moved or replaced.
    /// Otherwise other processes would use other files, and both sides would grant the same keys.
    pub(super) fn is_still_there(&self) -> bool {
        let is_same = |path: &Path, id: Option<FileId>| file_id(path).ok() == id;
        is_same(&self.path, Some(self.id))
            && is_same(&self.companions[0], self.companion_ids[0])
            && is_same(&self.companions[1], self.companion_ids[1])
    }

    /// The error after the file was moved or deleted.
    pub(super) fn moved(&self) -> Error {
        moved(&self.path)
    }
}

fn moved(path: &Path) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "sqlite:{}: the file, or the -wal or -shm beside it, was deleted, moved or replaced \
             while in use; no request was sent and new processes cannot see its leases; start this \
             process again",
            path.display()
        ),
    )
}

fn file_id(path: &Path) -> io::Result<FileId> {
    let stat = rustix::fs::stat(path)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// The log and the shared memory of a file.
fn companions(path: &Path) -> [PathBuf; 2] {
    ["-wal", "-shm"].map(|end| {
        let mut companion = path.as_os_str().to_owned();
        companion.push(end);
        companion.into()
    })
}

/// Refuses companions whose file is missing or empty. Somebody may still use them with a file that
/// was moved away, and would then share them with a new file.
fn refuse_left_companions(path: &Path) -> Result<(), Error> {
    let real = path.canonicalize();
    // Look for companions first. A file that becomes a store just now gets its content before its
    // companions.
    let Some(left) =
        companions(real.as_deref().unwrap_or(path)).into_iter().find(|path| path.exists())
    else {
        return Ok(());
    };
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0) {
        return Ok(());
    }
    Err(refused(
        path,
        &format!(
            "is missing or empty, but {} of a moved or deleted file is there; put that file \
             back, or stop every process that used it and then delete -wal and -shm",
            left.display()
        ),
    ))
}

fn check_access(path: &Path, real: &Path) -> Result<(), Error> {
    rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK)
        .map_err(|error| cannot(path, "be read and written by this user", error.into()))?;
    let dir = parent(real);
    rustix::fs::access(dir, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
        let what =
            format!("be used, since this user cannot create files beside it, in {}", dir.display());
        cannot(path, &what, error.into())
    })
}

/// Refuses a file with a second path, because others would look for its companions there.
fn refuse_second_paths(path: &Path) -> Result<(), Error> {
    let in_stat = |error: rustix::io::Errno| cannot(path, "be examined", error.into());
    let links = rustix::fs::stat(path).map_err(in_stat)?.st_nlink;
    if links > 1 {
        return Err(refused(
            path,
            &format!(
                "has {links} hard links, and processes that open different links would not see the \
                 same locks; link its directory instead, and delete all links but one"
            ),
        ));
    }
    if is_mount_root(path).map_err(in_stat)? {
        return Err(refused(
            path,
            "is mounted as a single file, so processes outside of the mount would not share it; \
             mount its directory instead",
        ));
    }
    Ok(())
}

/// Whether `path` is a mount point. Kernels before 5.8 do not tell.
fn is_mount_root(path: &Path) -> rustix::io::Result<bool> {
    match rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS) {
        Ok(stat) => Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)),
        Err(rustix::io::Errno::NOSYS) => Ok(false),
        Err(error) => Err(error),
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or_else(|| Path::new("/"))
}

fn create(path: &Path) -> Result<(), Error> {
    let parent = parent(path);
    if let Err(error) = std::fs::metadata(parent)
        && error.kind() == io::ErrorKind::NotFound
    {
        // With a typing error in the path, we would make a store that nobody else uses.
        return Err(refused(
            path,
            &format!(
                "is in a directory that does not exist, {}; create it, or correct the path",
                parent.display()
            ),
        ));
    }
    refuse_network(parent)?;
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        // Another process was faster, which is fine.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(cannot(path, &format!("be created in {}", parent.display()), error)),
    }
}

fn refuse_network(path: &Path) -> Result<(), Error> {
    match shared_by_others(path).map_err(|error| cannot(path, "be examined", error))? {
        None => Ok(()),
        Some(name) => Err(refused(
            path,
            &format!(
                "is on {name}, where the file locks and the shared memory of SQLite do not work \
                 across machines; choose a path on a local disk"
            ),
        )),
    }
}

/// The file system of a path, if other machines or programs may share it.
pub(super) fn shared_by_others(path: &Path) -> io::Result<Option<&'static str>> {
    let found = rustix::fs::statfs(path)?;
    Ok(shared_file_system(file_system_magic(found.f_type)))
}

/// The magic number of a file system. It has 32 bits, even if its type is longer.
fn file_system_magic(f_type: impl Into<i128>) -> u32 {
    u32::try_from(f_type.into() & 0xffff_ffff).expect("32 bits were taken")
}

/// The name of a file system that other machines or programs may share, by its magic number
/// (statfs(2) and linux/magic.h). `None` if it is local.
fn shared_file_system(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x0000_6969 => "NFS",
        0x0000_517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB",
        0x6573_5546 => "FUSE",
        0x0102_1997 => "9p",
        0x00c3_6400 => "Ceph",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x0116_1970 => "GFS2",
        0x7461_636f => "OCFS2",
        0x0bd0_0bd0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        0xaad7_aaea => "PanFS",
        0x0000_564c => "NCP",
        0x786f_4256 => "a VirtualBox share",
        0xbacb_acbc => "a VMware share",
        _ => return None,
    })
}

pub(super) fn refused(path: &Path, complaint: &str) -> Error {
    Error::new(
        ErrorKind::Config,
        format!("sqlite:{} {complaint}; nothing was changed", path.display()),
    )
}

fn cannot(path: &Path, what: &str, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorKind::Denied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Unavailable,
        _ => ErrorKind::Config,
    };
    let advice = match kind {
        ErrorKind::Denied => "check the permissions of the file and of its directory",
        ErrorKind::Unavailable => "free some space",
        _ => "check the path",
    };
    Error::new(
        kind,
        format!("sqlite:{} cannot {what} ({error}); nothing was changed; {advice}", path.display()),
    )
    .with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_that_machines_share_are_known_by_their_number() {
        let table: [(i64, Option<&str>); 12] = [
            (0x6969, Some("NFS")),
            (0x517b, Some("SMB")),
            (0xff53_4d42, Some("SMB")),
            (-0x00ac_b2be, Some("SMB")), // CIFS where the number is a signed 32-bit one
            (0x6573_5546, Some("FUSE")),
            (0x0102_1997, Some("9p")),
            (0x00c3_6400, Some("Ceph")),
            (0x0bd0_0bd0, Some("Lustre")),
            (0xef53, None),      // ext4
            (0x0102_1994, None), // tmpfs
            (0x9123_683e, None), // btrfs
            (0x794c_7630, None), // overlayfs
        ];
        for (f_type, name) in table {
            assert_eq!(shared_file_system(file_system_magic(f_type)), name, "{f_type:#x}");
        }
    }

    #[test]
    fn a_place_where_something_is_mounted_is_known() {
        assert_eq!(is_mount_root(Path::new("/proc")), Ok(true));
        assert_eq!(is_mount_root(Path::new("/proc/self/stat")), Ok(false));
    }

    #[test]
    fn a_failure_of_the_system_says_whose_turn_it_is() {
        let table = [
            (io::ErrorKind::PermissionDenied, ErrorKind::Denied, "permissions"),
            (io::ErrorKind::ReadOnlyFilesystem, ErrorKind::Denied, "permissions"),
            (io::ErrorKind::StorageFull, ErrorKind::Unavailable, "free some space"),
            (io::ErrorKind::NotADirectory, ErrorKind::Config, "check the path"),
        ];
        for (cause, kind, advice) in table {
            let error = cannot(Path::new("/x"), "be created", cause.into());
            assert_eq!(error.kind(), kind);
            let text = error.to_string();
            assert!(text.contains(advice) && text.contains("nothing was changed"), "{text}");
        }
    }
}
