//! Bells: how the process that hands over a key wakes the next holder's process.
//!
//! SQLite cannot wake another process. So a waiting client hangs up a *bell*: a named pipe with the
//! client's name, in a directory beside the file. The process that hands a key over writes one byte
//! to the bell of the next holder, after the commit. Only the next holder wakes up.
//!
//! A bell also tells whether its process lives, because the kernel refuses to open a pipe for
//! writing if nobody reads it. So a dead waiter costs nothing when its turn comes.
//!
//! inotify does not help. By default a user may have 128 instances of it, so waiter 129 would hear
//! nothing. Also, every commit would wake every waiter.
//!
//! Nothing depends on a bell. Waiters also ask and look at the file now and then. If no pipe can be
//! made, the process looks every few milliseconds instead, see `waits`.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Gid, Mode, OFlags, Uid};

use crate::core::moment::WallTime;
use crate::core::token::ClientId;

/// How many bells one sweep looks at.
const SWEPT_MAX: usize = 1_000;

/// A living process gives a new pipe its second name within this time.
const MADE_WITHIN: Duration = Duration::from_secs(60);

/// The directory beside the file for the bells.
#[derive(Clone, Debug)]
pub(super) struct Belfry {
    path: PathBuf,
    /// The file of the store.
    file: PathBuf,
    /// The permissions of a bell: a user who may use the file may ring it.
    mode: u32,
}

impl Belfry {
    /// The directory for the file at `path`. Other processes of that file find the same one.
    pub(super) fn beside(path: &Path, file_mode: u32) -> Self {
        let mut beside = path.as_os_str().to_owned();
        beside.push("-bells");
        Self { path: beside.into(), file: path.to_owned(), mode: file_mode & 0o666 }
    }

    /// Opens the directory. Makes it if it is missing.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let open = || rustix::fs::open(&self.path, flags, Mode::empty());
        match open() {
            Err(rustix::io::Errno::NOENT) => {}
            opened => return Ok(opened?),
        }
        let mode = Mode::from_raw_mode(self.mode | (self.mode & 0o444) >> 2);
        match rustix::fs::mkdir(&self.path, mode) {
            Ok(()) => {
                let dir = open()?;
                self.admit_users(&dir, mode)?;
                Ok(dir)
            }
            Err(rustix::io::Errno::EXIST) => Ok(open()?),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets the users of the file use the directory that this process made. The owner of the
    /// directory around it may have put another one in its place, so this refuses one with anything
    /// but bells.
    fn admit_users(&self, dir: &OwnedFd, mode: Mode) -> io::Result<()> {
        for entry in rustix::fs::Dir::read_from(dir)? {
            let entry = entry?;
            let is_itself = matches!(entry.file_name().to_bytes(), b"." | b"..");
            if !is_itself && entry.file_type() != FileType::Fifo {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        // Sets the mode despite the umask of this process.
        rustix::fs::fchmod(dir, mode)?;
        self.give_away(dir);
        Ok(())
    }

    /// Gives what root made to the owner of the file, as SQLite does with the files beside it.
    /// Otherwise one wait of root would keep the owner from the bells. Another user gives it to the
    /// group of the file, whose members may use the file. A user who may not do this keeps it.
    fn give_away(&self, made: impl AsFd) {
        let Ok(file) = std::fs::metadata(&self.file) else { return };
        let owner = rustix::process::geteuid().is_root().then(|| Uid::from_raw(file.uid()));
        let _refused = rustix::fs::fchown(made, owner, Some(Gid::from_raw(file.gid())));
    }

    fn bell(&self, inbox: &ClientId) -> PathBuf {
        self.path.join(inbox.as_str())
    }
}

/// The result of looking for a bell.
#[derive(Debug)]
enum Found {
    /// The process of the bell reads it.
    Living(File),
    /// The process of the bell is gone.
    Dead,
    /// There is no bell, or this process has no right to ring it.
    Nothing,
}

/// The bells of one handle, and access to the bells of others.
#[derive(Debug)]
pub(super) struct Bells {
    belfry: Belfry,
    /// Whether this handle makes bells for its own waiters. It rings the bells of others in any
    /// case.
    is_on: bool,
    /// The pipe of this handle. All its bells are names of it.
    pipe: Option<Pipe>,
    names: HashSet<ClientId>,
}

#[derive(Debug)]
struct Pipe {
    file: File,
    id: (u64, u64),
    /// Whether the store's thread listens to it.
    is_listened_to: bool,
}

impl Bells {
    /// `is_on` tells whether the host can wait for a pipe.
    pub(super) fn new(belfry: Belfry, is_on: bool) -> Self {
        Self { belfry, is_on, pipe: None, names: HashSet::new() }
    }

    /// Whether bells wake the waiters of this handle.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Stops using bells. This handle looks at the file from now on.
    pub(super) fn turn_off(&mut self, cause: &io::Error) {
        tracing::debug!(%cause, "no bell can be created, so the file is polled instead");
        self.is_on = false;
        self.take_down();
    }

    /// Hangs up the bell of a client that will wait, unless it hangs there. Call it before others
    /// can see the client's place, because the process that hands it the key must find the bell.
    pub(super) fn hang(&mut self, inbox: &ClientId) {
        if !self.is_on || self.hangs(inbox) {
            return;
        }
        if self.names.contains(inbox) {
            // Somebody removed the bell. The other bells may be gone too.
            self.take_down();
        }
        let hung = match self.names.iter().next() {
            Some(other) => std::fs::hard_link(self.belfry.bell(other), self.belfry.bell(inbox)),
            None => self.make_pipe(inbox),
        };
        match hung {
            Ok(()) => drop(self.names.insert(inbox.clone())),
            Err(cause) => self.turn_off(&cause),
        }
    }

    /// Whether the bell of that client is still the bell that this handle hung up.
    fn hangs(&self, inbox: &ClientId) -> bool {
        let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        self.names.contains(inbox)
            && std::fs::symlink_metadata(self.belfry.bell(inbox)).ok().map(id)
                == self.pipe.as_ref().map(|pipe| pipe.id)
    }

    fn make_pipe(&mut self, inbox: &ClientId) -> io::Result<()> {
        self.belfry.open()?;
        // Use another name until this process reads the pipe, because other processes remove a pipe
        // without a reader.
        let new = self.belfry.path.join(format!(".{}", inbox.as_str()));
        let mode = Mode::from_raw_mode(self.belfry.mode);
        let make = || rustix::fs::mkfifoat(CWD, &new, mode);
        match make() {
            Err(rustix::io::Errno::EXIST) => {
                std::fs::remove_file(&new)?;
                make()?;
            }
            made => made?,
        }
        // Open it for writing too. Otherwise the pipe would seem to end each time a writer closes
        // it.
        let file = options().read(true).write(true).open(&new)?;
        let metadata = file.metadata()?;
        if !metadata.file_type().is_fifo() || metadata.nlink() != 1 {
            // The owner of the directory may have put a file of somebody else here.
            return Err(io::ErrorKind::InvalidData.into());
        }
        rustix::fs::fchmod(&file, mode)?;
        self.belfry.give_away(&file);
        std::fs::rename(&new, self.belfry.bell(inbox))?;
        let id = (metadata.dev(), metadata.ino());
        self.pipe = Some(Pipe { file, id, is_listened_to: false });
        Ok(())
    }

    /// Removes all bells of this handle, because nobody waits any more.
    pub(super) fn take_down(&mut self) {
        for inbox in self.names.drain() {
            let _gone = std::fs::remove_file(self.belfry.bell(&inbox));
        }
        self.pipe = None;
    }

    /// Whether the store's thread must start listening to a new pipe.
    pub(super) fn has_new_pipe(&self) -> bool {
        self.pipe.as_ref().is_some_and(|pipe| !pipe.is_listened_to)
    }

    /// The new pipe. Returned only once.
    pub(super) fn new_pipe(&mut self) -> Option<io::Result<File>> {
        let pipe = self.pipe.as_mut().filter(|pipe| !pipe.is_listened_to)?;
        pipe.is_listened_to = true;
        Some(pipe.file.try_clone())
    }

    fn find(&self, inbox: &ClientId) -> Found {
        let path = self.belfry.bell(inbox);
        match options().write(true).open(&path) {
            Ok(file) if file.metadata().is_ok_and(|file| file.file_type().is_fifo()) => {
                Found::Living(file)
            }
            Err(error) if is_unread(&error) => {
                let _gone = std::fs::remove_file(&path);
                Found::Dead
            }
            _ => Found::Nothing,
        }
    }

    /// Whether that client waited in a process that is gone.
    pub(super) fn is_dead(&self, inbox: &ClientId) -> bool {
        !self.names.contains(inbox) && matches!(self.find(inbox), Found::Dead)
    }

    /// Rings the bell of a client, if another handle has it. Never waits, because a full pipe has
    /// been rung before.
    pub(super) fn ring(&self, inbox: &ClientId) {
        if self.names.contains(inbox) {
            return;
        }
        if let Found::Living(mut bell) = self.find(inbox) {
            // Open a reader here too, since the other process may close its reader. Writing to a
            // pipe without a reader sends a signal that ends programs.
            let reader = options().read(true).open(self.belfry.bell(inbox));
            if reader.is_ok() {
                let _rung = bell.write(b"!");
            }
        }
    }

    /// Removes the bells of processes that are gone.
    pub(super) fn sweep(&self, now: WallTime) {
        let Ok(bells) = std::fs::read_dir(&self.belfry.path) else { return };
        for bell in bells.flatten().take(SWEPT_MAX) {
            let name = bell.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some(inbox) = ClientId::new(name) {
                self.is_dead(&inbox);
            } else if name.strip_prefix('.').and_then(ClientId::new).is_some() {
                remove_if_abandoned(&bell.path(), now);
            }
        }
    }
}

/// Removes a pipe that still has its first name if its maker was killed before the rename.
fn remove_if_abandoned(path: &Path, now: WallTime) {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return };
    let made = Duration::from_secs(metadata.mtime().try_into().unwrap_or(0));
    let age = Duration::from_millis(now.as_unix_millis()).saturating_sub(made);
    if metadata.file_type().is_fifo() && age > MADE_WITHIN && has_no_reader(path) {
        let _gone = std::fs::remove_file(path);
    }
}

fn has_no_reader(path: &Path) -> bool {
    options().write(true).open(path).is_err_and(|error| is_unread(&error))
}

/// Whether a pipe could not be opened for writing because nobody reads it.
fn is_unread(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error())
}

impl Drop for Bells {
    fn drop(&mut self) {
        self.take_down();
    }
}

pub(super) fn options() -> OpenOptions {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let mut options = OpenOptions::new();
    options.custom_flags(flags.bits().cast_signed());
    options
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Root would give a directory with files of its own to another user.
    #[test]
    fn a_directory_that_took_the_place_of_the_new_one_stays_as_it_is() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let belfry = Belfry::beside(&home.path().join("x.db"), 0o666);
        let mode = || belfry.path.metadata().expect("it is there").permissions().mode() & 0o777;
        let private = std::fs::Permissions::from_mode(0o700);
        let admit = || {
            std::fs::set_permissions(&belfry.path, private.clone()).expect("it is ours");
            let dir = File::open(&belfry.path).expect("it is ours").into();
            belfry.admit_users(&dir, Mode::from_raw_mode(0o777))
        };
        drop(belfry.open().expect("it is made"));
        admit().expect("it is empty");
        assert_eq!(mode(), 0o777);
        let bell = belfry.path.join("bell");
        rustix::fs::mkfifoat(CWD, &bell, Mode::from_raw_mode(0o666)).expect("it is made");
        admit().expect("it has a bell");
        assert_eq!(mode(), 0o777);
        std::fs::write(belfry.path.join("letter"), "").expect("it is written");
        assert!(admit().is_err());
        assert_eq!(mode(), 0o700);
    }
}
