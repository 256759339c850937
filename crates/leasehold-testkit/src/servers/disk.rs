//! A disk that a test fills: a file system in memory, with a size of its own.
//!
//! Only root may mount it, or a user inside `unshare -Urm`. So ask [`Disk::refusal`] first.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::process::find;

/// Mounts the disk, and removes it when the test process ends, in whatever way. It notices this
/// because the other end of its stdin is closed then. It ignores the signals that would end it
/// before, such as the one for a write to a test process that has ended. A server that still runs
/// keeps the files until it ends.
const KEEPER: &str = r#"trap '' HUP INT TERM PIPE
at=$1
mount -t tmpfs -o "size=$2,mode=755" leasehold-test "$at" || { rmdir "$at"; exit 1; }
echo mounted
read -r word
umount -l "$at"; rmdir "$at""#;

/// The largest size of a disk, in bytes. It takes memory only for the files on it.
const SIZE_MAX: u64 = 2 << 30;

/// How often to try to fill a disk. A try fails if the server writes meanwhile.
const FILLED_TRIES: usize = 1_000;

/// A disk with a folder of its own, which ends with this process.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
    keeper: Child,
}

impl Disk {
    /// Mounts a disk.
    ///
    /// # Errors
    ///
    /// The reason, if this process may not mount one.
    ///
    /// # Panics
    ///
    /// If no process or folder can be made.
    pub fn mount() -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("leasehold-disk-").tempdir();
        // The keeper removes the folder.
        let folder = folder.expect("a temporary directory").keep();
        let mut command = keeping(&folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut keeper = command.spawn().expect("sh runs");
        let (said, complaint) = (keeper.stdout.take(), keeper.stderr.take());
        let mut line = String::new();
        let read = BufReader::new(said.expect("it was asked for")).read_line(&mut line);
        read.expect("a pipe can be read");
        if line.trim() == "mounted" {
            return Ok(Self { folder, keeper });
        }
        let mut text = String::new();
        complaint.expect("it was asked for").read_to_string(&mut text).expect("a pipe can be read");
        keeper.wait().expect("it is ours");
        Err(reason(&text))
    }

    /// Why no disk can be mounted here. `None` if one can.
    ///
    /// # Panics
    ///
    /// Same as [`mount`](Self::mount).
    #[must_use]
    pub fn refusal() -> Option<String> {
        Self::mount().err()
    }

    /// Mounts a disk for a server.
    ///
    /// # Panics
    ///
    /// If this process may not mount one.
    #[track_caller]
    pub(super) fn for_server() -> Self {
        Self::mount().unwrap_or_else(|reason| {
            panic!("cannot mount a disk ({reason}): run this as root, or in `unshare -Urm`")
        })
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Fills it: shrinks it to the space that its files use now. Files can still be deleted, which
    /// frees space.
    ///
    /// # Panics
    ///
    /// If its size cannot be changed.
    pub fn fill(&self) {
        // A server may write between the look and the change. Then the disk is too small for it.
        let filled = (0..FILLED_TRIES).any(|_| {
            let space = rustix::fs::statvfs(&self.folder).expect("the disk is mounted");
            self.resize(size_when_full(space.f_blocks, space.f_bfree, space.f_frsize))
        });
        assert!(filled, "the disk at {} cannot be filled", self.folder.display());
    }

    /// Gives it its full size again.
    ///
    /// # Panics
    ///
    /// If its size cannot be changed.
    pub fn make_room(&self) {
        assert!(self.resize(SIZE_MAX), "the disk at {} stays full", self.folder.display());
    }

    /// Sets its size. Returns false if its files need more.
    fn resize(&self, bytes: u64) -> bool {
        let mut mount = Command::new(find("mount", "mount"));
        mount.arg("-o").arg(format!("remount,size={bytes}")).arg(&self.folder);
        mount.output().expect("mount runs").status.success()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // The keeper ends after it has removed the disk.
        let _ = self.keeper.wait();
    }
}

/// The command that mounts a disk at a folder and keeps it.
fn keeping(folder: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", KEEPER, "sh"]).arg(folder).arg(SIZE_MAX.to_string());
    // A stop from the keyboard must reach only the tests.
    command.process_group(0);
    command
}

/// The size, in bytes, at which a disk with these blocks is full. A size of zero would mean no
/// limit.
fn size_when_full(blocks: u64, free: u64, block_bytes: u64) -> u64 {
    blocks.saturating_sub(free).max(1) * block_bytes
}

/// The reason in a complaint of `mount`, without the folder, whose name is random.
fn reason(complaint: &str) -> String {
    let first = complaint.lines().next().unwrap_or_default();
    let reason = first.rsplit(": ").next().unwrap_or(first);
    let reason = reason.trim().trim_end_matches('.');
    if reason.is_empty() { "no reason was given".to_owned() } else { reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::not_run;

    #[test]
    fn a_full_disk_is_as_large_as_its_files_and_never_without_a_limit() {
        for (blocks, free, size) in
            [(100, 60, 40 * 4096), (100, 0, 100 * 4096), (100, 100, 4096), (0, 0, 4096)]
        {
            assert_eq!(size_when_full(blocks, free, 4096), size, "{free} of {blocks} are free");
        }
    }

    #[test]
    fn the_reason_for_a_refusal_names_no_folder() {
        for (complaint, expected) in [
            (
                "mount: /tmp/leasehold-disk-x1: permission denied.\n  dmesg(1) may have more.\n",
                "permission denied",
            ),
            (
                "mount: only root can use \"--types\" option\n",
                "only root can use \"--types\" option",
            ),
            ("sh: 2: mount: not found\n", "not found"),
            ("", "no reason was given"),
        ] {
            assert_eq!(reason(complaint), expected);
        }
    }

    #[test]
    fn a_disk_that_is_full_takes_no_byte_more_and_has_room_again() {
        let disk = match Disk::mount() {
            Ok(disk) => disk,
            Err(reason) => return not_run(&format!("cannot mount a disk: {reason}")),
        };
        let (kept, more) = (disk.folder().join("kept"), disk.folder().join("more"));
        std::fs::write(&kept, [1; 10_000]).expect("it has room");
        disk.fill();
        let full = std::fs::write(&more, [2; 10_000]).expect_err("it is full");
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{full}");
        disk.make_room();
        std::fs::write(&more, [2; 10_000]).expect("it has room");
        assert_eq!(std::fs::read(&kept).expect("it is there").len(), 10_000);
        let folder = disk.folder().to_owned();
        drop(disk);
        assert!(!folder.exists(), "its folder is left behind");
    }

    /// The test process was killed while `mount` ran, so nobody reads what the keeper says.
    #[test]
    fn a_disk_that_nobody_waits_for_any_more_is_removed() {
        if let Some(reason) = Disk::refusal() {
            return not_run(&format!("cannot mount a disk: {reason}"));
        }
        let folder = tempfile::tempdir().expect("a temporary directory").keep();
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = keeping(&folder);
        command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null());
        let ended = command.status().expect("sh runs");
        let is_left = folder.exists();
        if is_left {
            let mut umount = Command::new(find("umount", "mount"));
            umount.arg("-l").arg(&folder).status().expect("umount runs");
        }
        assert!(!is_left, "its folder is left behind: {ended}");
    }
}
