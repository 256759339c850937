//! An instance of `leasehold elect` that is asked over HTTP.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use super::process::{Running, start};
use super::{CEILING, World};

/// An instance of `leasehold elect x`, and the address where it answers.
pub(crate) struct Instance {
    pub(crate) running: Running,
    address: SocketAddr,
}

impl Instance {
    /// Starts an instance that runs this script while it leads.
    #[track_caller]
    pub(crate) fn start(world: &World, flags: &[&str], script: &str) -> Self {
        let flags = [flags, &["--serve", "0"]].concat();
        let mut running = start(world.elect("x", &flags, script));
        let line = running.expect_message("serving http://");
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        let address = address.and_then(|it| it.parse().ok()).expect("an address");
        Self { running, address }
    }

    #[track_caller]
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(CEILING)).expect("a time");
        stream
    }

    /// Sends these bytes and returns the whole answer.
    #[track_caller]
    pub(crate) fn ask(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(request).expect("it is read");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// Asks for a page, and returns the status and the object.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        let answer = self.ask(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (status.expect("a status"), serde_json::from_str(body).expect("JSON"))
    }

    /// The term in which the instance says that it leads.
    #[track_caller]
    pub(crate) fn term(&self) -> Option<u64> {
        let (status, page) = self.get("/leader");
        let fence = page["fence"].as_str().map(|fence| fence.parse().expect("a number"));
        assert_eq!((status == 200, &page["is_leader"]), (fence.is_some(), &(status == 200).into()));
        fence
    }
}
