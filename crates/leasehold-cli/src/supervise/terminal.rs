//! Whether the command shares a terminal with us, and which signals of the terminal reach it.

use rustix::fs::{Mode, OFlags};
use rustix::process::{getpgrp, getpid, getsid};
use rustix::termios::tcgetpgrp;

/// How the command shares our terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terminal {
    /// Not at all. The command has a process group of its own.
    Apart,
    /// The command is in our process group, so all signals of the terminal go to both of us.
    Shared,
    /// Same as [`Shared`](Self::Shared), and we lead the session. The keys go to both of us. If the
    /// terminal is closed, only the leader of the session gets a HUP.
    Led,
}

impl Terminal {
    /// Finds out how a command that starts now must share our terminal. If we are in the
    /// foreground, the command must be in our process group. Otherwise the terminal would stop it
    /// when it reads or writes. Our stdin does not tell: ssh and sudo open the terminal themselves.
    pub(super) fn now() -> Self {
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
        let foreground = match rustix::fs::open("/dev/tty", flags, Mode::empty()) {
            Ok(terminal) => tcgetpgrp(terminal),
            // A container may have a terminal without this file.
            Err(_) => tcgetpgrp(rustix::stdio::stdin()),
        };
        if !foreground.is_ok_and(|group| group == getpgrp()) {
            return Self::Apart;
        }
        if getsid(None) == Ok(getpid()) { Self::Led } else { Self::Shared }
    }

    /// Whether the command is in our process group.
    pub(super) fn is_shared(self) -> bool {
        self != Self::Apart
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold::core::Moment;
    use rustix::process::Signal;

    use super::*;
    use crate::signals::{Received, Sender};
    use crate::supervise::Policy;
    use crate::supervise::machine::{Action, Input, Supervision};

    /// A terminal that is closed signals the leader of its session. When the leader ends, the
    /// kernel signals the job in the foreground.
    #[test]
    fn a_hangup_of_the_terminal_is_passed_on_only_if_the_command_did_not_get_it() {
        let ttl = Duration::from_secs(10);
        let policy = Policy { ttl, grace: ttl / 4, stop: Signal::TERM, limit: None };
        let now = Moment::from_nanos(5);
        let hup = Received { signal: Signal::HUP, sender: Sender::Kernel };
        for (terminal, expected) in [
            (Terminal::Apart, Action::Forward(Signal::HUP)),
            (Terminal::Shared, Action::ForwardOutside(Signal::HUP)),
            (Terminal::Led, Action::Forward(Signal::HUP)),
        ] {
            let mut supervision = Supervision::new(policy, terminal, now + ttl);
            let actions = supervision.on(now, ttl, Input::Signal(hup));
            assert_eq!(actions, [expected], "{terminal:?}");
        }
    }
}
