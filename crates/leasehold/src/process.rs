//! The current process, and protection of values that a fork copied. It is for stores that have a
//! file or a connection of their own. [`InOrder`](crate::store::InOrder) does this for other
//! stores.
//!
//! A fork copies the memory of a process but none of its threads, and both processes share the
//! sockets. So a copy renews nothing, and its writes to a socket disturb the other process. A
//! copied client, guard, store or task is therefore useless: it refuses every request, and dropping
//! it changes nothing.
//!
//! A process is recognised by its id, and by the number of forks that led to it. Reading the id is
//! a system call, which is too slow for each step of a task that waits. The number is kept by a
//! handler of the C library, which `_Fork` and a bare `clone` do not call. So the steps of a wait
//! inside a client ask for the number alone. Code that uses a store or a socket, or tells a holder
//! that it holds, asks for both.
//!
//! An id can repeat: in another pid namespace, or after the first process is gone. Only a copy that
//! was made without the handler and has the same id is not recognised. Its locks are still its own,
//! since owner tokens come straight from the operating system.

use std::fmt;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use crate::core::error::{Error, ErrorKind};

/// The process that made a value.
///
/// ```
/// use leasehold::process::Process;
///
/// let made_by = Process::this();
/// // In a child of this process, it is `Config`.
/// assert!(made_by.check().is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct Process {
    id: u32,
    forks: forkguard::Guard,
}

impl Process {
    /// The running process.
    #[must_use]
    pub fn this() -> Self {
        Self { id: std::process::id(), forks: forkguard::new() }
    }

    /// Whether this is the running process. If not, a fork copied the value.
    #[must_use]
    pub fn is_this(&self) -> bool {
        !self.was_forked() && self.id == std::process::id()
    }

    /// Whether a `fork` of the C library copied the value. This makes no system call.
    pub(crate) fn was_forked(&self) -> bool {
        self.forks.clone().detected_fork()
    }

    /// Refuses to use a value that a fork copied.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] if the running process is another one.
    pub fn check(&self) -> Result<(), Error> {
        if self.is_this() { Ok(()) } else { Err(self.copied()) }
    }

    fn copied(&self) -> Error {
        let this = Self::this();
        Error::new(
            ErrorKind::Config,
            format!(
                "a fork copied this client or store from {self} into {this}, where it holds no \
                 lock; no request was sent; open a new client in this process"
            ),
        )
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.id)
    }
}

/// A boxed future that runs only in its own process. In a copy of that process it never ends, and
/// its content is neither touched nor dropped.
pub(crate) struct OnlyHere<T> {
    process: Process,
    /// Whether each step also asks for the id of the process.
    has_socket: bool,
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
}

impl<T> OnlyHere<T> {
    /// Wraps a wait inside a client. `process` is the process that made the client.
    pub(crate) fn new(process: &Process, future: Pin<Box<dyn Future<Output = T> + Send>>) -> Self {
        Self { process: process.clone(), has_socket: false, future: Some(future) }
    }

    /// Wraps a task of this process that uses a socket.
    pub(crate) fn with_socket(future: Pin<Box<dyn Future<Output = T> + Send>>) -> Self {
        Self { process: Process::this(), has_socket: true, future: Some(future) }
    }

    fn may_run(&self) -> bool {
        if self.has_socket { self.process.is_this() } else { !self.process.was_forked() }
    }
}

impl<T> Future for OnlyHere<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if !self.may_run() {
            return Poll::Pending;
        }
        let Some(future) = &mut self.future else { return Poll::Pending };
        let output = std::task::ready!(future.as_mut().poll(context));
        self.future = None;
        Poll::Ready(output)
    }
}

impl<T> Drop for OnlyHere<T> {
    fn drop(&mut self) {
        if self.future.is_some() && !self.process.is_this() {
            std::mem::forget(self.future.take());
        }
    }
}

/// A static with one value per process.
///
/// A value that a fork copied stays untouched, for example a locked mutex. A forked process appends
/// its own value to the list. So the list is as long as forks are nested.
#[derive(Debug)]
pub struct PerProcess<T>(OnceLock<Own<T>>);

#[derive(Debug)]
struct Own<T> {
    process: Process,
    value: T,
    next: OnceLock<Box<Self>>,
}

impl<T: Default> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Default> PerProcess<T> {
    /// A static without a value yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The value of this process. Makes it if it is missing.
    pub fn own(&self) -> &T {
        let fresh = || Own { process: Process::this(), value: T::default(), next: OnceLock::new() };
        let mut at = self.0.get_or_init(fresh);
        while !at.process.is_this() {
            at = at.next.get_or_init(|| Box::new(fresh()));
        }
        &at.value
    }

    /// The process from which this process inherited a value, if any.
    pub fn inherited_from(&self) -> Option<Process> {
        let first = self.0.get()?;
        (!first.process.is_this()).then(|| first.process.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A process that is not this one.
    fn other() -> Process {
        Process { id: std::process::id() + 1, forks: forkguard::new() }
    }

    #[test]
    fn a_copy_is_refused_and_the_message_names_both_processes() {
        assert!(Process::this().check().is_ok());
        let error = other().check().expect_err("it is of another process");
        assert_eq!(error.kind(), ErrorKind::Config);
        let text = error.to_string();
        for part in [
            format!("from process {}", std::process::id() + 1),
            format!("into process {}", std::process::id()),
            "holds no lock".to_owned(),
            "open a new client".to_owned(),
        ] {
            assert!(text.contains(&part), "{text}");
        }
    }

    #[test]
    fn a_copied_future_is_neither_run_nor_dropped() {
        struct Untouchable;
        impl Drop for Untouchable {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        let inside = Untouchable;
        let future = Box::pin(async move {
            let _inside = inside;
            unreachable!("polled");
        });
        let mut copied =
            OnlyHere::<()> { process: other(), has_socket: true, future: Some(future) };
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(Pin::new(&mut copied).poll(&mut context).is_pending());
        drop(copied);
    }

    #[test]
    fn a_future_of_this_process_runs_to_its_end() {
        let mut future = OnlyHere::new(&Process::this(), Box::pin(async { 7 }));
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert_eq!(Pin::new(&mut future).poll(&mut context), Poll::Ready(7));
    }

    #[test]
    fn a_process_has_a_static_of_its_own_though_the_inherited_one_is_locked() {
        let statics = PerProcess::<Mutex<u32>>::new();
        let inherited = Own { process: other(), value: Mutex::new(1), next: OnceLock::new() };
        assert!(statics.0.set(inherited).is_ok());
        let _locked_by_a_thread_that_is_gone = statics.0.get().expect("set").value.lock();
        *statics.own().lock().expect("free") = 2;
        assert_eq!(*statics.own().lock().expect("free"), 2, "it is made once");
        assert_eq!(statics.inherited_from().map(|process| process.id), Some(other().id));
    }
}
