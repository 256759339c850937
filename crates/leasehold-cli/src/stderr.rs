//! Writing to stderr, which may be blocked by a full pipe that nobody reads, or by Ctrl-S.
//!
//! One thread writes; all others queue texts for it. While a lease is held, nobody waits for that
//! thread: see [`never_wait`].
//!
//! With `stty tostop`, a terminal stops all threads of a background job that writes to it. The
//! lease would end then. So the thread keeps texts back until the job is in the foreground, or
//! until our end, when nothing depends on us any more.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use leasehold::host::{Host as _, SystemHost};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::{LocalModes, tcgetattr, tcgetpgrp};
use serde_json::json;

use crate::output::{object, write_all};

/// How many bytes may wait to be written.
const ROOM: usize = 256 * 1024;

/// How long we wait for a blocked stderr when we end.
const WHILE_BLOCKED: Duration = Duration::from_millis(250);

/// If stderr is not blocked, we wait up to this many times as long for the writing thread, since
/// the machine may be busy.
const LOOKS: u32 = 40;

/// How often we look whether a text that was kept back may be written.
const KEPT_BACK: Duration = Duration::from_millis(100);

/// How often we look whether all is written.
const LOOK_EVERY: Duration = Duration::from_millis(1);

static QUEUE: Mutex<Queue> = Mutex::new(Queue::new());
/// Signals that a text was queued.
static FILLED: Condvar = Condvar::new();
/// Signals that a text was written.
static WRITTEN: Condvar = Condvar::new();

/// The stage of this process. It decides how long we may wait for a text to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// We may wait for long, and a terminal may stop us.
    Unleased,
    /// We wait for nothing, since a lease depends on us.
    Leased,
    /// A terminal may stop us, but we wait only briefly.
    Ending,
}

/// The texts that wait to be written.
#[derive(Debug)]
struct Queue {
    texts: VecDeque<String>,
    /// The bytes of all queued texts, and of the text that is being written.
    bytes: usize,
    /// The number of texts that were left out.
    dropped: u64,
    has_writer: bool,
    stage: Stage,
    json: bool,
}

impl Queue {
    const fn new() -> Self {
        Self {
            texts: VecDeque::new(),
            bytes: 0,
            dropped: 0,
            has_writer: false,
            stage: Stage::Unleased,
            json: false,
        }
    }

    fn has_room_for(&self, text: &str) -> bool {
        self.bytes == 0 || self.bytes + text.len() <= ROOM
    }

    /// Whether the next text must not be written now.
    fn keeps_back(&self) -> bool {
        self.bytes > 0 && self.stage == Stage::Leased && would_stop_us()
    }

    fn push(&mut self, text: String) {
        self.bytes += text.len();
        self.texts.push_back(text);
    }

    /// The next text to write. When all are written, a note about texts that were left out.
    fn pop(&mut self) -> Option<String> {
        if self.texts.is_empty() && self.dropped > 0 {
            let note = dropped(std::mem::take(&mut self.dropped), self.json);
            self.push(note);
        }
        self.texts.pop_front()
    }
}

fn dropped(count: u64, json: bool) -> String {
    let message = format!("{count} messages were left out: stderr was blocked");
    if json {
        let fields = json!({
            "level": "warning", "event": "messages-dropped", "name": null, "message": message,
        });
        object("notice", fields)
    } else {
        format!("leasehold: {message}\n")
    }
}

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().expect("nothing in here panics")
}

/// From now on, a text that finds the queue full is left out, and a later message tells how many
/// were. Our end waits only briefly too. Call this in a process that will hold a lease.
pub(crate) fn never_wait() {
    queue().stage = Stage::Leased;
}

/// Waits at our end until all is written, even if the terminal stops us for that.
pub(crate) fn finish_at_end() {
    let mut queue = queue();
    if queue.stage == Stage::Leased {
        queue.stage = Stage::Ending;
    }
    drop(queue);
    finish();
}

/// Sets whether the texts are JSON lines.
pub(crate) fn set_json(json: bool) {
    queue().json = json;
}

/// Writes a text when its turn comes, in one piece.
pub(crate) fn write(text: &str) {
    if text.is_empty() {
        return;
    }
    let mut queue = queue();
    if !queue.has_writer {
        let writer = std::thread::Builder::new().name("stderr".to_owned()).spawn(write_on);
        if writer.is_err() {
            let stage = queue.stage;
            drop(queue);
            return write_alone(text, stage);
        }
        queue.has_writer = true;
    }
    while !queue.has_room_for(text) {
        if queue.stage != Stage::Unleased {
            queue.dropped += 1;
            return;
        }
        queue = WRITTEN.wait(queue).expect("nothing in here panics");
    }
    queue.push(text.to_owned());
    FILLED.notify_one();
}

/// Waits until all is written. After [`never_wait`], a blocked stderr is waited for only briefly.
pub(crate) fn finish() {
    let mut queue = queue();
    let is_busy = |queue: &mut Queue| queue.bytes > 0;
    if queue.stage == Stage::Unleased {
        return drop(WRITTEN.wait_while(queue, is_busy));
    }
    for _ in 0..LOOKS {
        let waited = WRITTEN.wait_timeout_while(queue, WHILE_BLOCKED, is_busy);
        let (still, timeout) = waited.expect("nothing in here panics");
        if !timeout.timed_out() || is_blocked() || still.keeps_back() {
            return;
        }
        queue = still;
    }
}

/// Waits until all is written, but at most for `limit`, and not for a blocked stderr. The lease is
/// renewed meanwhile.
pub(crate) async fn catch_up(limit: Duration) {
    let until = SystemHost.now() + limit;
    let is_waiting = |queue: MutexGuard<'_, Queue>| queue.bytes > 0 && !queue.keeps_back();
    while is_waiting(queue()) && !is_blocked() && SystemHost.now() < until {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Whether a write to stderr would block.
fn is_blocked() -> bool {
    let mut at = [PollFd::from_borrowed_fd(rustix::stdio::stderr(), PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut at, Some(&at_once)) != Ok(1)
}

/// Whether the terminal would stop us for writing: we are in the background, and it has `tostop`.
fn would_stop_us() -> bool {
    let modes = tcgetattr(rustix::stdio::stderr());
    modes.is_ok_and(|modes| modes.local_modes.contains(LocalModes::TOSTOP)) && is_in_background()
}

/// Whether stderr is our terminal, and another process group is in its foreground.
pub(crate) fn is_in_background() -> bool {
    tcgetpgrp(rustix::stdio::stderr()).is_ok_and(|foreground| foreground != getpgrp())
}

/// The thread that writes.
fn write_on() {
    let mut queue = queue();
    loop {
        if queue.keeps_back() {
            let waited = FILLED.wait_timeout(queue, KEPT_BACK);
            queue = waited.expect("nothing in here panics").0;
            continue;
        }
        match queue.pop() {
            Some(text) => {
                drop(queue);
                put(&text);
                queue = self::queue();
                queue.bytes -= text.len();
                WRITTEN.notify_all();
            }
            None => queue = FILLED.wait(queue).expect("nothing in here panics"),
        }
    }
}

/// Writes without the thread, if the system cannot start one.
fn write_alone(text: &str, stage: Stage) {
    if stage == Stage::Unleased || !is_blocked() {
        put(text);
    }
}

fn put(text: &str) {
    // Use one write, so that lines of several processes do not mix. Ignore a failure, since nobody
    // could read about it, and the lock must not depend on it.
    let _ = write_all(rustix::stdio::stderr(), text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_were_left_out_are_mentioned_once_at_the_end() {
        let mut queue = Queue::new();
        let long = "x".repeat(ROOM);
        assert!(queue.has_room_for(&long) && queue.has_room_for(&"x".repeat(2 * ROOM)));
        queue.push(long.clone());
        assert!(!queue.has_room_for("y"));
        queue.dropped += 2;
        assert_eq!(queue.pop(), Some(long));
        let note = queue.pop().expect("a word about it");
        assert_eq!(note, "leasehold: 2 messages were left out: stderr was blocked\n");
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn the_message_about_it_is_json_if_all_messages_are() {
        let note = dropped(3, true);
        assert!(note.contains("leasehold.v1.notice") && note.contains("3 messages"), "{note}");
        assert!(note.ends_with('\n'));
    }
}
