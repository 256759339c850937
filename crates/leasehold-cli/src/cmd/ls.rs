//! `leasehold ls [PATTERN]`: what is held or waited for.

use std::io::IsTerminal as _;

use leasehold::Identity;
use leasehold::host::{Host as _, SystemHost};

use super::Context;
use crate::args::Ls;
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json};
use crate::talk::Level;
use crate::view::{self, LockObject};

/// Lists locks: a table, or one object a line.
pub(crate) async fn ls(context: &Context, args: &Ls) -> Result<Exit, Failure> {
    let client = context.settings.connect(Identity::anonymous(), &context.talk).await?;
    let mut rows = vec![view::COLUMNS.map(str::to_owned)];
    for key in client.list(&args.pattern).await? {
        let seen = client.inspect(key.as_str()).await?;
        if seen.holders.is_empty() && seen.waiting == 0 {
            continue; // Freed since it was listed.
        }
        if context.json {
            print_json(&LockObject::new(key.as_str(), &seen))?;
        } else {
            rows.push(view::row(key.as_str(), &seen, SystemHost.wall()));
        }
    }
    // Heads over nothing would look like an answer to a script.
    if rows.len() > 1 {
        print(&view::table(&rows, columns()))?;
    } else if std::io::stdout().is_terminal() && !context.json {
        context.talk.notice(Level::Info, "nothing-held", None, "no locks are held");
    }
    Ok(Exit::OK)
}

/// How wide the terminal is that shows the table, if one does.
fn columns() -> Option<usize> {
    let stdout = rustix::stdio::stdout();
    let size = rustix::termios::isatty(stdout).then(|| rustix::termios::tcgetwinsize(stdout));
    size?.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
