//! Reserves ports that no other test takes.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use crate::virtual_host::SeededRandom;

/// The ports to choose from. Systems give higher ports to outgoing connections, so that no
/// connection takes a port while its server is down.
const RANGE: std::ops::Range<u16> = 12_000..32_000;

const TRIES: usize = 1_000;

/// How far the port of the bus is above the port of its node.
const BUS: u16 = 10_000;

/// A TCP port of 127.0.0.1 that belongs to this process while this lives, with or without a
/// listener.
///
/// The process binds the UDP port with the same number as a mark. Every process that tests with
/// this kit respects the mark. The system frees the mark when the process ends, in whatever way.
#[derive(Debug)]
pub(super) struct Port {
    number: u16,
    _reserved: UdpSocket,
    _bus: Option<UdpSocket>,
}

impl Port {
    /// Reserves a port without a listener.
    pub(super) fn reserve() -> Self {
        Self::reserve_in(RANGE, |_| Some(None))
    }

    /// Also reserves the port of the bus of a cluster, 10 000 ports above.
    pub(super) fn reserve_with_bus() -> Self {
        Self::reserve_in(RANGE.start..RANGE.end - BUS, |number| {
            let reserved = UdpSocket::bind((Ipv4Addr::LOCALHOST, number + BUS)).ok()?;
            is_free(number + BUS).then_some(Some(reserved))
        })
    }

    fn reserve_in(
        range: std::ops::Range<u16>,
        reserve_more: impl Fn(u16) -> Option<Option<UdpSocket>>,
    ) -> Self {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).expect("the operating system has a random source");
        let mut random = SeededRandom::new(u64::from_ne_bytes(seed));
        for _ in 0..TRIES {
            let offset = random.below(usize::from(range.end - range.start));
            let number = range.start + u16::try_from(offset).expect("within the range of ports");
            let Ok(reserved) = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)) else { continue };
            if is_free(number)
                && let Some(bus) = reserve_more(number)
            {
                return Self { number, _reserved: reserved, _bus: bus };
            }
        }
        panic!("none of {TRIES} ports of 127.0.0.1 within {range:?} is free");
    }

    pub(super) const fn number(&self) -> u16 {
        self.number
    }
}

/// Whether a port has no listener. This check only binds the port, and does not listen. A process
/// that another thread is starting has a copy of every socket until its `exec`. A listening copy
/// would block the port for that long.
fn is_free(port: u16) -> bool {
    let made = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    made.is_ok_and(|socket| {
        set_socket_reuseaddr(&socket, true).is_ok()
            && bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_that_somebody_listens_to_is_not_free() {
        let port = Port::reserve();
        assert!(is_free(port.number()));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.number()));
        let _listener = listener.expect("the port is ours");
        assert!(!is_free(port.number()));
    }
}
