//! `leasehold inspect NAME`: shows the holder and the waiters.

use leasehold::Identity;
use leasehold::host::{Host as _, SystemHost};

use super::Context;
use crate::args::Inspect;
use crate::exit::{Exit, Failure};
use crate::output::{json_line, print, shell_word};
use crate::talk::Level;
use crate::view::{self, LockObject};

/// Shows one lock.
pub(crate) async fn inspect(context: &Context, args: &Inspect) -> Result<Exit, Failure> {
    let client = context.settings.connect_to_existing(Identity::anonymous(), &context.talk).await?;
    let seen = client.inspect(&args.name).await?;
    // Nobody names a lock like this, but `ls` takes such patterns.
    if args.name.contains(['*', '?']) && view::is_unused(&seen) {
        let word = shell_word(&args.name);
        let text =
            format!("this is the name of one lock; `leasehold ls {word}` lists all that match");
        context.talk.notice(Level::Info, "looks-like-a-pattern", Some(&args.name), &text);
    }
    if context.json {
        print(&json_line(&LockObject::new(&args.name, &seen))?)?;
    } else {
        print(&view::text(&args.name, &seen, SystemHost.wall()))?;
    }
    Ok(Exit::OK)
}
