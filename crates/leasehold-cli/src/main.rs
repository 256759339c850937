//! The command `leasehold`: holds a lock while a command runs, and shows who holds what.
#![allow(clippy::disallowed_methods, reason = "time and tasks of a program need no stand-ins")]

mod args;
#[cfg(test)]
mod args_fuzz;
mod board;
mod chain;
mod cmd;
mod duration;
mod environment;
mod escape;
mod exit;
mod hash;
mod http;
mod log;
mod output;
mod patience;
mod process;
mod serve;
mod settings;
mod signals;
mod stderr;
mod supervise;
mod take;
mod talk;
mod tips;
mod urls;
mod view;
mod wait_message;

use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use args::{Command, Globals, Invocation, Parsed};
use cmd::Context;
use exit::{Exit, Failure};
use output::Color;
use settings::Settings;
use talk::Talk;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    if args.get(1).is_some_and(|arg| arg == supervise::keeper::KEEPER) {
        return supervise::keeper::keep();
    }
    signals::survive_full_files();
    let (talk, ended) = match args::parse(args.iter().cloned()) {
        Ok(Parsed::Invocation(invocation)) => {
            let talk = talk(&invocation.globals);
            (talk, execute(*invocation, talk))
        }
        Ok(Parsed::Text(text, exit)) => {
            (talk(&Globals::default()), output::print(&text).map(|()| exit))
        }
        // The flags were not understood, but `--json` may still be found among them.
        Err(failure) => {
            let json = args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--json");
            (Talk::new(json, false, Color::Auto), Err(failure))
        }
    };
    let exit = ended.unwrap_or_else(|failure| {
        if failure.kind != output::QUIET {
            talk.failure(&failure);
        }
        failure.exit
    });
    stderr::finish_at_end();
    signals::end(exit)
}

/// Starts the runtime. Parts of it panic if file descriptors are scarce, so we first try to open
/// the few that they need.
fn start_runtime() -> io::Result<tokio::runtime::Runtime> {
    let spare: io::Result<Vec<_>> = (0..4).map(|_| UnixStream::pair()).collect();
    drop(spare?);
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn talk(globals: &Globals) -> Talk {
    Talk::new(globals.json, globals.quiet, globals.color.unwrap_or(Color::Auto))
}

fn execute(invocation: Invocation, talk: Talk) -> Result<Exit, Failure> {
    let Invocation { globals, command } = invocation;
    log::start(globals.verbose, talk.is_json())?;
    let context =
        Context { settings: Settings::resolve(&globals.store)?, talk, json: globals.json };
    // Use only this thread, since a command dies with the thread that started it.
    let runtime = start_runtime().map_err(|error| {
        Failure::internal(format!("cannot start: {error}; nothing was acquired"))
    })?;
    runtime.block_on(async {
        match &command {
            Command::Run(args) => cmd::run::run(&context, args).await,
            Command::Elect(args) => cmd::elect::elect(&context, args).await,
            Command::Acquire(args) => cmd::acquire::acquire(&context, args).await,
            Command::Renew(args) => cmd::renew::renew(&context, args).await,
            Command::Release(args) => cmd::release::release(&context, args).await,
            Command::Resize(args) => cmd::resize::resize(&context, args).await,
            Command::Ls(args) => cmd::ls::ls(&context, args).await,
            Command::Inspect(args) => cmd::inspect::inspect(&context, args).await,
            Command::Unlock(args) => cmd::unlock::unlock(&context, args).await,
            Command::Doctor(args) => cmd::doctor::doctor(&context, args).await,
            Command::Migrate => cmd::migrate::migrate(&context).await,
            Command::Strict(args) => cmd::strict::strict(&context, args).await,
        }
    })
}
