use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use super::*;
use crate::core::key::Key;
use crate::core::moment::WallTime;
use crate::host::Task;
use crate::store::sql::{Batch, Dialect, Link, Refused};

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

/// A server that takes connections, and answers when the test says so. Its messages have up to
/// `MAX` requests.
#[derive(Clone, Default)]
struct Server<const MAX: usize = 1>(Arc<ServerState>);

#[derive(Default)]
struct ServerState {
    host: Arc<SetHost>,
    /// The moments of its connections, in milliseconds.
    connected: Mutex<Vec<u64>>,
    answers: AtomicBool,
    /// How long it needs for a login, and then for the checks.
    connecting_takes: Mutex<Duration>,
    /// How long a message needs besides its requests.
    trip_takes: Mutex<Duration>,
    /// How long it needs for each request.
    takes: Mutex<Duration>,
    /// Whether it refuses the next message, and with it the connection.
    refuses: AtomicBool,
    /// Whether it refuses the first request of the next message, and nothing else.
    refuses_one: AtomicBool,
    /// The messages that it got.
    sent: Mutex<Vec<String>>,
}

impl<const MAX: usize> fmt::Debug for Server<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Server")
    }
}

struct Connection<const MAX: usize> {
    server: Server<MAX>,
    /// The only strong reference. Requests have weak ones, which show whether the connection still
    /// exists.
    life: Arc<()>,
}

impl<const MAX: usize> Link for Connection<MAX> {
    const BATCH_MAX: usize = MAX;

    fn ask_all(
        &self,
        mut batch: Batch,
    ) -> impl Future<Output = (Batch, Result<(), Refused>)> + Send + 'static {
        let (server, life) = (self.server.clone(), Arc::downgrade(&self.life));
        let requests = batch.sql().matches(';').count() + 1;
        server.0.sent.lock().expect("whole").push(batch.sql());
        let takes = *server.0.takes.lock().expect("whole") * u32::try_from(requests).expect("few");
        let host = Shown(Arc::clone(&server.0.host));
        let done_at = host.now() + *server.0.trip_takes.lock().expect("whole") + takes;
        let ended = poll_fn(move |_| {
            let is_gone = life.upgrade().is_none();
            if server.0.refuses_one.swap(false, Ordering::SeqCst) {
                let error = Error::new(ErrorKind::Denied, "not this one");
                let (spares_others, ends_connection) = (true, false);
                return Poll::Ready(Err(Refused { at: 0, error, spares_others, ends_connection }));
            }
            if is_gone || server.0.refuses.swap(false, Ordering::SeqCst) {
                let error = Error::new(ErrorKind::Unknown, "the connection ended");
                let (spares_others, ends_connection) = (false, true);
                return Poll::Ready(Err(Refused { at: 0, error, spares_others, ends_connection }));
            }
            let answers = server.0.answers.load(Ordering::SeqCst) && host.now() >= done_at;
            if answers { Poll::Ready(Ok(())) } else { Poll::Pending }
        });
        async move {
            let ended = ended.await;
            if ended.is_ok() {
                (0..requests).for_each(|_| batch.answer(Vec::new()));
            }
            (batch, ended)
        }
    }

    fn poll_moving(&mut self, _: &mut Context<'_>) -> Poll<bool> {
        Poll::Pending
    }
}

impl<const MAX: usize> Engine for Server<MAX> {
    type Link = Connection<MAX>;

    async fn log_in(&self) -> Result<Connection<MAX>, Error> {
        self.connecting().await;
        let now = self.0.host.now.load(Ordering::SeqCst) / 1_000_000;
        self.0.connected.lock().expect("whole").push(now);
        Ok(Connection { server: self.clone(), life: Arc::default() })
    }
    async fn check(&self, _: &mut Connection<MAX>) -> Result<(), Error> {
        self.connecting().await;
        Ok(())
    }
    fn label(&self) -> String {
        "a server".to_owned()
    }
    fn connect_limit(&self) -> Duration {
        Duration::from_secs(2)
    }
    fn dialect(&self) -> Dialect {
        Dialect { before: String::new(), text: String::push_str, has_patience: true, list: None }
    }
}

/// A wire to a server, and its host.
fn wire<const MAX: usize>(
    server: &Server<MAX>,
    longest: Duration,
) -> (Arc<SetHost>, Wire<Server<MAX>>) {
    let host = Arc::clone(&server.0.host);
    let shown = Arc::new(Shown(Arc::clone(&host)));
    (host, Wire::new(shown, server.clone(), Home::Asker, longest))
}

fn ask(wire: &Wire<Server>, times: usize) {
    (0..times).for_each(|_| drop(wire.submit(Duration::from_secs(1), Work::Alone, String::new())));
}

/// Asks for this many keys. Returns the answers.
fn ask_keys<const MAX: usize>(wire: &Wire<Server<MAX>>, keys: usize) -> Vec<Told> {
    let work = |at| Work::Step(Key::new(format!("key-{at:03}")).expect("a key"));
    let ask = |at| wire.submit(Duration::from_mins(1), work(at), String::new());
    (0..keys).map(ask).map(|answer| Box::pin(answer) as Told).collect()
}

type Told = Pin<Box<dyn Future<Output = Answer>>>;

/// How many of these are answered, and how many refused.
fn counted(told: Vec<Told>) -> (usize, usize) {
    let mut context = Context::from_waker(Waker::noop());
    told.into_iter().fold((0, 0), |(answered, refused), mut told| {
        match told.as_mut().poll(&mut context) {
            Poll::Ready(Ok(_)) => (answered + 1, refused),
            Poll::Ready(Err(_)) => (answered, refused + 1),
            Poll::Pending => (answered, refused),
        }
    })
}

impl<const MAX: usize> Server<MAX> {
    /// A login, or the checks.
    fn connecting(&self) -> Sleep {
        let host = Shown(Arc::clone(&self.0.host));
        host.sleep_until(host.now() + *self.0.connecting_takes.lock().expect("whole"))
    }

    /// The moments of its connections since the last call.
    fn connected(&self) -> Vec<u64> {
        std::mem::take(&mut *self.0.connected.lock().expect("whole"))
    }
}

/// A new connection every 1.5 s would only ask more of an overloaded server.
#[test]
fn each_silent_connection_is_given_twice_the_time_of_the_one_before_until_an_answer_comes_soon() {
    let server = Server::<1>::default();
    let (host, wire) = wire(&server, SILENT_AFTER_MAX);
    // Each connection takes one request along.
    ask(&wire, 10);
    host.pass_until(40);
    assert_eq!(server.connected(), [100, 1_600, 4_600, 10_600, 22_600, 34_600]);

    // The first answer comes after 5 s, and the others at once.
    server.0.answers.store(true, Ordering::SeqCst);
    host.pass_until(41);
    server.0.answers.store(false, Ordering::SeqCst);
    assert_eq!(server.connected(), [], "the connection that was given so much time is kept");
    // The second request waits behind the first, and so for the next connection.
    ask(&wire, 2);
    host.pass_until(45);
    assert_eq!(server.connected(), [42_600]);
}

#[test]
fn a_late_answer_does_not_shorten_the_time_of_the_next_message() {
    let server = Server::<1>::default();
    let (host, wire) = wire(&server, SILENT_AFTER_MAX);
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
    let server = Server::<1>::default();
    let (host, wire) = wire(&server, SILENT_AFTER);
    ask(&wire, 10);
    host.pass_until(6);
    assert_eq!(server.connected(), [100, 1_600, 3_100, 4_600]);
}

/// Otherwise each connection would end in the middle of a message, and nothing would be confirmed.
#[test]
fn messages_become_shorter_until_a_slow_server_answers_them_in_time() {
    let server = Server::<100>::default();
    server.0.answers.store(true, Ordering::SeqCst);
    *server.0.takes.lock().expect("whole") = Duration::from_millis(100);
    let (host, wire) = wire(&server, SILENT_AFTER);
    let told = ask_keys(&wire, 100);
    host.pass_until(3);
    assert_eq!(counted(told), (0, 100), "one message would take 10 s");
    let told = ask_keys(&wire, 100);
    host.pass_until(20);
    let (answered, refused) = counted(told);
    assert_eq!((answered, answered + refused), (25, 100), "messages of 50, 25, and then 12");
}

/// The socket of a server that said farewell ends a moment later.
#[test]
fn requests_that_wait_behind_a_farewell_go_over_the_next_connection() {
    let server = Server::<1>::default();
    server.0.answers.store(true, Ordering::SeqCst);
    server.0.refuses.store(true, Ordering::SeqCst);
    let (host, wire) = wire(&server, SILENT_AFTER);
    let told = ask_keys(&wire, 3);
    host.pass_until(3);
    assert_eq!(counted(told), (2, 1));
    assert_eq!(server.connected().len(), 2);
}

/// A message of one request takes just as long.
#[test]
fn messages_to_a_distant_server_become_longer_again() {
    let server = Server::<100>::default();
    server.0.answers.store(true, Ordering::SeqCst);
    *server.0.trip_takes.lock().expect("whole") = Duration::from_millis(300);
    let (host, wire) = wire(&server, SILENT_AFTER);
    let told = ask_keys(&wire, 1_000);
    host.pass_until(12);
    assert_eq!(counted(told), (1_000, 0));
}

#[test]
fn looks_that_wait_together_share_a_message() {
    let server = Server::<100>::default();
    server.0.answers.store(true, Ordering::SeqCst);
    *server.0.trip_takes.lock().expect("whole") = Duration::from_millis(300);
    let (host, wire) = wire(&server, SILENT_AFTER);
    let look = |_| wire.submit(Duration::from_secs(1), Work::Look, String::new());
    let told = (0..9).map(look).map(|answer| Box::pin(answer) as Told).collect();
    host.pass_until(1);
    assert_eq!(counted(told), (9, 0));
}

/// A login is the most expensive thing to ask of a slow server.
#[test]
fn a_server_that_was_slow_to_let_a_client_in_has_as_much_time_for_the_checks() {
    let server = Server::<1>::default();
    server.0.answers.store(true, Ordering::SeqCst);
    *server.0.connecting_takes.lock().expect("whole") = Duration::from_millis(1_500);
    let (host, wire) = wire(&server, SILENT_AFTER);
    let told = ask_keys(&wire, 3);
    host.pass_until(4);
    assert_eq!(counted(told), (3, 0));
    assert_eq!(server.connected().len(), 1);
}

/// The server is slow, and not far away.
#[test]
fn an_overloaded_server_is_sent_no_longer_messages() {
    let server = Server::<2>::default();
    server.0.answers.store(true, Ordering::SeqCst);
    *server.0.takes.lock().expect("whole") = Duration::from_secs(1);
    let (host, wire) = wire(&server, SILENT_AFTER);
    let told = ask_keys(&wire, 8);
    host.pass_until(10);
    assert_eq!(counted(told), (6, 2), "the first message had two, and each later one has one");
}

/// Otherwise a release could come before the ask that it follows.
#[test]
fn requests_of_one_key_that_are_sent_again_keep_their_order() {
    let server = Server::<100>::default();
    server.0.answers.store(true, Ordering::SeqCst);
    server.0.refuses_one.store(true, Ordering::SeqCst);
    let (host, wire) = wire(&server, SILENT_AFTER);
    let told = [("a", "refused"), ("b", "asks"), ("b", "releases")].map(|(key, sql)| {
        let work = Work::Step(Key::new(key).expect("a key"));
        Box::pin(wire.submit(Duration::from_mins(1), work, sql.to_owned())) as Told
    });
    host.pass_until(1);
    assert_eq!(counted(told.into()), (2, 1));
    let sent = server.0.sent.lock().expect("whole");
    assert_eq!(sent.len(), 2, "{sent:?}");
    let of_b = |message: &str| message.find("asks") < message.find("releases");
    assert!(sent.iter().all(|message| of_b(message)), "{sent:?}");
}

/// Nobody has to clean up after a request that never left.
#[test]
fn a_caller_that_gives_up_learns_whether_its_request_was_sent() {
    let server = Server::<1>::default();
    let (host, wire) = wire(&server, SILENT_AFTER_MAX);
    let mut told = [1, 2]
        .map(|_| Box::pin(wire.submit(Duration::from_secs(1), Work::Alone, String::new())) as Told);
    let mut context = Context::from_waker(Waker::noop());
    assert!(told.iter_mut().all(|told| told.as_mut().poll(&mut context).is_pending()));
    host.pass_until(1);
    let kinds = told.map(|mut told| match told.as_mut().poll(&mut context) {
        Poll::Ready(answer) => answer.map(drop).map_err(|error| error.kind()),
        Poll::Pending => panic!("its limit is over"),
    });
    // The second one waits for the answer to the first one.
    assert_eq!(kinds, [Err(ErrorKind::Unknown), Err(ErrorKind::Unavailable)]);
    server.0.answers.store(true, Ordering::SeqCst);
    host.pass_until(2);
    assert_eq!(server.0.sent.lock().expect("whole").len(), 1, "nobody waits for the second one");
}

#[test]
fn a_queue_has_a_limit_and_refuses_at_once_beyond_it() {
    let server = Server::<1>::default();
    let (_host, wire) = wire(&server, SILENT_AFTER_MAX);
    ask(&wire, QUEUE_MAX - 1);
    let mut context = Context::from_waker(Waker::noop());
    let mut last = || {
        let submitted = wire.submit(Duration::from_secs(1), Work::Alone, String::new());
        match (Box::pin(submitted) as Told).as_mut().poll(&mut context) {
            Poll::Ready(answer) => Some(answer.expect_err("nobody answers").kind()),
            Poll::Pending => None,
        }
    };
    assert_eq!([last(), last()], [None, Some(ErrorKind::Unavailable)]);
}
