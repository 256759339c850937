//! The part that stores on servers share: byte streams over TCP and to sockets of this machine, and
//! TLS.

#![cfg_attr(
    not(all(
        feature = "etcd",
        feature = "mysql",
        feature = "postgres",
        feature = "redis",
        feature = "zookeeper"
    )),
    allow(dead_code, unreachable_pub, unused_imports, reason = "a build may lack some stores")
)]

mod cluster_url;
mod connect_pause;
mod connecting;
mod effect;
mod home;
mod io;
mod members;
mod percent;
mod said;
mod sockets;
mod stream;
#[cfg_attr(not(feature = "tls"), path = "tls/absent.rs")]
mod tls;
mod tls_options;
mod url_options;

pub(crate) use self::cluster_url::{ClusterUrl, ClusterWords};
pub(crate) use self::connect_pause::{ConnectPause, for_now, unless_right};
pub(crate) use self::connecting::connecting;
pub(crate) use self::effect::Effect;
pub(crate) use self::home::Home;
pub(crate) use self::io::Io;
pub(crate) use self::members::Members;
pub(crate) use self::percent::decode;
pub(crate) use self::said::{Said, shown};
pub(crate) use self::sockets::host_and_port_text;
pub(crate) use self::sockets::open_tcp;
pub(crate) use self::sockets::open_unix;
pub(crate) use self::sockets::tcp_stream;
pub(crate) use self::stream::write_all;
pub use self::stream::{Opening, Stream};
pub(crate) use self::tls::Tls;
pub(crate) use self::tls::failure;
pub(crate) use self::tls_options::TlsOptions;
pub(crate) use self::url_options::{UrlOptions, host_and_port};
