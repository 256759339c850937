//! Listens to the bells on the store's thread.

use std::fs::File;
use std::future::pending;
use std::io;

use tokio::net::unix::pipe::Receiver;

/// How many bytes one read takes from a pipe. Each of them only says that a bell rang.
const TAKEN_MAX: usize = 256;

/// Listens to the pipe of a handle, if there is one.
#[derive(Default)]
pub(super) struct Ear(Option<Receiver>);

impl Ear {
    /// Listens to this pipe from now on, and to no other. Call it only on the store's thread.
    pub(super) fn listen(&mut self, pipe: File) -> io::Result<()> {
        self.0 = None;
        self.0 = Some(Receiver::from_file(pipe)?);
        Ok(())
    }

    /// Ends when a bell rings.
    ///
    /// # Cancel safety
    ///
    /// The next call notices a bell that rang meanwhile.
    pub(super) async fn rung(&self) {
        let Some(pipe) = &self.0 else { return pending().await };
        loop {
            if pipe.readable().await.is_err() {
                return pending().await;
            }
            let mut is_rung = false;
            while let Ok(1..) = pipe.try_read(&mut [0; TAKEN_MAX]) {
                is_rung = true;
            }
            if is_rung {
                return;
            }
        }
    }
}
