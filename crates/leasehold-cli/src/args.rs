//! The command line. No other module knows how it is parsed.

mod coexisting;
mod count;
mod names;
mod notes;
mod take;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use rustix::process::Signal;

use self::names::{Name, Names};
pub(crate) use self::take::Take;
use crate::duration::{self, Typed};
use crate::exit::{Exit, Failure, TABLE};
use crate::output::Color;
use crate::serve;
use crate::settings::StoreFlags;
use crate::signals;
use crate::tips;

/// A parsed command line.
#[derive(Debug)]
pub(crate) struct Invocation {
    /// The options of every command.
    pub(crate) globals: Globals,
    /// The command.
    pub(crate) command: Command,
}

/// The options of every command.
#[derive(Debug, Default)]
pub(crate) struct Globals {
    /// The store.
    pub(crate) store: StoreFlags,
    /// JSON instead of text.
    pub(crate) json: bool,
    /// When to colour.
    pub(crate) color: Option<Color>,
    /// Warnings and errors only.
    pub(crate) quiet: bool,
    /// How much of the log to show.
    pub(crate) verbose: u8,
}

/// Hold a lock while a command runs, and see who holds what.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_help = TABLE, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    globals: GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
struct GlobalArgs {
    /// The store: redis://HOST:PORT/DB, rediss:// for TLS, redis+sentinel://HOSTS/NAME,
    /// redis+cluster://HOSTS, unix:/SOCKET, postgres://USER@HOST/DB, mysql://USER@HOST/DB,
    /// etcd://HOSTS, zookeeper://HOSTS or sqlite:PATH. Several, each by --url, make a quorum: the
    /// holder needs the lock on a majority of them. Default: LEASEHOLD_URL, else an SQLite file of
    /// this user
    #[arg(long, global = true, value_name = "URL", action = ArgAction::Append)]
    url: Vec<String>,
    /// A file with the URL, for URLs with passwords. For a quorum, one URL a line. Default:
    /// LEASEHOLD_URL_FILE
    #[arg(long, global = true, value_name = "PATH", conflicts_with = "url")]
    url_file: Option<PathBuf>,
    /// Use the embedded store, even if the environment names another. Only this user on this
    /// machine sees its locks. It is also the default if nothing names a store; a notice then says
    /// so
    #[arg(long, global = true, conflicts_with_all = ["url", "url_file"])]
    local: bool,
    /// The prefix of every name, so that applications on one store do not share locks. Default:
    /// LEASEHOLD_NAMESPACE
    #[arg(long, global = true, value_name = "TEXT")]
    namespace: Option<String>,
    /// JSON instead of text: data on stdout, and messages on stderr
    #[arg(long, global = true)]
    json: bool,
    /// When to colour messages
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorArg,
    /// Show only warnings and errors. With -n or --once-per, do not report a taken lock
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Show when locks are acquired and released. -vv also shows renewals and problems on the way,
    /// -vvv also every request. LEASEHOLD_LOG sets it in detail
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ColorArg {
    Auto,
    Always,
    Never,
}

fn notes(more: &str) -> String {
    format!("{}\n\n{more}", duration::HELP)
}

/// The subcommand and its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding the lock NAME, or several locks together
    #[command(after_help = notes(notes::RUN))]
    Run(Run),
    /// Run a command on one of many machines. If the command or its machine fails, another one runs
    /// it
    #[command(after_help = notes(notes::ELECT))]
    Elect(Elect),
    /// Acquire the lock NAME for a script, and print shell lines. Only `renew` extends the lease
    #[command(after_help = notes(notes::ACQUIRE))]
    Acquire(Acquire),
    /// Restart the ttl of a lease that `acquire` took
    #[command(after_help = duration::HELP)]
    Renew(Renew),
    /// Release a lease that `acquire` took
    Release(Release),
    /// Change how many permits the semaphore NAME has, for all its users
    Resize(Resize),
    /// List the locks that somebody holds or waits for
    Ls(Ls),
    /// Show who holds the lock NAME and who waits for it
    Inspect(Inspect),
    /// Ask the holder to let go (--ask), or end its lease (--force, or --token HINT). A holder may
    /// act until it notices the end, so make sure that it is dead
    Unlock(Unlock),
    /// Check that the store keeps locks safely, and say what to change
    #[command(after_help = notes(notes::DOCTOR))]
    Doctor(Doctor),
    /// Make the tables of a PostgreSQL or MySQL store, or bring older ones up to date
    #[command(after_help = notes::MIGRATE)]
    Migrate,
    /// Switch databases of Redis or Valkey servers to strict mode, switch it off, or show its state
    #[command(subcommand, after_help = notes::STRICT)]
    Strict(Strict),
}

/// A command that runs under a lock.
#[derive(Debug, Args)]
pub(crate) struct Guarded {
    /// How long the lock outlives a crash. The lease is renewed every third of this time
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = duration::typed)]
    pub(crate) ttl: Typed,
    /// If the lease cannot be renewed, tell the command to stop this long before the lease ends.
    /// Must be below half the ttl. Default: a quarter of the ttl, but no more than 5 s
    #[arg(long, value_name = "DUR", value_parser = duration::typed)]
    pub(crate) grace: Option<Typed>,
    /// The signal that tells the command to stop: a name such as TERM or SIGTERM, or a number from
    /// 1 to 31
    #[arg(long, value_name = "SIGNAL", default_value = "TERM", value_parser = signals::parse)]
    pub(crate) stop_signal: Signal,
    /// The command to run, without a shell, and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// `run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) names: Names,
    #[command(flatten)]
    pub(crate) take: Take,
    /// Run CMD at most once per DUR. After a success, no host runs it again until DUR has passed
    /// since its start. If CMD fails, any host may run it at once. Never waits: exits with 75 if
    /// CMD runs elsewhere or was done. DUR must be at least the ttl and at most 24h. For an hourly
    /// job, 55m leaves room for early starts
    #[arg(long, value_name = "DUR", value_parser = duration::typed)]
    #[arg(conflicts_with_all = ["wait", "shared", "permits", "weight", "coexist"])]
    pub(crate) once_per: Option<Typed>,
    /// Hold the lock for at most DUR, even if CMD hangs. Tells CMD to stop --grace before DUR is
    /// over, and kills CMD before DUR is over. Then releases the lock and exits with 124. DUR must
    /// be at least the ttl
    #[arg(long, value_name = "DUR", value_parser = duration::typed)]
    pub(crate) max_hold: Option<Typed>,
    #[command(flatten)]
    pub(crate) guarded: Guarded,
}

/// `elect`.
#[derive(Debug, Args)]
pub(crate) struct Elect {
    #[command(flatten)]
    pub(crate) name: Name,
    /// Answer over HTTP at this address: /leader says whether this instance leads, /readyz whether
    /// it leads or waits, and the store answers. A port alone is a port of this machine, and port 0
    /// is any free port
    #[arg(long, value_name = "ADDR", value_parser = serve::parse)]
    pub(crate) serve: Option<SocketAddr>,
    /// Retry for this long if the store cannot be reached at the start. Default: fail at once
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) wait_store: Option<Duration>,
    /// Tell other instances how to reach this one, or why it leads
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) why: String,
    #[command(flatten)]
    pub(crate) guarded: Guarded,
}

/// `acquire`.
#[derive(Debug, Args)]
pub(crate) struct Acquire {
    #[command(flatten)]
    pub(crate) name: Name,
    #[command(flatten)]
    pub(crate) take: Take,
    /// How long the lease lasts unless `leasehold renew` is called
    #[arg(long, value_name = "DUR", value_parser = duration::typed)]
    pub(crate) ttl: Typed,
}

/// `renew`.
#[derive(Debug, Args)]
pub(crate) struct Renew {
    #[command(flatten)]
    pub(crate) name: Name,
    /// The whole owner token, as `acquire` printed it. Default: LEASEHOLD_TOKEN
    #[arg(long, value_name = "TOKEN", allow_hyphen_values = true)]
    pub(crate) token: Option<String>,
    /// The lease lasts at least this long from now. Default: LEASEHOLD_TTL_MS
    #[arg(long, value_name = "DUR", value_parser = duration::typed)]
    pub(crate) ttl: Option<Typed>,
}

/// `release`.
#[derive(Debug, Args)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) name: Name,
    /// The whole owner token, as `acquire` printed it. Default: LEASEHOLD_TOKEN
    #[arg(long, value_name = "TOKEN", allow_hyphen_values = true)]
    pub(crate) token: Option<String>,
}

/// `resize`.
#[derive(Debug, Args)]
pub(crate) struct Resize {
    #[command(flatten)]
    pub(crate) name: Name,
    /// How many permits there are from now on. Holders keep their permits, even if these are more
    #[arg(long, value_name = "N", value_parser = count::parse)]
    pub(crate) permits: u32,
}

/// `ls`.
#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// The names to list: `*` matches any run of characters, `?` any one
    #[arg(default_value = "*")]
    pub(crate) pattern: String,
    /// Only locks held for longer than this, if the store knows when they were acquired
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) older_than: Option<Duration>,
    /// Repeat the list every 2 s, or at a given interval of at least 100 ms: --watch=500ms. If
    /// stdout is not a terminal, repeat it only when something has changed
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "2s")]
    pub(crate) watch: Option<Duration>,
}

/// `inspect`.
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    #[command(flatten)]
    pub(crate) name: Name,
}

/// `unlock`.
#[derive(Debug, Args)]
pub(crate) struct Unlock {
    #[command(flatten)]
    pub(crate) name: Name,
    /// End only the lease whose token begins with HINT, as `leasehold inspect` shows it. With
    /// --ask, ask only its holder
    #[arg(long, value_name = "HINT", allow_hyphen_values = true)]
    #[arg(required_unless_present_any = ["force", "ask"], conflicts_with = "force")]
    pub(crate) token: Option<String>,
    /// End the lease of any holder
    #[arg(long)]
    pub(crate) force: bool,
    /// Ask the holders to let go, and end no lease. `leasehold run` then stops its command; other
    /// programs decide for themselves, and other libraries do not look at requests. A holder learns
    /// of it at its next renewal
    #[arg(long, conflicts_with = "force")]
    pub(crate) ask: bool,
    /// With --ask, wait at most this long until they have let go. Default: do not wait
    #[arg(short, long, value_name = "DUR", value_parser = duration::parse)]
    #[arg(requires = "ask", conflicts_with = "force")]
    pub(crate) wait: Option<Duration>,
    /// The reason. With --ask, the holder sees it. Otherwise this command prints and logs it
    /// (LEASEHOLD_LOG), and the store does not keep it
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: String,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
}

/// `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// The ttl that your locks have. Round trips, clocks and failovers are judged by it
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = duration::typed)]
    pub(crate) ttl: Typed,
    /// Exit with 1 if there is a warning, or a check that could not be made
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print the ACL rule for a user of the server who takes locks whose names begin with PREFIX,
    /// and do not contact the server
    #[arg(long, value_name = "PREFIX", num_args = 0..=1, default_missing_value = "")]
    pub(crate) print_acl: Option<String>,
}

/// `strict`.
#[derive(Debug, Subcommand)]
pub(crate) enum Strict {
    /// Switch strict mode on
    On(Switching),
    /// Switch strict mode off
    Off(Switching),
    /// Show whether strict mode is on, who switched it, when and why, and whether the server is
    /// quarantined
    Status,
}

/// `strict on`, `strict off`.
#[derive(Debug, Args)]
pub(crate) struct Switching {
    /// The reason, for the record in the database: one line of at most 200 characters
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: Option<String>,
}

/// The result of reading the command line.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// A command to carry out.
    Invocation(Box<Invocation>),
    /// Help or the version for stdout, and the exit code.
    Text(String, Exit),
}

/// The command line as clap knows it. After a flag that takes a value, `-1` is a bad value, not an
/// unknown flag, so that the error says what the value may be.
fn understood() -> clap::Command {
    let with_negatives = |arg: Arg| {
        let is_flag_with_value = !arg.is_positional() && arg.get_action().takes_values();
        if is_flag_with_value { arg.allow_negative_numbers(true) } else { arg }
    };
    Cli::command().mut_subcommands(|command| command.mut_args(with_negatives))
}

/// Reads the command line.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Parsed, Failure> {
    let args: Vec<OsString> = args.into_iter().collect();
    match understood().try_get_matches_from(&args).and_then(|it| Cli::from_arg_matches(&it)) {
        Ok(cli) => {
            refuse_time_as_name(&cli.command, &args)?;
            Ok(Parsed::Invocation(Box::new(Invocation {
                globals: globals(merged(cli.globals, &args)?),
                command: cli.command,
            })))
        }
        Err(error)
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) =>
        {
            Ok(Parsed::Text(error.render().to_string(), Exit::OK))
        }
        // Show the help if there are no arguments.
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Ok(Parsed::Text(error.render().to_string(), Exit::USAGE))
        }
        Err(mut error) => {
            tips::mend(&mut error, &args, Cli::command());
            let text = error.render().to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
            Err(Failure::new(Exit::USAGE, "usage", text))
        }
    }
}

/// Refuses `run NAME -n 5`, which would not wait, and would take a second lock called `5`.
fn refuse_time_as_name(command: &Command, args: &[OsString]) -> Result<(), Failure> {
    let is_of_several = matches!(command, Command::Run(run) if run.names.len() > 1);
    let Some(time) = tips::time_after_n(args).filter(|_| is_of_several) else { return Ok(()) };
    let message = format!(
        "-n takes no duration; nothing was acquired; to wait, write -w {time} instead; if {time} \
         is the name of a lock, write -n after the names"
    );
    Err(Failure::new(Exit::USAGE, "usage", message))
}

/// Merges the options of every command that stand before the subcommand into those after it. clap
/// looks at each place alone: it drops an option before the subcommand if the same stands after it,
/// and sees no conflict between the two.
fn merged(mut args: GlobalArgs, words: &[OsString]) -> Result<GlobalArgs, Failure> {
    let mut is_replaced = false;
    for before in before_subcommands(words).into_iter().rev() {
        if before.url != args.url {
            args.url.splice(0..0, before.url);
        }
        is_replaced |= (before.url_file.is_some() && before.url_file != args.url_file)
            || (before.namespace.is_some() && before.namespace != args.namespace);
    }
    let stores = [!args.url.is_empty(), args.url_file.is_some(), args.local];
    let message = if stores.into_iter().filter(|is_given| *is_given).count() > 1 {
        "only one of --url, --url-file and --local can be given; nothing was done; leave one out"
    } else if is_replaced {
        "--url-file and --namespace can be given once; nothing was done; leave one out"
    } else if args.quiet && args.verbose > 0 {
        "-q and -v exclude each other; nothing was done; leave one out"
    } else {
        return Ok(args);
    };
    Err(Failure::new(Exit::USAGE, "usage", message))
}

/// The options before the subcommand. Those of `strict` before its own subcommand follow.
fn before_subcommands(words: &[OsString]) -> Vec<GlobalArgs> {
    let command = GlobalArgs::augment_args(clap::Command::new("leasehold"));
    let found = command.allow_external_subcommands(true).try_get_matches_from(words);
    let Ok(found) = found else { return Vec::new() };
    let mut all = Vec::from_iter(GlobalArgs::from_arg_matches(&found));
    if let Some(("strict", rest)) = found.subcommand() {
        let rest = rest.get_many::<OsString>("").into_iter().flatten().cloned();
        let rest: Vec<_> = [OsString::from("strict")].into_iter().chain(rest).collect();
        all.extend(before_subcommands(&rest));
    }
    all
}

fn globals(args: GlobalArgs) -> Globals {
    Globals {
        store: StoreFlags {
            urls: args.url,
            url_file: args.url_file,
            local: args.local,
            namespace: args.namespace,
        },
        json: args.json,
        color: Some(match args.color {
            ColorArg::Auto => Color::Auto,
            ColorArg::Always => Color::Always,
            ColorArg::Never => Color::Never,
        }),
        quiet: args.quiet,
        verbose: args.verbose,
    }
}

#[cfg(test)]
mod tests;
