//! `leasehold resize NAME --permits N`: changes how many permits a semaphore has.

use leasehold::Identity;
use serde_json::json;

use super::Context;
use crate::args::Resize;
use crate::exit::{Exit, Failure};
use crate::output::print_object;
use crate::talk::Level;

/// Changes the number for all users of the name.
pub(crate) async fn resize(context: &Context, args: &Resize) -> Result<Exit, Failure> {
    let client = context.settings.connect_to_existing(Identity::process(), &context.talk).await?;
    let of = args.permits;
    let resized = client.semaphore(&args.name, of).resize(of).await;
    let before = resized.map_err(|error| Failure::from(error).about(&args.name))?;
    if context.json {
        let (name, permits) = (&*args.name, of);
        print_object("resize", json!({ "name": name, "permits": permits, "before": before }))?;
        return Ok(Exit::OK);
    }
    let text = match before {
        Some(before) => format!("it has {} from now on; it had {before}", permits(of)),
        None => format!("it has {} from now on", permits(of)),
    };
    context.talk.notice(Level::Info, "resized", Some(&args.name), &text);
    Ok(Exit::OK)
}

fn permits(count: u32) -> String {
    if count == 1 { "1 permit".to_owned() } else { format!("{count} permits") }
}
