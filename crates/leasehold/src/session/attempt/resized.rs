//! A task that waits for permits goes on when a resize changes their number.

use std::sync::Arc;

use super::Attempt;
use crate::core::claim::{Claim, Usage};
use crate::core::error::{Error, ErrorKind};
use crate::core::lease::Turn;
use crate::session::held::Held;

impl Attempt {
    /// Like [`run`](Self::run). But if a resize changes the number of permits meanwhile, a task
    /// that waits keeps its place, and asks with the new number.
    pub(in crate::session) async fn run_through_resizes(
        &mut self,
    ) -> Result<Option<(Arc<Held>, Turn)>, Error> {
        loop {
            match self.run().await {
                Err(error) => self.adopt_number(error)?,
                got => return got,
            }
        }
    }

    /// Takes over the number of permits that a resize has set. Any other error stays.
    fn adopt_number(&mut self, error: Error) -> Result<(), Error> {
        let (Claim::Permits { want, of: asked }, Some(Usage::Permits { of })) =
            (self.spec.claim(), error.usage())
        else {
            return Err(error);
        };
        // The store has accepted the number of this task before, or it would not wait. A store that
        // refuses the number that it names would refuse it again, without a pause.
        if !self.decisions.has_waited() || of == asked {
            return Err(error);
        }
        if of < want {
            return Err(too_few_left(want, of));
        }
        // The refusal is not why this task goes on waiting.
        self.note_outage(None);
        Arc::make_mut(&mut self.spec).claim = Claim::Permits { want, of };
        Ok(())
    }
}

fn too_few_left(want: u32, of: u32) -> Error {
    let message = format!(
        "a resize left {of} permits, and this request wants {want}; nothing was acquired; ask for \
         1 to {of}"
    );
    Error::new(ErrorKind::Config, message)
}
