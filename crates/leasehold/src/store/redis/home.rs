//! On which runtime a connection is served.

use std::sync::Arc;

use crate::host::{Host, Task};

/// Where the task of a connection runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Home {
    /// On the runtime of whoever asks first, so that an answer wakes no other thread.
    #[default]
    Asker,
    /// On the host's own thread, whatever becomes of the user's.
    Host,
}

impl Home {
    /// Runs the task there.
    pub(super) fn spawn(self, host: &Arc<dyn Host>, task: Task) {
        match self {
            Self::Asker => host.spawn_io(task),
            Self::Host => {
                // Spawned from the host's own thread, it stays there.
                let there = Arc::clone(host);
                host.spawn(Box::pin(async move { there.spawn_io(task) }));
            }
        }
    }
}
