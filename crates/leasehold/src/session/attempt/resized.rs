//! A task that waits for permits goes on when a resize changes their number.

use std::sync::Arc;

use super::Attempt;
use crate::core::claim::Claim;
use crate::core::error::{Error, ErrorKind};
use crate::core::lease::Turn;
use crate::session::held::Held;
use crate::store::Store;

impl Attempt {
    /// Like [`run`](Self::run). But if a resize changes the number of permits meanwhile,
    /// a task that waits keeps its place, and asks with the new number.
    pub(in crate::session) async fn run_through_resizes(
        &mut self,
    ) -> Result<Option<(Arc<Held>, Turn)>, Error> {
        loop {
            match self.run().await {
                Err(error) if self.adopts_new_number(&error).await => {}
                ended => return ended,
            }
        }
    }

    /// Takes over the number that a resize has set. Returns whether there is one that suffices.
    async fn adopts_new_number(&mut self, error: &Error) -> bool {
        let Claim::Permits { want, of } = self.spec.claim() else { return false };
        // A task that has waited used the right number before.
        if error.kind() != ErrorKind::Config || !self.decisions.has_waited() {
            return false;
        }
        let seen = self.session.store.inspect(self.spec.key.clone()).await;
        let Some(permits) = seen.ok().and_then(|seen| seen.permits) else { return false };
        if permits.of == of || permits.of < want {
            return false;
        }
        Arc::make_mut(&mut self.spec).claim = Claim::Permits { want, of: permits.of };
        true
    }
}
