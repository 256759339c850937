//! The tasks of a host, and those that can go on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use leasehold::host::Task;

/// Identifies a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TaskId(pub(super) u64);

/// The future that [`run`](super::VirtualHost::run) was called with.
pub(super) const ROOT: TaskId = TaskId(0);

/// The tasks that are not being polled at the moment.
#[derive(Default)]
pub(super) struct Tasks {
    resting: HashMap<TaskId, Task>,
    numbered: u64,
}

impl Tasks {
    pub(super) fn add(&mut self, task: Task) -> TaskId {
        self.numbered += 1;
        let id = TaskId(self.numbered);
        self.resting.insert(id, task);
        id
    }

    /// Takes a task out for a poll; `None` if it has ended.
    pub(super) fn take(&mut self, id: TaskId) -> Option<Task> {
        self.resting.remove(&id)
    }

    pub(super) fn put_back(&mut self, id: TaskId, task: Task) {
        self.resting.insert(id, task);
    }

    pub(super) fn take_all(&mut self) -> Vec<Task> {
        self.resting.drain().map(|(_, task)| task).collect()
    }

    pub(super) fn count(&self) -> usize {
        self.resting.len()
    }
}

/// The tasks that were woken, in the order of their ids. The next task must not depend on the order
/// of wake-ups, because that order may come from a hash map.
#[derive(Debug, Default)]
pub(super) struct Ready(Mutex<Vec<TaskId>>);

impl Ready {
    fn ids(&self) -> MutexGuard<'_, Vec<TaskId>> {
        // Always valid, even after a panic of a test.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, id: TaskId) {
        let mut ids = self.ids();
        if let Err(at) = ids.binary_search(&id) {
            ids.insert(at, id);
        }
    }

    pub(super) fn remove(&self, id: TaskId) {
        let mut ids = self.ids();
        if let Ok(at) = ids.binary_search(&id) {
            ids.remove(at);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids().is_empty()
    }

    /// Takes out a task. `choose` gets the number of tasks and picks an index.
    pub(super) fn take(&self, choose: impl FnOnce(usize) -> usize) -> Option<TaskId> {
        let mut ids = self.ids();
        if ids.is_empty() {
            return None;
        }
        let chosen = choose(ids.len());
        Some(ids.remove(chosen))
    }

    pub(super) fn waker(self: &Arc<Self>, id: TaskId) -> Waker {
        Arc::new(TaskWaker { id, ready: Arc::clone(self) }).into()
    }
}

/// Wakes one task, from any thread.
struct TaskWaker {
    id: TaskId,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.add(self.id);
    }
}
