//! What stores on servers share: streams of bytes over TCP and to sockets of this machine, and TLS.

mod home;
mod percent;
mod sockets;
mod stream;
#[cfg_attr(not(feature = "tls"), path = "tls/absent.rs")]
mod tls;
mod tls_options;

pub(crate) use self::home::Home;
pub(crate) use self::percent::decode;
#[cfg(feature = "redis")]
pub(crate) use self::sockets::open_tcp;
pub(crate) use self::sockets::open_unix;
#[cfg(feature = "postgres")]
pub(crate) use self::sockets::tcp_stream;
#[cfg(feature = "redis")]
pub(crate) use self::stream::write_all;
pub use self::stream::{Opening, Stream};
pub(crate) use self::tls::Tls;
#[cfg(feature = "redis")]
pub(crate) use self::tls::failure;
pub(crate) use self::tls_options::TlsOptions;
