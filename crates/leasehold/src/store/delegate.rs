//! Implements `Store` for the public store of an engine. It passes each request on to its `inner`
//! store.

/// Implements the contract for a type with a field `inner`, which is another store. The type needs
/// the functions `open` and `reach`. The file of the type must import the types of the contract.
macro_rules! delegate {
    ($store:ident, $connector:ident) => {
        impl $store {
            /// Connects to the servers that a connector names.
            ///
            /// # Errors
            ///
            /// - [`Config`](crate::ErrorKind::Config) if the server is not the right one, is too
            ///   old, or has no tables for locks.
            /// - [`Denied`](crate::ErrorKind::Denied) for a wrong password or a missing right.
            /// - [`Unavailable`](crate::ErrorKind::Unavailable) if no server that answers can
            ///   decide about locks.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future opens no store, and changes no lock.
            pub async fn connect_with(
                connector: $connector,
                host: Arc<dyn Host>,
            ) -> Result<Self, Error> {
                let store = Self::open(connector, host);
                store.reach().await?;
                Ok(store)
            }
        }

        impl Store for $store {
            $crate::store::any::forward!(inner);
        }

        impl fmt::Debug for $store {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($store), self.inner.label())
            }
        }
    };
}

pub(super) use delegate;
