//! Renew: restart the time of a lease. Never brings one back.

use std::sync::Arc;

use super::{Core, bound, tokens};
use crate::core::error::{Error, ErrorKind};
use crate::core::token::FencingBlock;
use crate::store::entry::Entry;
use crate::store::zookeeper::error::Fault;
use crate::store::zookeeper::mine::{Node, Of};
use crate::store::zookeeper::rpc::{Stat, exists};
use crate::store::{Renewal, Renewed};

impl Core {
    pub(in crate::store::zookeeper) async fn renew(
        &self,
        renewal: Renewal,
    ) -> Result<Renewed, Fault> {
        let of = (renewal.lease.key.clone(), renewal.lease.owner.clone());
        let renewed = match self.mine.find(&of) {
            Some(node) if node.session.is_over() => return Ok(Renewed::Lost),
            Some(node) => self.renew_node(&node, &renewal).await,
            None => self.renew_other(&of).await,
        };
        match renewed {
            Err(Fault::NoNode | Fault::SessionOver) => {
                if let Some(node) = self.mine.of(&of) {
                    // The node is still there if its time ended before it was written.
                    drop(self.begin_to_end(&node));
                }
                Ok(Renewed::Lost)
            }
            renewed => renewed,
        }
    }

    async fn renew_node(&self, node: &Arc<Node>, renewal: &Renewal) -> Result<Renewed, Fault> {
        self.check(&node.session, renewal.ttl)?;
        let mut wanted = false;
        if node.state.lock().held.is_none() {
            let line = self.look(&node.session, &node.of.0).await?;
            if line.first() != Some(&*node.name) {
                // The owner still waits.
                return Ok(Renewed::Lost);
            }
            wanted = line.waiting() > 0;
        }
        if !node.lengthen(self.wire.host.now(), renewal.ttl.get()) {
            self.end(node).await?;
            return Ok(Renewed::Lost);
        }
        {
            let mut state = node.state.lock();
            if state.entry().is_idle != renewal.idle {
                state.entry_mut().is_idle = renewal.idle;
            }
        }
        let granted = self.grant(node, renewal.ttl.get(), None).await?;
        wanted |= granted.is_wanted;
        let mut fencing = granted.fencing;
        if renewal.reserve > 0 {
            let reserved = self.reserve(node, renewal.reserve).await;
            fencing = reserved.map_err(Fault::after_a_change)?;
        }
        let last = fencing.map(FencingBlock::last);
        if let Some(at_least) = renewal.at_least
            && last.is_none_or(|last| last < at_least.get())
        {
            let message = "the ensemble counts fencing tokens by itself, so nobody can raise them; \
                           the lease was renewed; a ZooKeeper ensemble cannot be a node of a \
                           quorum";
            return Err(Error::new(ErrorKind::Unsupported, message).into());
        }
        let revoked = node.state.lock().entry().revoked.clone();
        Ok(Renewed::Renewed { fencing, raised_from: None, wanted, revoked })
    }

    /// Takes further fencing tokens: those of a new change.
    async fn reserve(&self, node: &Arc<Node>, reserve: u32) -> Result<Option<FencingBlock>, Fault> {
        let _turn = node.turn.lock().await;
        let entry = Entry { fence: None, reserve, ..node.state.lock().entry().clone() };
        let numbers = tokens(self.write(node, Some(entry)).await?.0.modified);
        Ok(node.state.lock().hold(numbers))
    }

    /// Answers for a lease that this store did not grant, or that has ended.
    async fn renew_other(&self, of: &Of) -> Result<Renewed, Fault> {
        let session = self.wire.session().await?;
        let line = self.look(&session, &of.0).await?;
        let Some(node) = line.node_of(&of.1, "") else { return Ok(Renewed::Lost) };
        let path = format!("{}/{node}", self.names.lock(&of.0));
        let stat = session.ask(exists(&path), Stat::read).await?;
        // A node of this store is about to be deleted.
        if self.is_of(stat, &session) { Ok(Renewed::Lost) } else { Err(bound(of).into()) }
    }
}
