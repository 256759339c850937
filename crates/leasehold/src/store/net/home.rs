//! Where the task of a connection runs.

use std::sync::Arc;

use crate::host::{Host, Task};

/// The runtime on which the task of a connection runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Home {
    /// The runtime of the first caller, so that an answer wakes no other thread.
    #[default]
    Asker,
    /// The host's own thread, which outlives the user's runtime.
    Host,
}

impl Home {
    /// Moves a task to the host after its runtime dropped it. Returns whether it goes on there,
    /// which it does only if it ran elsewhere. If a host drops its own task, the host is ending,
    /// and a new task would keep it alive.
    pub(crate) fn moves_to_host(&mut self) -> bool {
        std::mem::replace(self, Self::Host) == Self::Asker
    }

    /// Runs the task on the runtime of this home.
    pub(crate) fn spawn(self, host: &Arc<dyn Host>, task: Task) {
        match self {
            Self::Asker => host.spawn_io(task),
            Self::Host => {
                // A task that is spawned from the host's own thread stays there.
                let there = Arc::clone(host);
                host.spawn(Box::pin(async move { there.spawn_io(task) }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_goes_on_at_the_host_after_another_runtime_dropped_it_and_not_after_the_host_did() {
        let mut home = Home::Asker;
        assert!(home.moves_to_host());
        assert_eq!(home, Home::Host);
        assert!(!home.moves_to_host(), "the host is ending");
        assert_eq!(home, Home::Host);
    }
}
