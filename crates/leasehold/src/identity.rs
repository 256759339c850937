//! How a client describes itself to others.

use std::io::Read as _;
use std::time::Duration;

use crate::core::token::ClientId;
use crate::store::ClientRecord;

/// How a client describes itself, so that waiters can see who holds a lock.
///
/// The store keeps one record per client, for ten to twenty minutes after its last lock. On etcd
/// and ZooKeeper, the description is a part of each lock, and ends with it.
///
/// # Examples
///
/// ```
/// # use leasehold::{Client, Identity};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// // Says nothing about this machine, its user or its program.
/// let client = Client::builder("memory:").identity(Identity::anonymous()).connect().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity(Option<Named>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    host: String,
    user: String,
    command: String,
    ttl: Option<Duration>,
}

/// The longest text of each part, in bytes.
const PART_BYTES_MAX: usize = 256;

/// The longest lease: the longest ttl with the longest lock delay.
const TTL_MAX: Duration = Duration::from_hours(48);

impl Identity {
    /// The default: machine name, process id, user, and program name. It leaves out the arguments
    /// of the program, since they may contain secrets.
    #[must_use]
    pub fn process() -> Self {
        let program = std::env::args_os().next().unwrap_or_default();
        let program = std::path::Path::new(&program).file_name().unwrap_or_default();
        Self(Some(Named {
            host: cut(rustix::system::uname().nodename().to_string_lossy().into_owned()),
            user: cut(user_name()),
            command: cut(program.to_string_lossy().into_owned()),
            ttl: None,
        }))
    }

    /// No description. The store then keeps only the lock and its counter.
    #[must_use]
    pub const fn anonymous() -> Self {
        Self(None)
    }

    /// Sets the command that this client runs, instead of the program name. Longer text than
    /// 256 bytes is truncated.
    #[must_use]
    pub fn command(mut self, command: impl Into<String>) -> Self {
        if let Some(named) = &mut self.0 {
            named.command = cut(command.into());
        }
        self
    }

    /// States that every lease of this client has this ttl. With it, people can see in every store
    /// when a lease was last renewed, and so whether its holder lives. A time above 48 h counts as
    /// 48 h.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        if let Some(named) = &mut self.0 {
            named.ttl = Some(ttl.min(TTL_MAX));
        }
        self
    }

    /// `user@host` in one word.
    #[cfg(feature = "redis")]
    pub(crate) fn signature(&self) -> String {
        let Some(Named { host, user, .. }) = &self.0 else { return "anonymous".to_owned() };
        let is_odd = |c: char| c.is_whitespace() || c.is_control();
        format!("{user}@{host}").replace(is_odd, "_")
    }

    pub(crate) fn record(self, id: &ClientId) -> Option<ClientRecord> {
        let Named { host, user, command, ttl } = self.0?;
        // Use the process that connects, since a fork may have copied this value.
        let pid = std::process::id();
        Some(ClientRecord { id: id.clone(), host, pid, user, command, ttl })
    }
}

impl Default for Identity {
    fn default() -> Self {
        Self::process()
    }
}

/// How many bytes of `/etc/passwd` are read.
const PASSWD_BYTES_MAX: u64 = 1 << 20;

/// The user name from the environment, else from `/etc/passwd`, else the user id. Systems that
/// start services set no variable for it.
fn user_name() -> String {
    let set = |name: &&str| std::env::var(name).ok().filter(|user| !user.is_empty());
    let uid = rustix::process::getuid().as_raw();
    let listed = || {
        let mut text = Vec::new();
        let file = std::fs::File::open("/etc/passwd").ok()?;
        file.take(PASSWD_BYTES_MAX).read_to_end(&mut text).ok()?;
        named_in(&String::from_utf8_lossy(&text), uid)
    };
    ["USER", "LOGNAME"].iter().find_map(set).or_else(listed).unwrap_or_else(|| uid.to_string())
}

/// The name of a user in the format of passwd(5).
fn named_in(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _password, number) = (fields.next()?, fields.next()?, fields.next()?);
        (number.parse() == Ok(uid) && !name.is_empty()).then(|| name.to_owned())
    })
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(PART_BYTES_MAX));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_in_the_list_of_users() {
        let list =
            "root:x:0:0:root:/root:/bin/sh\n# odd\n:x:7::\nci:x:1001:1001::/home/ci:/bin/sh\n";
        for (uid, name) in [(0, Some("root")), (1_001, Some("ci")), (1, None), (7, None)] {
            assert_eq!(named_in(list, uid).as_deref(), name, "{uid}");
        }
        assert_eq!(named_in("", 0), None);
    }

    #[test]
    fn a_stated_ttl_is_no_longer_than_any_lease() {
        for (stated, kept) in [(3, 3), (48 * 3_600, 48 * 3_600), (u64::MAX, 48 * 3_600)] {
            let identity = Identity::process().ttl(Duration::from_secs(stated));
            let named = identity.0.expect("it says something of itself");
            assert_eq!(named.ttl, Some(Duration::from_secs(kept)));
        }
    }

    /// A character of several bytes may stand at the limit.
    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        for (text, kept) in [
            ("x".repeat(300), "x".repeat(256)),
            ("x".repeat(255) + "ümläut", "x".repeat(255)),
            ("x".repeat(254) + "ümläut", "x".repeat(254) + "ü"),
            ("\u{1f512}".repeat(65), "\u{1f512}".repeat(64)),
            ("short".to_owned(), "short".to_owned()),
        ] {
            let named = Identity::process().command(text).0.expect("it says something of itself");
            assert_eq!(named.command, kept);
        }
    }
}
