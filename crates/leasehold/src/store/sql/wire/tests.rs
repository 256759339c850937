use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use super::*;
use crate::core::moment::WallTime;
use crate::host::Task;
use crate::store::sql::{Dialect, Hints, Link, Refused, Row};

/// A host whose time passes when the test says so. The test polls its tasks.
#[derive(Default)]
struct SetHost {
    now: AtomicU64,
    tasks: Mutex<Vec<Task>>,
}

impl SetHost {
    /// Lets everything run that can, at each tenth of a second until this second.
    fn pass_until(&self, second: u64) {
        while self.now.load(Ordering::SeqCst) < second * 1_000_000_000 {
            self.pass_one();
        }
    }

    /// Lets everything run that can, a tenth of a second later.
    fn pass_one(&self) {
        let mut context = Context::from_waker(Waker::noop());
        self.now.fetch_add(100_000_000, Ordering::SeqCst);
        let mut tasks = std::mem::take(&mut *self.tasks.lock().expect("whole"));
        tasks.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
        self.tasks.lock().expect("whole").extend(tasks);
    }
}

/// Hands one host to the wire and to the test.
struct Shown(Arc<SetHost>);

impl Host for Shown {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.now.load(Ordering::SeqCst))
    }
    fn wall(&self) -> WallTime {
        WallTime::from_unix_micros(0)
    }
    fn sleep_until(&self, at: Moment) -> Sleep {
        let host = Arc::clone(&self.0);
        Box::pin(poll_fn(move |_| {
            let is_over = host.now.load(Ordering::SeqCst) >= at.as_nanos();
            if is_over { Poll::Ready(()) } else { Poll::Pending }
        }))
    }
    fn spawn(&self, task: Task) {
        self.0.tasks.lock().expect("whole").push(task);
    }
    fn spawn_blocking(&self, _: &str, _: Task) -> Result<(), Error> {
        unreachable!("no task of a wire blocks");
    }
    fn random(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

/// A server that takes connections, and answers when the test says so.
#[derive(Clone, Default)]
struct Server(Arc<ServerState>);

#[derive(Default)]
struct ServerState {
    /// The moments of its connections, in milliseconds.
    connected: Mutex<Vec<u64>>,
    answers: AtomicBool,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Server")
    }
}

struct Connection {
    server: Server,
    /// Nobody else has it: so a request can tell whether its connection is there.
    life: Arc<()>,
}

impl Link for Connection {
    const BATCH_MAX: usize = 1;

    fn ask_all(
        &self,
        requests: Vec<String>,
    ) -> impl Future<Output = Result<Vec<Vec<Row>>, Refused>> + Send + 'static {
        let (server, life) = (self.server.clone(), Arc::downgrade(&self.life));
        poll_fn(move |_| {
            if life.upgrade().is_none() {
                let error = Error::new(ErrorKind::Unknown, "the connection ended");
                return Poll::Ready(Err(Refused { at: 0, error, is_rolled_back: false }));
            }
            let answers = server.0.answers.load(Ordering::SeqCst);
            if answers { Poll::Ready(Ok(vec![Vec::new(); requests.len()])) } else { Poll::Pending }
        })
    }

    fn poll_moving(&mut self, _: &mut Context<'_>) -> Poll<bool> {
        Poll::Pending
    }
}

impl Engine for Server {
    type Link = Connection;
    const POLLS: bool = false;

    async fn connect(&self, host: &Arc<dyn Host>) -> Result<Connection, Error> {
        let now = host.now().as_nanos() / 1_000_000;
        self.0.connected.lock().expect("whole").push(now);
        Ok(Connection { server: self.clone(), life: Arc::default() })
    }
    fn label(&self) -> String {
        "a server".to_owned()
    }
    fn connect_limit(&self) -> Duration {
        Duration::from_secs(2)
    }
    fn dialect(&self) -> Dialect {
        Dialect { before: String::new(), text: String::push_str, has_patience: true }
    }
    async fn receive(_: &Arc<Hints<Self>>, _: Self::Link) {}
}

/// A wire to a server, and its host.
fn wire(server: &Server, longest: Duration) -> (Arc<SetHost>, Wire<Server>) {
    let host = Arc::new(SetHost::default());
    let shown = Arc::new(Shown(Arc::clone(&host)));
    (host, Wire::new(shown, server.clone(), Home::Asker, longest))
}

fn ask(wire: &Wire<Server>, times: usize) {
    (0..times).for_each(|_| drop(wire.submit(Duration::from_secs(1), None, String::new())));
}

impl Server {
    /// The moments of its connections since the last look.
    fn connected(&self) -> Vec<u64> {
        std::mem::take(&mut *self.0.connected.lock().expect("whole"))
    }
}

/// An overloaded server would only be asked for more by a new connection every 1.5 s.
#[test]
fn each_silent_connection_is_given_twice_the_time_of_the_one_before_until_an_answer_comes_soon() {
    let server = Server::default();
    let (host, wire) = wire(&server, SILENT_AFTER_LONGEST);
    // Each connection takes one along.
    ask(&wire, 10);
    host.pass_until(40);
    assert_eq!(server.connected(), [100, 1_600, 4_600, 10_600, 22_600, 34_600]);

    // The first answer comes after 5 s, and the others at once.
    server.0.answers.store(true, Ordering::SeqCst);
    host.pass_until(41);
    server.0.answers.store(false, Ordering::SeqCst);
    assert_eq!(server.connected(), [], "the connection that was given so much time is kept");
    // The second one waits behind the first, and so for the next connection.
    ask(&wire, 2);
    host.pass_until(45);
    assert_eq!(server.connected(), [42_600]);
}

#[test]
fn a_late_answer_does_not_shorten_the_time_of_the_next_message() {
    let server = Server::default();
    let (host, wire) = wire(&server, SILENT_AFTER_LONGEST);
    ask(&wire, 2);
    // The connection of 1.6 s may be silent for 3 s. Its answer comes after 2.4 s.
    host.pass_until(4);
    server.0.answers.store(true, Ordering::SeqCst);
    host.pass_one();
    server.0.answers.store(false, Ordering::SeqCst);
    assert_eq!(server.connected(), [100, 1_600]);
    ask(&wire, 2);
    host.pass_until(6);
    assert_eq!(server.connected(), [], "it is given 3 s again");
    host.pass_until(8);
    assert_eq!(server.connected(), [7_200]);
}

#[test]
fn a_wire_whose_messages_are_urgent_gives_each_connection_the_same_time() {
    let server = Server::default();
    let (host, wire) = wire(&server, SILENT_AFTER);
    ask(&wire, 10);
    host.pass_until(6);
    assert_eq!(server.connected(), [100, 1_600, 3_100, 4_600]);
}
