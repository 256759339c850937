//! Tests how a client puts the pages of a store together.

use std::future::pending;
use std::sync::Weak;

use leasehold::core::token::ClientId;
use leasehold::store::{
    Acquired, Ask, BoxAnswer, Browse, Capabilities, Evicted, HintSink, LeaseId, OnRelease, Page,
    Released, Renewal, Renewed, Snapshot, Stopped, Store,
};
use leasehold::{Client, Identity, Key};
use leasehold_testkit::VirtualHost;

/// A store whose first page is incomplete, and that has another page.
struct TwoPages;

impl Store for TwoPages {
    fn acquire(&self, _: Ask) -> BoxAnswer<Acquired> {
        Box::pin(pending())
    }
    fn renew(&self, _: Renewal) -> BoxAnswer<Renewed> {
        Box::pin(pending())
    }
    fn release(&self, _: LeaseId, _: OnRelease) -> BoxAnswer<Released> {
        Box::pin(pending())
    }
    fn inspect(&self, _: Key) -> BoxAnswer<Snapshot> {
        Box::pin(pending())
    }
    fn watch(&self, _: &ClientId, _: Weak<dyn HintSink>) {}
    fn listen(&self, _: &ClientId) {}
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE
    }
    fn browse(&self) -> Option<&dyn Browse> {
        Some(self)
    }
    fn label(&self) -> String {
        "two pages".to_owned()
    }
}

impl Browse for TwoPages {
    fn list(&self, _: &str, cursor: Option<Key>) -> BoxAnswer<Page> {
        let key = |name| Key::new(name).expect("a name");
        let page = if cursor.is_none() {
            let mut first = Page::new(vec![key("a")], Some(key("a")));
            first.stopped = Some(Stopped::Keys(7));
            first
        } else {
            Page::new(vec![key("b")], None)
        };
        Box::pin(async { Ok(page) })
    }

    fn evict(&self, _: Key, _: Vec<u8>, _: String) -> BoxAnswer<Evicted> {
        Box::pin(pending())
    }
}

#[test]
fn a_listing_says_that_names_may_be_missing_if_any_of_its_pages_says_so() {
    let host = VirtualHost::new(1);
    host.run(async {
        let builder = Client::with_store(TwoPages).host(host.clone());
        let client = builder.identity(Identity::anonymous()).connect().await.expect("connected");
        let listing = client.list("*").await.expect("answered");
        assert_eq!(listing.names().len(), 2);
        assert_eq!(listing.stopped(), Some(Stopped::Keys(7)));
    });
    host.drop_tasks();
}
