//! Forwards methods of a store to another store.

/// Implements the named methods of [`Store`](leasehold::store::Store) by the methods of the store
/// in a field. `rest` stands for all but the four requests and `watch`.
///
/// ```
/// use std::future::ready;
/// use leasehold::store::{Acquired, Ask, BoxAnswer, MemoryStore, Refusal, Store};
///
/// /// Everything is taken.
/// struct Taken(MemoryStore);
///
/// impl Store for Taken {
///     fn acquire(&self, _: Ask) -> BoxAnswer<Acquired> {
///         Box::pin(ready(Ok(Refusal::taken(None, 0).into())))
///     }
///
///     leasehold_testkit::forward!(0: renew, release, inspect, watch, rest);
/// }
/// ```
#[macro_export]
macro_rules! forward {
    ($to:tt: $($method:ident),+) => {
        $($crate::forward!(@ $method $to);)+
    };
    (@ acquire $to:tt) => {
        fn acquire(
            &self,
            ask: ::leasehold::store::Ask,
        ) -> ::leasehold::store::BoxAnswer<::leasehold::store::Acquired> {
            self.$to.acquire(ask)
        }
    };
    (@ renew $to:tt) => {
        fn renew(
            &self,
            renewal: ::leasehold::store::Renewal,
        ) -> ::leasehold::store::BoxAnswer<::leasehold::store::Renewed> {
            self.$to.renew(renewal)
        }
    };
    (@ release $to:tt) => {
        fn release(
            &self,
            lease: ::leasehold::store::LeaseId,
            on_release: ::leasehold::store::OnRelease,
        ) -> ::leasehold::store::BoxAnswer<::leasehold::store::Released> {
            self.$to.release(lease, on_release)
        }
    };
    (@ inspect $to:tt) => {
        fn inspect(
            &self,
            key: ::leasehold::Key,
        ) -> ::leasehold::store::BoxAnswer<::leasehold::store::Snapshot> {
            self.$to.inspect(key)
        }
    };
    (@ watch $to:tt) => {
        fn watch(
            &self,
            inbox: &::leasehold::core::token::ClientId,
            sink: ::std::sync::Weak<dyn ::leasehold::store::HintSink>,
        ) {
            self.$to.watch(inbox, sink);
        }
    };
    (@ rest $to:tt) => {
        $crate::forward!(
            $to: listen, tell_when_free, let_go, shard, resize, capabilities, browse, label
        );
    };
    (@ listen $to:tt) => {
        fn listen(&self, inbox: &::leasehold::core::token::ClientId) {
            self.$to.listen(inbox);
        }
    };
    (@ tell_when_free $to:tt) => {
        fn tell_when_free(
            &self,
            key: &::leasehold::Key,
            inbox: &::leasehold::core::token::ClientId,
        ) {
            self.$to.tell_when_free(key, inbox);
        }
    };
    (@ let_go $to:tt) => {
        fn let_go(&self, lease: &::leasehold::store::LeaseId) {
            self.$to.let_go(lease);
        }
    };
    (@ shard $to:tt) => {
        fn shard(&self, key: &::leasehold::Key) -> u64 {
            self.$to.shard(key)
        }
    };
    (@ resize $to:tt) => {
        fn resize(
            &self,
            key: ::leasehold::Key,
            of: u32,
        ) -> ::leasehold::store::BoxAnswer<Option<u32>> {
            self.$to.resize(key, of)
        }
    };
    (@ capabilities $to:tt) => {
        fn capabilities(&self) -> ::leasehold::store::Capabilities {
            self.$to.capabilities()
        }
    };
    (@ browse $to:tt) => {
        fn browse(&self) -> Option<&dyn ::leasehold::store::Browse> {
            self.$to.browse()
        }
    };
    (@ label $to:tt) => {
        fn label(&self) -> String {
            self.$to.label()
        }
    };
}
