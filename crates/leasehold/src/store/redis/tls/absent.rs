//! Takes the place of `tls` in a build without TLS.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;

use super::connector::Stream;
use super::options::TlsOptions;
use crate::core::error::{Error, ErrorKind};

/// Cannot be made.
#[derive(Clone, Debug)]
pub(super) enum Tls {}

impl Tls {
    pub(super) fn new(_options: &TlsOptions) -> Result<Self, Error> {
        let message = "the store URL `rediss://…` needs TLS, which is not in this build; no request \
                       was sent, build `leasehold` with its feature `tls`";
        Err(Error::new(ErrorKind::Config, message))
    }

    pub(super) fn ahead(&self, _: Duration) -> Self {
        match *self {}
    }

    #[allow(clippy::unused_async, reason = "has the form of the real one")]
    pub(super) async fn secure(&self, _: TcpStream, _: &str) -> Result<Box<dyn Stream>, Error> {
        match *self {}
    }
}

pub(super) const fn failure(_cause: &io::Error) -> Option<Error> {
    None
}
