//! The command at a terminal. It is a pseudo-terminal, which setsid(1) makes the controlling
//! terminal.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetpgrp, tcsetwinsize};

use crate::harness::{CEILING, World, finish, start, until};

on_every_store! {
    ctrl_c_is_the_commands_own_affair_however_often_it_comes,
    ctrl_c_ends_an_instance_instead_of_starting_a_campaign,
    the_command_may_read_from_the_terminal,
    the_command_may_open_the_terminal_when_stdin_is_a_pipe,
    ctrl_z_stops_no_process_if_no_shell_could_continue_us,
    ctrl_c_while_waiting_leaves_the_line,
    a_forced_stop_at_a_terminal_reaches_everything_but_us,
    unlock_wants_the_name_typed,
    a_lease_that_ends_before_the_name_is_typed_is_not_said_to_be_ended,
    a_reader_that_lets_go_before_the_name_is_typed_does_not_spare_the_others,
    a_list_of_nothing_says_so_to_a_person_only,
}

/// A process with a pseudo-terminal.
struct Terminal {
    keys: File,
    screen: Receiver<String>,
    seen: String,
    child: Child,
}

impl Terminal {
    fn start(command: &Command) -> Self {
        Self::of_width(command, 0)
    }

    /// A terminal with this many columns; 0 means that the number is unknown.
    fn of_width(command: &Command, columns: u16) -> Self {
        let (keys, child) = Self::open(command, columns);
        let mut reader = keys.try_clone().expect("a handle");
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails when the last process has closed the terminal.
            while let Ok(length @ 1..) = reader.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                if sender.send(text).is_err() {
                    break;
                }
            }
        });
        Self { keys, screen, seen: String::new(), child }
    }

    /// A terminal that nobody reads, with its process. It closes when its file is dropped.
    fn open(command: &Command, columns: u16) -> (File, Child) {
        // A copy in the command would keep the terminal open.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("a terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("a terminal of ours");
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).expect("a terminal of any size");
        let name = ptsname(&master, Vec::new()).expect("a name");
        let name = name.to_str().expect("plain text");
        let slave = || {
            let file = OpenOptions::new().read(true).write(true).open(name).expect("the terminal");
            Stdio::from(file)
        };
        let mut outer = Command::new("setsid");
        outer.arg("--ctty").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => outer.env(name, value),
                None => outer.env_remove(name),
            };
        }
        outer.env("TERM", "xterm").env_remove("NO_COLOR");
        outer.current_dir(command.get_current_dir().expect("a directory"));
        outer.stdin(slave()).stdout(slave()).stderr(slave());
        let child = outer.spawn().expect("setsid(1)");
        (File::from(master), child)
    }

    fn type_in(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("somebody reads");
    }

    /// The process that was started here, which leads the session.
    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// The process group in the foreground.
    #[track_caller]
    fn foreground(&self) -> i32 {
        let group = tcgetpgrp(&self.keys).expect("a terminal with a session");
        group.as_raw_nonzero().get()
    }

    #[track_caller]
    fn expect(&mut self, part: &str) {
        while !self.seen.contains(part) {
            match self.screen.recv_timeout(CEILING) {
                Ok(text) => self.seen.push_str(&text),
                Err(_) => panic!("`{part}` is not in:\n{}", self.seen),
            }
        }
    }

    /// Waits until no process has the terminal open.
    #[track_caller]
    fn closes_without(&mut self, part: &str) {
        while let Ok(text) = self.screen.recv_timeout(CEILING) {
            self.seen.push_str(&text);
            assert!(!self.seen.contains(part), "{}", self.seen);
        }
    }

    #[track_caller]
    fn ends_with(&mut self, code: i32) {
        let mut status = None;
        until("it ends", || {
            status = self.child.try_wait().expect("it is ours");
            status.is_some()
        });
        let status = status.expect("it has ended");
        // setsid(1) became the command, so its exit is the command's, as a shell would show it.
        let shown = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        assert_eq!(shown, Some(code), "{}", self.seen);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ctrl_c_is_the_commands_own_affair_however_often_it_comes(world: &World) {
    let script = "n=0; trap 'n=$((n+1)); echo caught $n' INT; echo up; \
                  while [ $n -lt 4 ]; do sleep 0.02; done; exit 5";
    let mut terminal = Terminal::start(&world.run("x", &[], script));
    terminal.expect("up");
    for n in 1..=4 {
        terminal.type_in("\x03");
        terminal.expect(&format!("caught {n}"));
    }
    terminal.ends_with(5);
    world.assert_nothing_left();
}

/// The terminal has not sent this interrupt to the command.
#[test]
fn at_a_terminal_an_interrupt_of_another_process_reaches_the_command() {
    let world = World::sqlite();
    let script = "trap 'echo got it; exit 5' INT; echo up; while :; do sleep 0.02; done";
    let mut terminal = Terminal::start(&world.run("x", &[], script));
    terminal.expect("up");
    let us = Pid::from_raw(terminal.pid()).expect("a pid");
    kill_process(us, Signal::INT).expect("it is ours");
    terminal.expect("got it");
    terminal.ends_with(5);
    world.assert_nothing_left();
}

#[test]
fn at_a_terminal_the_command_of_an_inner_run_is_told_to_stop_by_an_interrupt() {
    let world = World::sqlite();
    let script = "trap 'echo told; exit 6' INT; echo up; while :; do sleep 0.02; done";
    let inner = world.run("inner", &[], script);
    let mut outer = world.leasehold(["run", "outer", "--stop-signal", "INT", "--ttl", "1s", "--"]);
    outer.arg(inner.get_program()).args(inner.get_args());
    let mut terminal = Terminal::start(&outer);
    terminal.expect("up");
    finish(world.leasehold(["unlock", "outer", "--ask", "--why", "the test"])).code(0);
    terminal.expect("told");
    terminal.ends_with(6);
    world.assert_nothing_left();
}

/// A closed terminal signals only the leader of the session, and that is us.
#[test]
fn a_command_learns_that_its_terminal_was_closed() {
    let world = World::sqlite();
    let script = "trap 'echo told > $1/log; exit 5' HUP; touch $1/up; while :; do sleep 0.02; done";
    let (terminal, mut child) = Terminal::open(&world.run("x", &[], script), 0);
    until("the command runs", || world.path("up").exists());
    drop(terminal);
    until("it is told", || world.read("log") == "told\n");
    assert_eq!(child.wait().expect("it is ours").code(), Some(5));
    world.assert_nothing_left();
}

/// The terminal sends the signal to the command itself, so the command seems to fail by itself.
fn ctrl_c_ends_an_instance_instead_of_starting_a_campaign(world: &World) {
    let mut terminal = Terminal::start(&world.elect("x", &["--ttl", "5m"], "echo up; read line"));
    terminal.expect("up");
    terminal.type_in("\x03");
    terminal.closes_without("campaigning again");
    terminal.ends_with(130);
    world.assert_nothing_left();
}

fn the_command_may_read_from_the_terminal(world: &World) {
    let mut terminal = Terminal::start(&world.run("x", &[], "echo up; read line; echo got $line"));
    terminal.expect("up");
    terminal.type_in("hello\n");
    terminal.expect("got hello");
    terminal.ends_with(0);
}

/// ssh and sudo do this for a password: `tar c . | leasehold run x -- ssh host`.
fn the_command_may_open_the_terminal_when_stdin_is_a_pipe(world: &World) {
    let script = "read piped; echo up $piped; read line < /dev/tty; echo got $line";
    let inner = world.run("x", &[], script);
    let mut outer = Command::new("sh");
    outer.args(["-c", "echo input | \"$@\"", "sh"]).current_dir(world.path(""));
    outer.arg(inner.get_program()).args(inner.get_args());
    let mut terminal = Terminal::start(&outer);
    terminal.expect("up input");
    terminal.type_in("hello\n");
    terminal.expect("got hello");
    terminal.ends_with(0);
}

/// The wait for the lock may last for hours, and a person may do something else meanwhile.
#[test]
fn a_command_that_waited_in_the_background_may_read_from_the_terminal_after_fg() {
    let world = World::sqlite();
    let mut holder = start(world.run("x", &[], "echo up; read line"));
    holder.expect("up");
    let inner = world.run("x", &[], "read line; echo got $line");
    let mut outer = Command::new("bash");
    let script = "set -m; \"$@\" & read go; echo to the front; fg; echo ended $?";
    outer.args(["-c", script, "bash"]).current_dir(world.path(""));
    outer.arg(inner.get_program()).args(inner.get_args());
    let mut terminal = Terminal::start(&outer);
    terminal.expect("is held by");
    terminal.type_in("go\n");
    terminal.expect("to the front");
    until("it is in the foreground", || terminal.foreground() != terminal.pid());
    drop(holder.end());
    terminal.type_in("hello\n");
    terminal.expect("got hello");
    terminal.expect("ended 0");
    terminal.ends_with(0);
}

/// timeout(1) moves to a process group of its own, so the terminal sends the key to us alone.
#[test]
fn ctrl_c_reaches_a_command_that_has_left_our_process_group() {
    let world = World::sqlite();
    let script = "exec timeout 1h sh -c 'echo up; read line'";
    let mut terminal = Terminal::start(&world.run("x", &[], script));
    terminal.expect("up");
    terminal.type_in("\x03");
    terminal.ends_with(130);
    assert_eq!(world.state("x"), "free");
}

/// Ctrl-Z stops the command's whole group, and `fg` continues it.
#[test]
fn fg_continues_a_command_that_has_left_our_process_group() {
    let world = World::sqlite();
    let script = "mkfifo gate; exec timeout 1h sh -c 'echo up; read line <gate; echo got $line'";
    let inner = world.run("x", &[], script);
    let mut outer = Command::new("bash");
    outer.args(["-c", "set -m; \"$@\"; echo stopped $?; fg; echo ended $?", "bash"]);
    outer.current_dir(world.path("")).arg(inner.get_program()).args(inner.get_args());
    let mut terminal = Terminal::start(&outer);
    terminal.expect("up");
    terminal.type_in("\x1a");
    terminal.expect("stopped 147");
    // Open it for both, since opening it for writing alone would wait for the stopped reader.
    let gate = File::options().read(true).write(true).open(world.path("gate"));
    let mut gate = gate.expect("it was made");
    gate.write_all(b"hello\n").expect("it has room");
    terminal.expect("got hello");
    terminal.expect("ended 0");
    terminal.ends_with(0);
}

/// With `ssh -t host leasehold run`, for example, there is no shell for `fg`.
fn ctrl_z_stops_no_process_if_no_shell_could_continue_us(world: &World) {
    // The script has two processes, and the terminal stops both.
    let script = "sh -c 'echo up; read line; echo got $line'; echo goes on";
    let mut terminal = Terminal::start(&world.run("x", &[], script));
    terminal.expect("up");
    terminal.type_in("\x1a");
    terminal.expect("^Z");
    terminal.type_in("hello\n");
    terminal.expect("got hello");
    terminal.expect("goes on");
    terminal.ends_with(0);
    assert!(!terminal.seen.contains("suspended"), "{}", terminal.seen);

    let mut holder = start(world.run("x", &[], "echo up; read line"));
    holder.expect("up");
    let mut terminal = Terminal::start(&world.run("x", &[], "echo has it"));
    terminal.expect("waiting for");
    terminal.type_in("\x1a");
    terminal.expect("^Z");
    drop(holder.end());
    terminal.expect("has it");
    terminal.ends_with(0);
}

fn ctrl_c_while_waiting_leaves_the_line(world: &World) {
    let mut holder = start(world.run("x", &[], "echo up; read line"));
    holder.expect("up");
    let mut terminal = Terminal::start(&world.run("x", &["-w", "10m"], "true"));
    terminal.expect("is held by");
    terminal.expect("waiting for");
    terminal.expect("of 10m 0s, you are #1 [Ctrl-C gives up]");
    terminal.type_in("\x03");
    terminal.ends_with(130);
    assert_eq!(world.waiters("x"), 0);
    drop(holder.end());
}

fn a_forced_stop_at_a_terminal_reaches_everything_but_us(world: &World) {
    let script = "trap '' TERM; (trap '' TERM; while :; do sleep 0.02; done) & echo up; \
                  while :; do sleep 0.02; done";
    let mut terminal = Terminal::start(&world.run("x", &["--ttl", "1s"], script));
    terminal.expect("up");
    let unlock = world.leasehold(["unlock", "x", "--force", "--yes", "--why", "the test"]);
    finish(unlock).code(0);
    terminal.expect("the lock is lost");
    terminal.expect("killing the command");
    terminal.ends_with(79);
}

fn unlock_wants_the_name_typed(world: &World) {
    let mut holder = start(world.run("x", &["--ttl", "1h"], "echo up; read line"));
    holder.expect("up");
    let unlock = world.leasehold(["unlock", "x", "--force", "--why", "the test"]);
    let mut terminal = Terminal::start(&unlock);
    terminal.expect("type the name");
    terminal.type_in("y\n");
    terminal.expect("not confirmed: the name was not typed; nothing was done");
    terminal.ends_with(64);
    assert_eq!(world.state("x"), "held");
    let mut terminal = Terminal::start(&unlock);
    terminal.expect("type the name");
    terminal.type_in("x\n");
    terminal.ends_with(0);
    assert_eq!(world.state("x"), "free");
    drop(holder.end());
}

fn a_lease_that_ends_before_the_name_is_typed_is_not_said_to_be_ended(world: &World) {
    let mut holder = start(world.run("x", &["--ttl", "1h"], "echo up; read line"));
    holder.expect("up");
    let mut terminal =
        Terminal::start(&world.leasehold(["unlock", "x", "--force", "--why", "the test"]));
    terminal.expect("type the name");
    drop(holder.end());
    assert_eq!(world.state("x"), "free");
    terminal.type_in("x\n");
    terminal.expect("has already ended; no other lease was ended; see");
    terminal.ends_with(75);
}

fn a_reader_that_lets_go_before_the_name_is_typed_does_not_spare_the_others(world: &World) {
    for _ in 0..3 {
        finish(world.leasehold(["acquire", "x", "--shared", "--ttl", "1h"])).code(0);
    }
    let mut terminal =
        Terminal::start(&world.leasehold(["unlock", "x", "--force", "--why", "the test"]));
    terminal.expect("the leases of all of them");
    let second = world.inspect("x")["holders"][1]["token_hint"].clone();
    let second = second.as_str().expect("a hint");
    let unlock = ["unlock", "x", "--token", second, "--yes", "--why", "the test"];
    finish(world.leasehold(unlock)).code(0);
    terminal.type_in("x\n");
    terminal.expect("had already ended");
    terminal.ends_with(0);
    assert_eq!(world.state("x"), "free");
}

fn a_list_of_nothing_says_so_to_a_person_only(world: &World) {
    world.make_store();
    let mut terminal = Terminal::start(&world.leasehold(["ls"]));
    terminal.expect("no locks are held");
    terminal.ends_with(0);
    assert_eq!(finish(world.leasehold(["ls"])).code(0).stderr, "");
}

/// A line that wraps cannot be overwritten, and would be repeated every second.
#[test]
fn the_status_line_fits_into_a_narrow_terminal() {
    let world = World::sqlite();
    let mut holder = start(world.run("x", &[], "echo up; read line"));
    holder.expect("up");
    let mut terminal = Terminal::of_width(&world.run("x", &["-w", "10m"], "true"), 40);
    terminal.expect("waiting for 3.");
    terminal.type_in("\x03");
    terminal.ends_with(130);
    let written: Vec<_> = terminal.seen.split("\r\x1b[2K").skip(1).collect();
    assert!(written.len() >= 3, "{:?}", terminal.seen);
    for line in written {
        let line = line.split(['\r', '\n']).next().unwrap_or_default();
        assert!(line.chars().count() < 40, "{line:?}");
    }
    drop(holder.end());
}

/// The line belongs to the shell, which shows the prompt and the input of a person.
#[test]
fn a_wait_in_the_background_or_at_a_dumb_terminal_overwrites_no_line() {
    let world = World::sqlite();
    let mut holder = start(world.run("x", &[], "echo up; read line"));
    holder.expect("up");
    for script in ["set -m; \"$@\" & wait %1", "TERM=dumb \"$@\""] {
        let inner = world.run("x", &["-w", "2500ms"], "true");
        let mut outer = Command::new("bash");
        outer.args(["-c", script, "bash"]).current_dir(world.path(""));
        outer.arg(inner.get_program()).args(inner.get_args());
        let mut terminal = Terminal::start(&outer);
        terminal.expect("is held by");
        terminal.closes_without("\x1b[2K");
        terminal.ends_with(75);
        assert!(terminal.seen.contains("gave up after 2.5s"), "{}", terminal.seen);
    }
    drop(holder.end());
}

/// A terminal may stop background jobs that write to it, and the lease would end meanwhile.
#[test]
fn a_message_in_the_background_waits_for_the_foreground_and_stops_nobody() {
    let world = World::sqlite();
    let script = "exec > /dev/null 2>&1; trap 'echo told > $1/log; exit 4' TERM; echo > $1/up; \
                  while :; do sleep 0.02; done";
    let inner = world.run("x", &["--ttl", "1s"], script);
    let mut outer = Command::new("bash");
    let script = "stty tostop; set -m; \"$@\" & read go; echo to the front; fg; echo ended $?";
    outer.args(["-c", script, "bash"]).current_dir(world.path(""));
    outer.arg(inner.get_program()).args(inner.get_args());
    let mut terminal = Terminal::start(&outer);
    until("the command runs", || world.path("up").exists());
    finish(world.leasehold(["unlock", "x", "--ask", "--why", "the test"])).code(0);
    until("the command is told to stop", || world.read("log") == "told\n");
    until("the lock is released", || world.state("x") == "free");
    terminal.type_in("go\n");
    terminal.expect("to the front");
    terminal.expect("the command is told to stop, and the lock is held");
    terminal.expect("ended 4");
    terminal.ends_with(0);
}

/// Otherwise, the first line of the command would appear on the status line.
#[test]
fn the_status_line_is_gone_before_the_command_writes() {
    let world = World::sqlite();
    let mut holder = start(world.run("x", &[], "echo up; read line"));
    holder.expect("up");
    let script = "read line; echo \"got $line\"";
    let mut terminal = Terminal::start(&world.run("x", &["-w", "10m", "-v"], script));
    terminal.expect("[Ctrl-C gives up]");
    drop(holder.end());
    // Our messages keep their order, and the log comes after the status line.
    terminal.expect("waited_ms=");
    terminal.type_in("hello\n");
    terminal.expect("got hello");
    let (before, _) = terminal.seen.split_once("got hello").expect("it was seen");
    let (_, after) = before.rsplit_once("[Ctrl-C gives up]").expect("it was seen");
    assert!(after.contains("\r\x1b[2K"), "the status line was not cleared: {:?}", terminal.seen);
    terminal.ends_with(0);
}

#[test]
fn the_embedded_store_introduces_itself_on_a_terminal() {
    let world = World::sqlite();
    let mut command = world.bare();
    command.args(["run", "x", "--", "true"]);
    let mut terminal = Terminal::start(&command);
    terminal.expect("only this user on this machine sees these locks");
    terminal.ends_with(0);
}

#[test]
fn each_node_of_a_quorum_has_a_line_of_its_own() {
    let world = World::sqlite();
    let mut command = world.bare();
    command
        .env("LEASEHOLD_URL", "unix:/nowhere/a unix:/nowhere/b")
        .args(["run", "x", "--", "true"]);
    let mut terminal = Terminal::start(&command);
    terminal.expect("see what the nodes say:");
    terminal.expect("    unix:/nowhere/a: no server listens");
    terminal.expect("    unix:/nowhere/b: no server listens");
    terminal.ends_with(69);
}
