//! Bells: how a process that waits is woken by the process that hands it a key.
//!
//! SQLite wakes nobody in another process. So a client that waits hangs up a *bell*: a named pipe,
//! called after the client, in a directory beside the file. Whoever hands a key over writes one
//! byte to the bell of the next holder, after the commit. Only the next holder wakes up.
//!
//! A bell also tells whether its process lives: the kernel refuses to open a pipe that nobody
//! reads. So a waiter that died costs nothing when its turn comes.
//!
//! inotify would not do: by default a user may have 128 instances of it, so the 129th waiter would
//! be deaf. Every commit would wake every waiter as well.
//!
//! Nothing depends on a bell. Waiters also ask, and look at the file, now and then. Where no pipe
//! can be made, the process looks every few milliseconds instead, see `waits`.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};

use crate::core::token::ClientId;

/// How many bells one sweep looks at.
const SWEPT_MAX: usize = 1_000;

/// The directory beside the file in which the bells hang.
#[derive(Clone, Debug)]
pub(super) struct Belfry {
    path: PathBuf,
    /// Who may read and write the file may ring.
    mode: u32,
}

impl Belfry {
    /// The one beside the file at `path`, which other processes of that file find too.
    pub(super) fn beside(path: &Path, file_mode: u32) -> Self {
        let mut beside = path.as_os_str().to_owned();
        beside.push("-bells");
        Self { path: beside.into(), mode: file_mode & 0o666 }
    }

    /// Opens the directory; makes it where it is missing.
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
                // Whatever the mask of this process is.
                rustix::fs::fchmod(&dir, mode)?;
                Ok(dir)
            }
            Err(rustix::io::Errno::EXIST) => Ok(open()?),
            Err(error) => Err(error.into()),
        }
    }

    fn bell(&self, inbox: &ClientId) -> PathBuf {
        self.path.join(inbox.as_str())
    }
}

/// What is found where a bell should hang.
#[derive(Debug)]
enum Found {
    /// Its process reads it.
    Living(File),
    /// Its process is gone.
    Dead,
    /// There is none, or none that this process may ring.
    Nothing,
}

/// The bells of one handle, and the way to those of others.
#[derive(Debug)]
pub(super) struct Bells {
    belfry: Belfry,
    /// Whether this handle hangs bells up. It rings those of others in any case.
    is_on: bool,
    /// What all bells of this handle are names of.
    pipe: Option<Pipe>,
    names: HashSet<ClientId>,
}

#[derive(Debug)]
struct Pipe {
    file: File,
    id: (u64, u64),
    /// Whether the store's thread has it yet.
    is_listened_to: bool,
}

impl Bells {
    /// `is_on`: whether the host can wait for a pipe.
    pub(super) fn new(belfry: Belfry, is_on: bool) -> Self {
        Self { belfry, is_on, pipe: None, names: HashSet::new() }
    }

    /// Whether those who wait here are woken by bells.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Gives bells up: this handle looks at the file from now on.
    pub(super) fn turn_off(&mut self, cause: &io::Error) {
        tracing::debug!(%cause, "no bell can be hung up, so the file is looked at instead");
        self.is_on = false;
        self.take_down();
    }

    /// Hangs the bell of a client up that is about to wait, unless it hangs there already. Before
    /// others can see its place: who hands it a key must find the bell.
    pub(super) fn hang(&mut self, inbox: &ClientId) {
        if !self.is_on || self.hangs(inbox) {
            return;
        }
        if self.names.contains(inbox) {
            // Somebody took it away. The others may be gone too.
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

    /// Whether the bell of that client is the one that was hung up.
    fn hangs(&self, inbox: &ClientId) -> bool {
        let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        self.names.contains(inbox)
            && std::fs::symlink_metadata(self.belfry.bell(inbox)).ok().map(id)
                == self.pipe.as_ref().map(|pipe| pipe.id)
    }

    fn make_pipe(&mut self, inbox: &ClientId) -> io::Result<()> {
        self.belfry.open()?;
        // Under another name until somebody reads it: others take a pipe without a reader away.
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
        // For writing too: else each writer that closes it would look like the end of the pipe.
        let file = options().read(true).write(true).open(&new)?;
        rustix::fs::fchmod(&file, mode)?;
        let metadata = file.metadata()?;
        std::fs::rename(&new, self.belfry.bell(inbox))?;
        let id = (metadata.dev(), metadata.ino());
        self.pipe = Some(Pipe { file, id, is_listened_to: false });
        Ok(())
    }

    /// Takes all bells of this handle down, since nobody waits any more.
    pub(super) fn take_down(&mut self) {
        for inbox in self.names.drain() {
            let _gone = std::fs::remove_file(self.belfry.bell(&inbox));
        }
        self.pipe = None;
    }

    /// Whether there is a pipe that the store's thread does not listen to yet.
    pub(super) fn has_new_pipe(&self) -> bool {
        self.pipe.as_ref().is_some_and(|pipe| !pipe.is_listened_to)
    }

    /// That pipe, once.
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
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
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

    /// Rings the bell of a client, if it has one in another handle. Never waits: a pipe that is
    /// full has rung.
    pub(super) fn ring(&self, inbox: &ClientId) {
        if self.names.contains(inbox) {
            return;
        }
        if let Found::Living(mut bell) = self.find(inbox) {
            // With a reader of our own, the other may go: a pipe without one sends a signal that
            // ends programs.
            let reader = options().read(true).open(self.belfry.bell(inbox));
            if reader.is_ok() {
                let _rung = bell.write(b"!");
            }
        }
    }

    /// Takes away what processes left behind that are gone.
    pub(super) fn sweep(&self) {
        let Ok(bells) = std::fs::read_dir(&self.belfry.path) else { return };
        for bell in bells.flatten().take(SWEPT_MAX) {
            if let Some(inbox) = bell.file_name().to_str().and_then(ClientId::new) {
                self.is_dead(&inbox);
            }
        }
    }
}

impl Drop for Bells {
    fn drop(&mut self) {
        self.take_down();
    }
}

fn options() -> OpenOptions {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let mut options = OpenOptions::new();
    options.custom_flags(flags.bits().cast_signed());
    options
}
