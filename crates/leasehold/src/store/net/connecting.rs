//! A limit on how long connecting may take.

use std::sync::Arc;
use std::time::Duration;

use crate::core::error::{Error, ErrorKind};
use crate::host::Host;
use crate::store::within;

/// Waits for a part of connecting, for at most `limit`. No request of a user is sent meanwhile, and
/// the error says so.
pub(crate) async fn connecting<T>(
    host: &Arc<dyn Host>,
    limit: Duration,
    part: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    within(Arc::clone(host), limit, part).await.map_err(|error| match error.kind() {
        ErrorKind::Unknown => silent(limit),
        _ => error,
    })
}

fn silent(limit: Duration) -> Error {
    let message = format!(
        "the server does not answer within {limit:?}; no request was sent; check host and port, \
         and whether the server is stopped, overloaded or cut off"
    );
    Error::new(ErrorKind::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;
    use crate::host::SystemHost;

    #[tokio::test]
    async fn a_server_that_falls_silent_while_connecting_was_sent_no_request() {
        let host = SystemHost::shared();
        let silent = connecting(&host, Duration::from_millis(1), pending::<Result<(), _>>()).await;
        let error = silent.expect_err("it is silent");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("no request was sent"), "{error}");
        assert!(!error.to_string().contains("may still take effect"), "{error}");
    }
}
