//! Takes the place of `tls` in a build without TLS.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;

use super::{Stream, TlsOptions};
use crate::core::error::{Error, ErrorKind};

/// A type without values.
#[derive(Clone, Debug)]
pub(crate) enum Tls {}

impl Tls {
    pub(crate) fn new(_options: &TlsOptions) -> Result<Self, Error> {
        let message = "this store URL needs TLS, which is not in this build; no request was sent; \
                       build `leasehold` with its feature `tls`";
        Err(Error::new(ErrorKind::Config, message))
    }

    pub(crate) fn ahead(&self, _: Duration) -> Self {
        match *self {}
    }

    #[allow(clippy::unused_async, reason = "has the signature of the real one")]
    pub(crate) async fn secure(&self, _: TcpStream, _: &str) -> Result<Box<dyn Stream>, Error> {
        match *self {}
    }
}

pub(crate) const fn failure(_cause: &io::Error) -> Option<Error> {
    None
}
