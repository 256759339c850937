use std::future::{pending, ready};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::*;
use crate::host::SystemHost;
use crate::store::HintSink;
use crate::store::redis::connector::Opening;

/// A server that never answers.
struct Silent;

impl Connector for Silent {
    fn open(&self) -> Opening {
        Box::pin(pending())
    }

    fn label(&self) -> String {
        "silent".to_owned()
    }
}

fn inbox() -> ClientId {
    ClientId::new("Nn23PXTR8zL5").expect("an id")
}

/// The task has decided that nobody wants hints, but it has not ended yet.
#[test]
fn a_sink_that_is_added_while_the_task_ends_receives_its_hints() {
    let hints = Hints::new(Arc::new(SystemHost), Arc::new(Silent), Arc::default(), None);
    hints.state().running = true;
    let (weak, news) = (Arc::downgrade(&hints), Arc::clone(&hints.news));
    let task = Running { hints: weak, news, has_ended: true };
    assert!(!hints.disconnected(), "nobody wants to be told");
    hints.listen(&inbox());
    drop(task);
    let state = hints.state();
    assert!(state.inboxes.contains_key(&inbox()) && state.running);
}

/// A server that takes one connection.
struct Once(Mutex<Option<DuplexStream>>);

impl Connector for Once {
    fn open(&self) -> Opening {
        let stream = self.0.lock().expect("no panic").take().expect("one connection");
        Box::pin(ready(Ok(Box::new(stream) as _)))
    }

    fn label(&self) -> String {
        "once".to_owned()
    }
}

struct Deaf;

impl HintSink for Deaf {
    fn hint(&self, _: Hint) {}
}

/// Reads one request of this many words, and answers it.
async fn answer(server: &mut DuplexStream, words: usize, answer: &str) -> String {
    let mut text = String::new();
    while text.matches("\r\n").count() < 1 + 2 * words {
        let byte = server.read_u8().await.expect("the client writes");
        text.push(byte.into());
    }
    server.write_all(answer.as_bytes()).await.expect("the client reads");
    text
}

/// If a client asked about the keys one by one, many waiters would learn late that their keys
/// changed.
#[tokio::test]
async fn wanted_keys_are_all_asked_about_before_any_answer() {
    let (ours, mut server) = tokio::io::duplex(1 << 16);
    let connector = Arc::new(Once(Mutex::new(Some(ours))));
    let (sinks, sink) = (Arc::<Sinks>::default(), Arc::new(Deaf) as Arc<dyn HintSink>);
    sinks.watch(inbox(), Arc::downgrade(&sink));
    let hints = Hints::new(Arc::new(SystemHost), connector, sinks, None);
    hints.listen(&inbox());
    answer(&mut server, 1, "+PONG\r\n").await;
    answer(&mut server, 2, "%0\r\n").await;
    answer(&mut server, 3, "+OK\r\n").await;
    let subscribe = answer(&mut server, 2, "").await;
    assert!(subscribe.contains("SUBSCRIBE"), "{subscribe}");
    for number in 0..50 {
        hints.track(&Key::new(format!("key {number}")).expect("a name"), &inbox());
    }
    let confirmed = b">3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n";
    server.write_all(confirmed).await.expect("the client reads");
    let (mut asked, mut turns) = (String::new(), 0..1_000);
    while asked.matches("EXISTS").count() < 50 {
        turns.next().expect("no answer is waited for");
        let mut bytes = [0; 4_096];
        tokio::select! {
            biased;
            count = server.read(&mut bytes) => {
                let count = count.expect("the connection is open");
                asked.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
            () = tokio::task::yield_now() => {}
        }
    }
    drop(sink);
}
