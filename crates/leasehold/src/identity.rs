//! What a client says of itself.

use crate::core::token::ClientId;
use crate::store::ClientRecord;

/// What a client says of itself, so that people who wait can see who holds a lock.
///
/// One record per client, kept by the store for about ten minutes after the last lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity(Option<Named>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    host: String,
    user: String,
    command: String,
}

/// The longest text of each part, in bytes.
const PART_BYTES_MAX: usize = 256;

impl Identity {
    /// The default: the machine's name, the process id, the user, and the name of the program,
    /// without its arguments, since people put secrets there.
    #[must_use]
    pub fn process() -> Self {
        let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
        let program = std::env::args_os().next().unwrap_or_default();
        let program = std::path::Path::new(&program).file_name().unwrap_or_default();
        Self(Some(Named {
            host: cut(rustix::system::uname().nodename().to_string_lossy().into_owned()),
            user: cut(user.unwrap_or_else(|| rustix::process::getuid().as_raw().to_string())),
            command: cut(program.to_string_lossy().into_owned()),
        }))
    }

    /// Nothing: the store then keeps the lock and its counter, and no more.
    #[must_use]
    pub const fn anonymous() -> Self {
        Self(None)
    }

    /// Says what is run, instead of the name of this program. What is longer than 256 bytes is cut.
    #[must_use]
    pub fn command(mut self, command: impl Into<String>) -> Self {
        if let Some(named) = &mut self.0 {
            named.command = cut(command.into());
        }
        self
    }

    pub(crate) fn record(self, id: &ClientId) -> Option<ClientRecord> {
        let Named { host, user, command } = self.0?;
        // Of the process that connects: a fork may have copied what was said before.
        let pid = std::process::id();
        Some(ClientRecord { id: id.clone(), host, pid, user, command })
    }
}

impl Default for Identity {
    fn default() -> Self {
        Self::process()
    }
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(PART_BYTES_MAX));
    text
}
