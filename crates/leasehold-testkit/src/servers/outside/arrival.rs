//! Futures that wait for something outside the virtual host.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use super::{ServerOutside, lock};

/// A future that counts as under way while it waits, which is from a pending poll until it is
/// woken. After that, the woken task must go on.
pub(super) struct Arrival<F> {
    future: Pin<Box<F>>,
    waiting: Arc<Waiting>,
}

impl<F: Future> Arrival<F> {
    pub(super) fn new(outside: &Arc<ServerOutside>, future: F) -> Self {
        let waiting = Waiting { outside: Arc::clone(outside), state: Mutex::default() };
        Self { future: Box::pin(future), waiting: Arc::new(waiting) }
    }
}

impl<F: Future> Future for Arrival<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // Begin before the poll, so that even an early wake counts.
        self.waiting.begin(context.waker());
        let waker = Waker::from(Arc::clone(&self.waiting));
        let polled = self.future.as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_ready() {
            self.waiting.end();
        }
        polled
    }
}

impl<F> Drop for Arrival<F> {
    fn drop(&mut self) {
        self.waiting.end();
    }
}

struct Waiting {
    outside: Arc<ServerOutside>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    counts: bool,
    /// How often the future was polled.
    polls: u64,
    waker: Option<Waker>,
}

impl Waiting {
    fn begin(&self, waker: &Waker) {
        let mut state = lock(&self.state);
        state.polls += 1;
        if !std::mem::replace(&mut state.counts, true) {
            self.outside.waits();
        }
        let before = state.waker.replace(waker.clone());
        drop(state);
        drop(before);
    }

    fn end(&self) {
        self.end_if(|_any| true);
    }

    fn end_if(&self, is_meant: impl FnOnce(&State) -> bool) {
        let mut state = lock(&self.state);
        if state.counts && is_meant(&state) {
            state.counts = false;
            self.outside.waits_no_more();
        }
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let (waker, polls) = {
            let state = lock(&self.state);
            (state.waker.clone(), state.polls)
        };
        // Wake the task first. Otherwise there would be a moment at which neither the outside nor a
        // task has anything to do.
        if let Some(waker) = waker {
            waker.wake();
        }
        // If the task was polled since, it may already wait for something else.
        self.end_if(|state| state.polls == polls);
    }
}
