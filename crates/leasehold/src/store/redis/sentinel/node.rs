//! One sentinel: what it is asked, and what it announces.

use std::io;
use std::time::Duration;

use tokio::sync::Notify;

use super::ASK_LIMIT;
use super::decision::{Answer, Named};
use crate::core::error::{Error, ErrorKind};
use crate::host::SystemHost;
use crate::store::net::{Tls, host_and_port_text, open_tcp};
use crate::store::redis::codec::command::Command;
use crate::store::redis::codec::{self, Frame, Reader};
use crate::store::redis::connector::{Access, Connector, Opening, Stream, write_all};
use crate::store::redis::error::{refusal, said};
use crate::store::redis::hints::listen::{Messages, News, Subscriber, subscribe};
use crate::store::redis::place::{Place, is_host};
use crate::store::redis::wire::handshake::handshake;
use crate::store::within;

/// The pause before listening to a sentinel again.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// The pause after a sentinel refused a subscription.
const LISTEN_AGAIN_IF_REFUSED: Duration = Duration::from_mins(1);

/// The longest answer of a sentinel, in bytes. The usual one has 1 KB.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The channels on which sentinels announce a new primary, each with the text before its name in a
/// message. The sentinel that leads a failover uses the first channel as soon as a replica is
/// promoted. Each sentinel uses the second one when it takes the old primary for a replica, maybe
/// much later.
const CHANNELS: [(&str, &str); 2] =
    [("+failover-state-reconf-slaves", "master "), ("+switch-master", "")];

/// One sentinel.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) access: Access,
    pub(super) tls: Option<Tls>,
}

impl Node {
    pub(super) fn name(&self) -> String {
        host_and_port_text(&self.host, self.port)
    }

    /// Asks for the primary of this name.
    pub(super) async fn ask(&self, primary: &str) -> Result<Answer, Error> {
        let mut stream = open_tcp(&self.host, self.port, self.tls.as_ref()).await?;
        handshake(&mut *stream, &self.access).await?;
        let mut words = Vec::new();
        // During a failover, the sentinel that leads it has the new epoch already. Only the answer
        // to the second command has the new address, too.
        for question in ["MASTER", "GET-MASTER-ADDR-BY-NAME"] {
            codec::write(&Command::new("SENTINEL").arg(question).arg(primary), &mut words);
        }
        write_all(&mut *stream, &words).await.map_err(gone)?;
        let mut reader = Reader::of_short(ANSWER_BYTES_MAX);
        let fields = match next(&mut reader, &mut *stream).await? {
            Frame::Array(fields) => fields,
            Frame::Error(text) if text.contains("No such master") => return Ok(Answer::Unknown),
            Frame::Error(text) if text.contains("unknown command") => {
                return Err(no_sentinel(&text));
            }
            Frame::Error(text) => return Err(refusal(codec::code(&text), &text)),
            _ => return Err(no_sentinel("")),
        };
        let epoch = epoch_in(&fields).ok_or_else(|| no_sentinel(""))?;
        match next(&mut reader, &mut *stream).await? {
            Frame::Array(place) => place_in(&place)
                .map(|place| Answer::Named(Named { place, epoch }))
                .ok_or_else(|| {
                    let message = "it knows no address of the primary yet; try again";
                    Error::new(ErrorKind::Unavailable, message)
                }),
            Frame::Nil => Ok(Answer::Unknown),
            Frame::Error(text) => Err(refusal(codec::code(&text), &text)),
            _ => Err(no_sentinel("")),
        }
    }

    /// Notifies at each announcement about this primary, as long as the sentinel can be reached.
    pub(super) async fn listen(&self, primary: &str, announced: &Notify) {
        let host = SystemHost::shared();
        loop {
            let again = match within(SystemHost::shared(), ASK_LIMIT, self.subscribed()).await {
                Ok(mut messages) => {
                    // Something may have been announced before.
                    announced.notify_one();
                    while let Some(news) = messages.next().await {
                        if is_about(&news, primary) {
                            announced.notify_one();
                        }
                    }
                    LISTEN_AGAIN
                }
                Err(error) if error.kind() == ErrorKind::Denied => {
                    let sentinel = self.name();
                    tracing::warn!(sentinel, %error, "a sentinel does not tell of failovers");
                    LISTEN_AGAIN_IF_REFUSED
                }
                Err(_) => LISTEN_AGAIN,
            };
            host.sleep_until(host.now() + again).await;
        }
    }

    /// The messages of the sentinel.
    async fn subscribed(&self) -> Result<Messages, Error> {
        let Subscriber { mut channels, mut messages } = subscribe(self).await?;
        for (channel, _) in CHANNELS {
            // The sentinels are asked afterwards, so announcements until then may be lost.
            messages.attend(channels.add(channel), drop).await?;
        }
        Ok(messages)
    }
}

/// Reads the next answer.
async fn next(reader: &mut Reader, stream: &mut dyn Stream) -> Result<Frame, Error> {
    reader.next(stream).await.map_err(gone)?.map_err(|_refused| no_sentinel(""))
}

/// Whether a message tells of a failover of this primary.
fn is_about(news: &News, primary: &str) -> bool {
    let News::Published(message) = news else { return false };
    let before = CHANNELS.into_iter().find(|(channel, _)| *channel == message.channel);
    before.is_some_and(|(_, before)| {
        let rest = message.payload.strip_prefix(before.as_bytes());
        let rest = rest.and_then(|rest| rest.strip_prefix(primary.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&b' '))
    })
}

impl Connector for Node {
    fn open(&self) -> Opening {
        let Self { host, port, tls, .. } = self.clone();
        Box::pin(async move { open_tcp(&host, port, tls.as_ref()).await })
    }

    fn label(&self) -> String {
        self.name()
    }

    fn access(&self) -> Access {
        self.access.clone()
    }
}

/// Reads the epoch in the answer to `SENTINEL MASTER`: alternating names and values.
fn epoch_in(fields: &[Frame]) -> Option<u64> {
    let value = fields.chunks_exact(2).find_map(|pair| match pair {
        [Frame::Bytes(name), Frame::Bytes(value)] if name == b"config-epoch" => Some(value),
        _ => None,
    });
    str::from_utf8(value?).ok()?.parse().ok()
}

/// Reads the answer to `SENTINEL GET-MASTER-ADDR-BY-NAME`. A sentinel that cannot resolve a name
/// answers with no host.
fn place_in(fields: &[Frame]) -> Option<Place> {
    let [Frame::Bytes(host), Frame::Bytes(port)] = fields else { return None };
    let host = str::from_utf8(host).ok().filter(|host| is_host(host))?;
    let port = str::from_utf8(port).ok()?.parse().ok().filter(|port| *port != 0)?;
    Some((host.to_owned(), port))
}

fn no_sentinel(text: &str) -> Error {
    let message = "this is not a sentinel; no request was sent; write `redis://` for a server, or \
                   correct the host and the port in the URL (sentinels usually have port 26379)";
    let error = Error::new(ErrorKind::Config, message);
    if text.is_empty() { error } else { error.with_source(said(text)) }
}

fn gone(cause: io::Error) -> Error {
    let message = "the sentinel ended the connection before it answered; no request was sent";
    Error::new(ErrorKind::Unavailable, message).with_source(cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::hints::listen::Message;

    #[test]
    fn answers_and_messages_of_sentinels_are_read_only_if_they_are_whole() {
        let frames = |words: &[&str]| -> Vec<Frame> {
            words.iter().map(|word| Frame::Bytes(word.as_bytes().to_vec())).collect()
        };
        assert_eq!(epoch_in(&frames(&["name", "m", "config-epoch", "3"])), Some(3));
        for torn in [&["config-epoch"][..], &["config-epoch", "-1"], &["x", "3"], &[]] {
            assert_eq!(epoch_in(&frames(torn)), None, "{torn:?}");
        }
        assert_eq!(place_in(&frames(&["::1", "7"])), Some(("::1".to_owned(), 7)));
        let hostile = &["a\u{1b}[31m", "7"][..];
        for torn in [hostile, &["h"], &["", "7"], &["h", "0"], &["h", "65536"], &["h", "x"], &[]] {
            assert_eq!(place_in(&frames(torn)), None, "{torn:?}");
        }
        let table = [
            ("+switch-master", "m 1.1.1.1 1 2.2.2.2 2", true),
            ("+switch-master", "mm 1.1.1.1 1 2.2.2.2 2", false),
            ("+switch-master", "m", false),
            ("+failover-state-reconf-slaves", "master m 1.1.1.1 1", true),
            ("+failover-state-reconf-slaves", "m 1.1.1.1 1", false),
            ("+sdown", "master m 1.1.1.1 1", false),
        ];
        for (channel, payload, expected) in table {
            let message = Message { channel: channel.to_owned(), payload: payload.into() };
            assert_eq!(is_about(&News::Published(message), "m"), expected, "{channel} {payload}");
        }
    }
}
