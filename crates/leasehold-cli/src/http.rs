//! The part of HTTP/1.1 that two pages need: the head of a request, and an answer.

use httparse::Status;

/// The longest head of a request, in bytes.
pub(crate) const HEAD_MAX: usize = 8 * 1024;

/// A page that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// `/leader`: whether this instance leads.
    Leader,
    /// `/readyz`: whether this instance can do its part.
    Ready,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The request is not HTTP/1.1 or HTTP/1.0.
    Malformed,
    /// The page does not exist.
    NoSuchPage,
    /// The method is neither `GET` nor `HEAD`.
    NoSuchMethod,
    /// The head of the request is longer than [`HEAD_MAX`].
    TooLong,
}

/// The most header lines of a request.
const HEADERS_MAX: usize = 100;

/// Reads which page the request at the beginning of `bytes` asks for. `None` means that its head
/// has not ended yet.
pub(crate) fn read(bytes: &[u8]) -> Option<Result<Page, Refusal>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    match head.parse(bytes) {
        Ok(Status::Complete(length)) if length <= HEAD_MAX => Some(page(&head)),
        Ok(Status::Partial) if bytes.len() < HEAD_MAX => None,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => Some(Err(Refusal::TooLong)),
        Err(_) => Some(Err(Refusal::Malformed)),
    }
}

/// The page that a whole head asks for. Its header lines do not matter to us.
fn page(head: &httparse::Request<'_, '_>) -> Result<Page, Refusal> {
    let (method, target) = (head.method.unwrap_or_default(), head.path.unwrap_or_default());
    // The absolute form names the server, too.
    let path = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    };
    // Other methods have other targets, as in `OPTIONS *`.
    if !["GET", "HEAD"].contains(&method) {
        return Err(Refusal::NoSuchMethod);
    }
    if !path.starts_with('/') || !target.is_ascii() {
        return Err(Refusal::Malformed);
    }
    match path.split('?').next() {
        Some("/leader") => Ok(Page::Leader),
        Some("/readyz") => Ok(Page::Ready),
        _ => Err(Refusal::NoSuchPage),
    }
}

/// The answer to a client.
#[derive(Debug)]
pub(crate) struct Answer {
    status: &'static str,
    content_type: &'static str,
    body: String,
}

impl Answer {
    /// The page as one JSON object: 200 if the answer is yes, else 503.
    pub(crate) fn page(yes: bool, object: String) -> Self {
        let status = if yes { "200 OK" } else { "503 Service Unavailable" };
        Self { status, content_type: "application/json", body: object }
    }

    /// Why a request is refused.
    pub(crate) fn refusal(refusal: Refusal) -> Self {
        let (status, body) = match refusal {
            Refusal::Malformed => ("400 Bad Request", "this is not an HTTP/1.1 request\n"),
            Refusal::NoSuchPage => ("404 Not Found", "the pages are /leader and /readyz\n"),
            Refusal::NoSuchMethod => ("405 Method Not Allowed", "the methods are GET and HEAD\n"),
            Refusal::TooLong => {
                ("431 Request Header Fields Too Large", "a request must have at most 8 KiB\n")
            }
        };
        Self { status, content_type: "text/plain", body: body.to_owned() }
    }

    /// The answer as bytes. The connection ends after it.
    pub(crate) fn bytes(&self, head_only: bool) -> Vec<u8> {
        let Self { status, content_type, body } = self;
        let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\n{allow}Connection: close\r\n\r\n",
            body.len()
        );
        let body = if head_only { "" } else { body };
        (head + body).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use leasehold_testkit::fuzz::{Target, check};

    use super::*;

    #[test]
    fn a_request_for_a_page_is_understood() {
        for (head, page) in [
            ("GET /leader HTTP/1.1\r\nHost: a\r\n\r\n", Page::Leader),
            ("GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n", Page::Ready),
            ("HEAD /leader HTTP/1.1\r\n\r\n", Page::Leader),
            ("GET /leader HTTP/1.0\r\n\r\n", Page::Leader),
            ("GET /leader?probe=1 HTTP/1.1\r\n\r\n", Page::Leader),
            ("GET /leader HTTP/1.1\n\n", Page::Leader),
            ("GET http://a:80/leader HTTP/1.1\r\nHost: a\r\n\r\n", Page::Leader),
            ("HEAD http://a/readyz?b HTTP/1.1\r\nHost: a\r\n\r\n", Page::Ready),
            ("GET /leader HTTP/1.1\r\n\r\nwhat follows is not read", Page::Leader),
        ] {
            assert_eq!(read(head.as_bytes()), Some(Ok(page)), "{head:?}");
        }
    }

    #[test]
    fn any_other_request_is_refused_with_the_reason() {
        for (line, refusal) in [
            ("", Refusal::Malformed),
            ("GET", Refusal::Malformed),
            ("GET /leader", Refusal::Malformed),
            ("GET  /leader HTTP/1.1", Refusal::Malformed),
            (" GET /leader HTTP/1.1", Refusal::Malformed),
            ("GET /leader HTTP/1.1 ", Refusal::Malformed),
            ("GET\t/leader\tHTTP/1.1", Refusal::Malformed),
            ("GET /lea der HTTP/1.1", Refusal::Malformed),
            ("GET /leader HTTP/2.0", Refusal::Malformed),
            ("GET /leader http/1.1", Refusal::Malformed),
            ("GET leader HTTP/1.1", Refusal::Malformed),
            ("GET https://a/leader HTTP/1.1", Refusal::Malformed),
            ("GET http://a HTTP/1.1", Refusal::NoSuchPage),
            ("GET http://a/b/leader HTTP/1.1", Refusal::NoSuchPage),
            ("GET /l\u{e9}ader HTTP/1.1", Refusal::Malformed),
            ("\u{16}\u{3}\u{1}", Refusal::Malformed),
            ("POST /leader HTTP/1.1", Refusal::NoSuchMethod),
            ("get /leader HTTP/1.1", Refusal::NoSuchMethod),
            ("OPTIONS /leader HTTP/1.1", Refusal::NoSuchMethod),
            ("OPTIONS * HTTP/1.1", Refusal::NoSuchMethod),
            ("CONNECT a:80 HTTP/1.1", Refusal::NoSuchMethod),
            ("GET / HTTP/1.1", Refusal::NoSuchPage),
            ("GET /leader/ HTTP/1.1", Refusal::NoSuchPage),
            ("GET /Leader HTTP/1.1", Refusal::NoSuchPage),
            ("GET /../leader HTTP/1.1", Refusal::NoSuchPage),
        ] {
            let head = format!("{line}\r\nHost: a\r\n\r\n");
            assert_eq!(read(head.as_bytes()), Some(Err(refusal)), "{line:?}");
        }
    }

    #[test]
    fn the_end_of_the_head_is_waited_for_up_to_its_limit() {
        let whole = "GET /leader HTTP/1.1\r\nHost: a\r\n\r\n".as_bytes();
        for length in 0..whole.len() {
            assert_eq!(read(&whole[..length]), None, "{length} bytes");
        }
        let long = |length: usize| {
            let mut head = b"GET /leader HTTP/1.1\r\nX: ".to_vec();
            head.resize(length - 4, b'x');
            head.extend(b"\r\n\r\n");
            head
        };
        assert!(read(&long(HEAD_MAX)).is_some_and(|it| it.is_ok()));
        assert_eq!(read(&long(HEAD_MAX + 1)), Some(Err(Refusal::TooLong)));
        assert_eq!(read(&vec![b'x'; HEAD_MAX - 1]), None);
        assert_eq!(read(&vec![b'x'; HEAD_MAX]), Some(Err(Refusal::TooLong)));
    }

    /// The result does not depend on how the bytes are cut.
    fn requests(data: &[u8]) {
        let whole = read(data);
        for length in 0..data.len() {
            let begun = read(&data[..length]);
            assert!(begun.is_none() || begun == whole, "{begun:?}, and then {whole:?}");
        }
    }

    #[test]
    fn any_bytes_are_a_request_or_refused() {
        let words = &["GET ", "HEAD ", "/leader", "/readyz", "?", " HTTP/1.1", "\r\n", "\n\n"];
        check(&Target { name: "requests", run: requests, words, changes: 300 });
    }

    #[test]
    fn an_answer_says_how_long_it_is_and_that_the_connection_ends() {
        let text =
            |answer: &Answer, head_only| String::from_utf8(answer.bytes(head_only)).expect("text");
        let yes = Answer::page(true, "{}\n".to_owned());
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\
                    Cache-Control: no-store\r\nConnection: close\r\n\r\n";
        assert_eq!(text(&yes, false), format!("{head}{{}}\n"));
        assert_eq!(text(&yes, true), head);
        let no = text(&Answer::page(false, String::new()), false);
        assert!(no.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{no}");
        for (refusal, status) in [
            (Refusal::Malformed, "400 "),
            (Refusal::NoSuchPage, "404 "),
            (Refusal::NoSuchMethod, "405 "),
            (Refusal::TooLong, "431 "),
        ] {
            let text = text(&Answer::refusal(refusal), false);
            assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
            assert_eq!(text.contains("Allow: GET, HEAD"), refusal == Refusal::NoSuchMethod);
        }
    }
}
