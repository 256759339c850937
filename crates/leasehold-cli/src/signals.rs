//! The signals that we handle, and ending ourselves by a signal.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustix::process::{DumpableBehavior, Signal, WaitOptions, set_dumpable_behavior, wait};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::UnixStream;

use crate::exit::{Exit, Failure};
use crate::process::{Ignored, can_be_continued, has_terminal, is_first, is_of_our_group};

/// Signals that ask to stop: the first is forwarded, the second kills, the third leaves.
pub(crate) const FATAL: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

/// The other signals that we handle. CHLD is not forwarded; it tells us that a child ended.
const OTHERS: [Signal; 6] =
    [Signal::USR1, Signal::USR2, Signal::WINCH, Signal::CONT, Signal::TSTP, Signal::CHILD];

/// Whether every `leasehold run` passes this signal on to its command.
pub(crate) fn is_passed_on(signal: Signal) -> bool {
    FATAL.contains(&signal) || [Signal::USR1, Signal::USR2].contains(&signal)
}

/// The signals that pass this one on. A stopped process heeds a request to stop only once it is
/// continued, so such a request comes with CONT.
pub(crate) fn to_pass_on(signal: Signal) -> Vec<Signal> {
    let asks_to_stop = FATAL.contains(&signal);
    [signal].into_iter().chain(asks_to_stop.then_some(Signal::CONT)).collect()
}

/// A signal that we received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// The signal.
    pub(crate) signal: Signal,
    /// The sender. The sender of CHLD is always the kernel.
    pub(crate) sender: Sender,
}

/// The sender of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// The kernel, on its own: for a key at the terminal, or because the terminal was closed.
    Kernel,
    /// The process with this pid; zero if it is outside of our pid namespace.
    Process(i32),
    /// Our keeper, which passes on what it receives.
    OurKeeper,
}

/// The signals as they come in.
#[derive(Debug)]
pub(crate) struct Signals {
    delivery: SignalDelivery<UnixStream, WithOrigin>,
    received: VecDeque<Received>,
}

impl Signals {
    /// Handles the signals from now on. Call this before any step that a signal must not interrupt
    /// halfway, so before the store is connected.
    ///
    /// Ignored signals stay ignored, by us and by the command. nohup(1) and shells without job
    /// control start us with ignored signals.
    pub(crate) fn install() -> Result<Self, Failure> {
        let ignored = Ignored::at_start();
        let handled = FATAL.into_iter().chain(OTHERS);
        let handled = handled.filter(|one| *one == Signal::CHILD || !ignored.has(*one));
        let install = || {
            let (read, write) = UnixStream::pair()?;
            let numbers = handled.map(Signal::as_raw);
            SignalDelivery::with_pipe(read, write, WithOrigin::default(), numbers)
        };
        let delivery = install().map_err(|error: io::Error| {
            Failure::internal(format!("cannot handle signals: {error}; nothing was acquired"))
        })?;
        Ok(Self { delivery, received: VecDeque::new() })
    }

    /// Waits for the next signal. Several of one kind may arrive as one, as always on Unix.
    pub(crate) async fn next(&mut self) -> Received {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Waits for a signal that asks to stop. There is no command yet, so Ctrl-Z stops us at once,
    /// and the other signals do nothing.
    pub(crate) async fn interrupt(&mut self) -> Signal {
        loop {
            let Received { signal, sender } = self.next().await;
            match signal {
                signal if FATAL.contains(&signal) => return signal,
                Signal::TSTP if may_stop_for(sender) => suspend(),
                Signal::CHILD => reap(),
                _ => {}
            }
        }
    }

    /// Returns a signal that asks to stop, if one has already arrived.
    pub(crate) async fn interrupted_already(&mut self) -> Option<Signal> {
        // Let the runtime's driver look once, since signals arrive through it.
        tokio::task::yield_now().await;
        tokio::select! {
            biased;
            signal = self.interrupt() => Some(signal),
            () = std::future::ready(()) => None,
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Received> {
        loop {
            self.look();
            if let Some(received) = self.received.pop_front() {
                return Poll::Ready(received);
            }
            // A handler stores its signal first, and then writes a byte.
            let mut byte = [0];
            let mut byte = ReadBuf::new(&mut byte);
            match Pin::new(self.delivery.get_read_mut()).poll_read(context, &mut byte) {
                Poll::Ready(Ok(())) if !byte.filled().is_empty() => {}
                // The other end is ours, and stays open.
                Poll::Ready(_) | Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Takes the signals that have arrived.
    fn look(&mut self) {
        for received in self.delivery.pending().filter_map(|origin| received(&origin)) {
            if !self.received.contains(&received) {
                self.received.push_back(received);
            }
        }
        drop_late_stops(&mut self.received);
    }

    /// Takes the requests to stop that have arrived, even if other signals came before them.
    pub(crate) fn take_requests(&mut self) -> Vec<Received> {
        self.look();
        take_requests(&mut self.received)
    }

    /// Whether we were continued and have not dealt with it yet. Then it is too late to stop.
    pub(crate) fn are_continued(&mut self) -> bool {
        self.look();
        self.received.iter().any(|received| received.signal == Signal::CONT)
    }
}

/// Takes the requests to stop, and leaves the other signals in their order.
fn take_requests(received: &mut VecDeque<Received>) -> Vec<Received> {
    let all = std::mem::take(received).into_iter();
    let (requests, others) = all.partition(|received| FATAL.contains(&received.signal));
    *received = others;
    requests.into()
}

/// Drops TSTP if CONT is there. Nothing tells which of them came first, and nobody would continue
/// us once more.
fn drop_late_stops(received: &mut VecDeque<Received>) {
    if received.iter().any(|it| it.signal == Signal::CONT) {
        received.retain(|it| it.signal != Signal::TSTP);
    }
}

fn received(origin: &Origin) -> Option<Received> {
    let signal = Signal::from_named_raw(origin.signal)?;
    let sender = match (origin.cause, origin.process) {
        (Cause::Sent(_), Some(process)) => Sender::Process(process.pid),
        _ => Sender::Kernel,
    };
    Some(Received { signal, sender })
}

/// Makes a write beyond `ulimit -f` an error that we can report. By default, a signal ends us then.
/// If that signal is ignored, writes fail already, and the command ignores it too.
pub(crate) fn survive_full_files() {
    if !Ignored::at_start().has(Signal::XFSZ) {
        let _came = signal_hook::flag::register(Signal::XFSZ.as_raw(), Arc::default());
    }
}

/// Reaps the children that have ended, such as the keeper of an earlier command.
fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

/// Whether somebody can continue us after a stop that this sender asks for.
pub(crate) fn may_stop_for(sender: Sender) -> bool {
    let is_of_our_job = match sender {
        Sender::Kernel => true,
        // At a terminal, editors and sudo(8) stop their whole job by themselves, and with it us.
        // Elsewhere a script may stop us alone.
        Sender::Process(pid) => has_terminal() && is_of_our_group(pid),
        Sender::OurKeeper => false,
    };
    // A process outside our job that stops us can also continue us.
    (!is_of_our_job || can_be_continued()) && !is_first()
}

/// Stops this whole process until somebody continues it.
pub(crate) fn suspend() {
    // This cannot fail, since the process is our own.
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
}

/// Ends the process by a signal, or returns the code for `main` to return.
pub(crate) fn end(exit: Exit) -> ExitCode {
    if let Exit::Signal(signal) = exit {
        die_of(signal);
    }
    ExitCode::from(exit.shown())
}

/// Ends this process by `signal` as if it had no handler, and without a core dump of our own.
///
/// Returns only as process 1 of a container, which default actions do not end.
fn die_of(signal: i32) {
    // Our memory has the token and passwords. A limit of zero for cores is not enough, since a
    // handler such as systemd-coredump gets a core anyway.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let pid = rustix::process::getpid();
    if is_first() {
        return;
    }
    let emulated = signal_hook::low_level::emulate_default_handler(signal);
    // signal-hook takes SIGIO for one that does nothing.
    if let Some(signal) = Signal::from_named_raw(signal)
        && (emulated.is_err() || signal == Signal::IO)
    {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Reads `TERM`, `SIGTERM`, `term` or `15`.
pub(crate) fn parse(text: &str) -> Result<Signal, String> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let known = NAMES.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal);
    known.or_else(|| text.parse().ok().and_then(Signal::from_named_raw)).ok_or_else(|| {
        format!(
            "`{}` is not a signal; use a name such as TERM or INT, or a number from 1 to 31",
            text.escape_debug()
        )
    })
}

/// The signals of Linux, and further names for some of them. rustix has no real-time signals.
const NAMES: [(&str, Signal); 34] = [
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("ILL", Signal::ILL),
    ("TRAP", Signal::TRAP),
    ("ABRT", Signal::ABORT),
    ("BUS", Signal::BUS),
    ("FPE", Signal::FPE),
    ("KILL", Signal::KILL),
    ("USR1", Signal::USR1),
    ("SEGV", Signal::SEGV),
    ("USR2", Signal::USR2),
    ("PIPE", Signal::PIPE),
    ("ALRM", Signal::ALARM),
    ("TERM", Signal::TERM),
    ("STKFLT", Signal::STKFLT),
    ("CHLD", Signal::CHILD),
    ("CONT", Signal::CONT),
    ("STOP", Signal::STOP),
    ("TSTP", Signal::TSTP),
    ("TTIN", Signal::TTIN),
    ("TTOU", Signal::TTOU),
    ("URG", Signal::URG),
    ("XCPU", Signal::XCPU),
    ("XFSZ", Signal::XFSZ),
    ("VTALRM", Signal::VTALARM),
    ("PROF", Signal::PROF),
    ("WINCH", Signal::WINCH),
    ("IO", Signal::IO),
    ("PWR", Signal::POWER),
    ("SYS", Signal::SYS),
    ("IOT", Signal::ABORT),
    ("CLD", Signal::CHILD),
    ("POLL", Signal::IO),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_read_by_name_or_number() {
        for text in ["TERM", "SIGTERM", "term", "sigterm", "15"] {
            assert_eq!(parse(text), Ok(Signal::TERM), "{text}");
        }
        for text in ["", "SIG", "0", "32", "-15", "TERMINATE", "RTMIN+1", "9999"] {
            assert!(parse(text).expect_err(text).contains("TERM or INT"), "{text}");
        }
        for (text, signal) in NAMES {
            assert_eq!(parse(text), Ok(signal));
        }
        for number in 1..=31 {
            let signal = parse(&number.to_string()).expect("a signal of Linux");
            assert!(NAMES.iter().any(|(_, named)| *named == signal), "{number} has no name");
        }
    }

    fn of(signals: &[Signal]) -> VecDeque<Received> {
        let sender = Sender::Process(7);
        signals.iter().map(|signal| Received { signal: *signal, sender }).collect()
    }

    #[test]
    fn requests_to_stop_overtake_the_other_signals_and_take_none_along() {
        let (one, two, term, int) = (Signal::USR1, Signal::USR2, Signal::TERM, Signal::INT);
        for (came, taken, left) in [
            (&[one, two][..], &[][..], &[one, two][..]),
            (&[one, term, two, int], &[term, int], &[one, two]),
            (&[term], &[term], &[]),
            (&[], &[], &[]),
        ] {
            let mut received = of(came);
            assert_eq!(take_requests(&mut received), Vec::from(of(taken)), "{came:?}");
            assert_eq!(received, of(left), "{came:?}");
        }
    }

    #[test]
    fn a_stop_is_dropped_if_a_continuation_came_in_the_same_moment() {
        let (stop, go, term) = (Signal::TSTP, Signal::CONT, Signal::TERM);
        for (came, left) in [
            (&[stop, go][..], &[go][..]),
            (&[go, term, stop], &[go, term]),
            (&[stop, term], &[stop, term]),
            (&[go], &[go]),
        ] {
            let mut received = of(came);
            drop_late_stops(&mut received);
            assert_eq!(received, of(left), "{came:?}");
        }
    }
}
