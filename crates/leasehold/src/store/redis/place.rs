//! The place of a server, as another server names it.

/// The host and the port of a server.
pub(super) type Place = (String, u16);

/// Whether this text can name the host of a server. Any other text could control a terminal that
/// shows the label of the server.
pub(super) fn is_host(host: &str) -> bool {
    let is_one = |it: u8| it.is_ascii_alphanumeric() || b"-._:%".contains(&it);
    !host.is_empty() && host.bytes().all(is_one)
}
