//! What stores on servers share: streams of bytes over TCP and to sockets of this machine, and TLS.

#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod cluster_url;
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
mod connect_pause;
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
mod connecting;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod effect;
mod home;
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
mod io;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod members;
mod percent;
mod sockets;
mod stream;
#[cfg_attr(not(feature = "tls"), path = "tls/absent.rs")]
mod tls;
mod tls_options;
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
mod url_options;

#[cfg(any(feature = "etcd", feature = "zookeeper"))]
pub(crate) use self::cluster_url::{ClusterUrl, ClusterWords};
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
pub(crate) use self::connect_pause::ConnectPause;
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
pub(crate) use self::connecting::connecting;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
pub(crate) use self::effect::Effect;
pub(crate) use self::home::Home;
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
pub(crate) use self::io::Io;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
pub(crate) use self::members::Members;
pub(crate) use self::percent::decode;
pub(crate) use self::sockets::host_and_port_text;
#[cfg(feature = "redis")]
pub(crate) use self::sockets::open_tcp;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
pub(crate) use self::sockets::open_unix;
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
pub(crate) use self::sockets::tcp_stream;
#[cfg(not(any(feature = "postgres", feature = "redis")))]
pub(crate) use self::stream::Stream;
#[cfg(feature = "redis")]
pub(crate) use self::stream::write_all;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub use self::stream::{Opening, Stream};
pub(crate) use self::tls::Tls;
#[cfg(feature = "redis")]
pub(crate) use self::tls::failure;
pub(crate) use self::tls_options::TlsOptions;
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
pub(crate) use self::url_options::{UrlOptions, host_and_port};
