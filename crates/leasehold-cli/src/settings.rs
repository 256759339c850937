//! Which store we use, and what the user should know about that choice.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use leasehold::store::redact_url;
use leasehold::{Client, Error, ErrorKind, Identity};

use crate::environment::{NAMESPACE, URL, URL_FILE, Unknown, unknown};
use crate::exit::{DRAIN, Exit, Failure};
use crate::output::{export, name_word, shell_word};
use crate::patience::Patience;
use crate::talk::{Level, Talk};
use crate::urls::{
    absolute, after_scheme, has_password, in_file, missing_file, split, url_of_place,
};

/// The flags that choose the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreFlags {
    /// `--url`, each one.
    pub(crate) urls: Vec<String>,
    /// `--url-file`.
    pub(crate) url_file: Option<PathBuf>,
    /// `--local`.
    pub(crate) local: bool,
    /// `--namespace`.
    pub(crate) namespace: Option<String>,
}

impl StoreFlags {
    /// The flags as words of a shell, each with a blank behind it. `URL` stands for a URL with a
    /// password.
    fn words(&self) -> String {
        let of_url = |url: &String| {
            let is_secret = split(url).iter().any(|url| has_password(url));
            format!("--url {} ", if is_secret { "URL".to_owned() } else { shell_word(url) })
        };
        let mut words: String = self.urls.iter().map(of_url).collect();
        if let Some(file) = &self.url_file {
            words.push_str(&format!("--url-file {} ", shell_word(&file.to_string_lossy())));
        }
        if self.local {
            words.push_str("--local ");
        }
        if let Some(namespace) = &self.namespace {
            words.push_str(&format!("--namespace {} ", shell_word(namespace)));
        }
        words
    }
}

/// The origin of the URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Flag,
    File,
    Environment,
    /// The embedded store, by `--local`.
    Local,
    /// The embedded store, because nothing names another.
    Default,
}

/// How a command under a lock learns of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ForChild {
    /// By the URLs, which stay valid in any directory.
    Urls(String),
    /// By the file that contains them, so that no password is in its environment.
    File(String),
}

/// The store that was chosen.
#[derive(Clone)]
pub(crate) struct Settings {
    /// The flags that chose the store.
    flags: StoreFlags,
    /// One URL, or those of a quorum.
    urls: Vec<String>,
    /// The file that contained them, if one did.
    file: Option<PathBuf>,
    /// Our directory. Relative paths in the URLs begin there.
    here: Option<PathBuf>,
    source: Source,
    namespace: Option<String>,
    /// A warning about the permissions of the URL file.
    careless: Option<String>,
    /// Variables that look like ours.
    unknown: Vec<Unknown>,
}

impl Settings {
    /// Chooses the store: flags first, then the environment, then the default.
    pub(crate) fn resolve(flags: &StoreFlags) -> Result<Self, Failure> {
        let here = std::env::current_dir().ok();
        let unknown = unknown(std::env::vars_os().map(|(name, _)| name));
        Self::choose(flags, |name| std::env::var_os(name), unknown, here.as_deref())
    }

    fn choose(
        flags: &StoreFlags,
        env: impl Fn(&str) -> Option<OsString>,
        unknown: Vec<Unknown>,
        here: Option<&Path>,
    ) -> Result<Self, Failure> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let mut careless = None;
        let mut read = |path: &Path, named| {
            let file = in_file(path, named)?;
            careless = file.careless;
            Ok::<_, Failure>(file.urls)
        };
        let mut file = flags.url_file.clone();
        let (urls, source) = if !flags.urls.is_empty() {
            (flags.urls.iter().flat_map(|text| split(text)).collect(), Source::Flag)
        } else if let Some(path) = &file {
            (read(path, "--url-file")?, Source::File)
        } else if flags.local {
            (vec![default_url(set)?], Source::Local)
        } else {
            match (env(URL), env(URL_FILE)) {
                (Some(_), Some(_)) => return Err(two_stores()),
                (Some(text), None) => (split(&inherited_urls(text)?), Source::Environment),
                (None, Some(path)) => {
                    let path = file.insert(inherited_file(path)?);
                    (read(path, URL_FILE)?, Source::File)
                }
                (None, None) => {
                    refuse_misspelt(&unknown)?;
                    (vec![default_url(set)?], Source::Default)
                }
            }
        };
        refuse_bare_place(&urls)?;
        let inherited = || match set(NAMESPACE).map(OsString::into_string) {
            Some(Err(_)) => Err(Failure::config(format!(
                "{NAMESPACE} is not valid UTF-8; the store was not contacted"
            ))),
            Some(Ok(namespace)) => Ok(Some(namespace)),
            None => Ok(None),
        };
        let namespace = match flags.namespace.clone() {
            Some(namespace) => Some(namespace),
            None => inherited()?,
        };
        // An empty flag removes an inherited namespace.
        let namespace = namespace.filter(|namespace| !namespace.is_empty());
        let here = here.map(Path::to_owned);
        let flags = flags.clone();
        Ok(Self { flags, urls, file, here, source, namespace, careless, unknown })
    }

    /// Connects, after the messages about the choice.
    pub(crate) async fn connect(&self, who: Identity, talk: &Talk) -> Result<Client, Failure> {
        self.connect_patiently(&who, None, &mut Patience::new(None), talk).await
    }

    /// Like [`connect`](Self::connect), for a command that needs a lock which somebody took before.
    /// At a mistyped path, this must not make a new store. A later `ls` would find that store, and
    /// show that all locks are free.
    pub(crate) async fn connect_to_existing(
        &self,
        who: Identity,
        talk: &Talk,
    ) -> Result<Client, Failure> {
        let is_named = !matches!(self.source, Source::Default | Source::Local);
        let missing = self.urls.iter().filter(|_| is_named).find_map(|url| missing_file(url));
        let Some(file) = missing else { return self.connect(who, talk).await };
        let kind = ErrorKind::Unavailable;
        let message = format!(
            "there is no store at {}; nothing was done; correct the path, unless no lock was ever \
             taken there: the first lock makes the file",
            file.display()
        );
        Err(Failure::new(Exit::Code(kind.exit_code()), kind.as_str(), message))
    }

    /// Like [`connect`](Self::connect), with retries for a while. `name` is the lock if there is
    /// one.
    pub(crate) async fn connect_patiently(
        &self,
        who: &Identity,
        name: Option<&str>,
        patience: &mut Patience,
        talk: &Talk,
    ) -> Result<Client, Failure> {
        self.announce(talk)?;
        loop {
            match self.open(who.clone()).await {
                Ok(client) => return Ok(client),
                Err(error) if patience.try_again(&error, name, talk).await => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// One URL, or those of a quorum.
    pub(crate) fn urls(&self) -> &[String] {
        &self.urls
    }

    /// The prefix of all names, if there is one.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Whether the user has named a store.
    pub(crate) fn names_a_store(&self) -> bool {
        self.source != Source::Default
    }

    /// The URLs, after the messages about the choice. For a command that opens no client.
    pub(crate) fn chosen(&self, talk: &Talk) -> Result<&[String], Failure> {
        self.announce(talk)?;
        Ok(&self.urls)
    }

    async fn open(&self, who: Identity) -> Result<Client, Error> {
        let builder = match &self.urls[..] {
            [url] => Client::builder(url),
            urls => Client::quorum(urls),
        };
        let mut builder = builder.identity(who);
        if let Some(namespace) = &self.namespace {
            builder = builder.namespace(namespace);
        }
        builder.connect().await
    }

    /// Waits until every node of a quorum was tried, for commands that make a single request.
    /// Nothing repeats such a request later at a slow node.
    pub(crate) async fn reach_all(&self, client: &Client, name: &str) -> Result<(), Failure> {
        if self.urls.len() < 2 {
            return Ok(());
        }
        let seen = tokio::time::timeout(DRAIN, client.inspect(name)).await;
        let error = seen.ok().and_then(Result::err).filter(|error| !error.is_retryable());
        error.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Warns about settings that look wrong, tells the user of the default store, and makes the
    /// directory of the default store.
    fn announce(&self, talk: &Talk) -> Result<(), Failure> {
        for unknown in &self.unknown {
            let text = format!("{}; it is ignored", unknown.complaint());
            talk.notice(Level::Warning, "unknown-variable", None, &text);
        }
        if self.shows_password() {
            talk.notice(
                Level::Warning,
                "password-in-arguments",
                None,
                "the password in --url can be seen by everybody who lists the processes of this \
                 machine; use --url-file or LEASEHOLD_URL",
            );
        }
        if let Some(careless) = &self.careless {
            talk.notice(Level::Warning, "careless-url-file", None, careless);
        }
        // A user whose configuration is missing would otherwise hold locks that nobody else sees.
        if self.source == Source::Default {
            talk.notice(
                Level::Info,
                "embedded-store",
                None,
                "using the embedded store: only this user on this machine sees these locks; --url \
                 names another store, --local confirms this one",
            );
        }
        self.make_default_directory()
    }

    /// Whether a password is among the arguments.
    fn shows_password(&self) -> bool {
        self.source == Source::Flag && self.urls.iter().any(|url| has_password(url))
    }

    /// A lock as words of a command line: its name, behind the flags that chose the store.
    pub(crate) fn words(&self, name: &str) -> String {
        self.flags.words() + &name_word(name)
    }

    /// Lines for a shell, so that its next commands find the store and the namespace that flags
    /// chose for this one.
    pub(crate) fn exports(&self) -> String {
        let StoreFlags { urls, url_file, local, namespace } = &self.flags;
        let namespace = namespace.as_ref().map(|_| export(NAMESPACE, self.namespace.as_deref()));
        let store = match self.store_for_child() {
            _ if urls.is_empty() && url_file.is_none() && !local => String::new(),
            Ok(store) if !self.shows_password() => {
                store.iter().map(|(name, value)| export(name, value.as_deref())).collect()
            }
            _ => "# `renew` and `release` need the same --url or --url-file\n".to_owned(),
        };
        namespace.unwrap_or_default() + &store
    }

    /// Creates the default directory. The library refuses a file in a missing directory, since the
    /// path may be mistyped. Nobody typed this path.
    fn make_default_directory(&self) -> Result<(), Failure> {
        if !matches!(self.source, Source::Default | Source::Local) {
            return Ok(());
        }
        let file = self.urls.first().and_then(|url| after_scheme(url, "sqlite"));
        let Some(directory) = file.and_then(|file| Path::new(file).parent()) else {
            return Ok(());
        };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(|error| {
            let kind = match error.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    ErrorKind::Denied
                }
                io::ErrorKind::StorageFull => ErrorKind::Unavailable,
                _ => ErrorKind::Config,
            };
            let message = format!(
                "the directory of the embedded store, {}, cannot be created ({error}); the store \
                 was not contacted; name a store by --url or LEASEHOLD_URL",
                directory.display()
            );
            Failure::new(Exit::Code(kind.exit_code()), kind.as_str(), message)
        })
    }

    /// Refuses a store that no other process can see.
    pub(crate) fn refuse_private(&self, name: Option<&str>) -> Result<(), Failure> {
        if !self.urls.iter().any(|url| after_scheme(url, "memory").is_some()) {
            return Ok(());
        }
        let message = "a memory: store lives in this process only, so no other command would see \
                       the lock; nothing was acquired; name a store by --url";
        Err(Failure::config(message).about_any(name))
    }

    /// Refuses a store that a command under a lock could not reach.
    pub(crate) fn refuse_out_of_reach(&self, name: Option<&str>) -> Result<(), Failure> {
        self.refuse_private(name)?;
        self.store_for_child().map(drop).map_err(|failure| failure.about_any(name))
    }

    /// The store for the environment of a command, so that it reaches the same store. Fails for a
    /// store that no variable can name. Commands that start no other command may use such a store.
    pub(crate) fn store_for_child(&self) -> Result<[(&'static str, Option<String>); 2], Failure> {
        Ok(match for_child(&self.urls, self.file.as_deref(), self.here.as_deref())? {
            ForChild::Urls(urls) => [(URL, Some(urls)), (URL_FILE, None)],
            ForChild::File(path) => [(URL, None), (URL_FILE, Some(path))],
        })
    }
}

fn two_stores() -> Failure {
    Failure::config(format!(
        "{URL} and {URL_FILE} both name a store; the store was not contacted; unset one of them"
    ))
}

/// Refuses a place without a scheme, with the URL that was probably meant.
fn refuse_bare_place(urls: &[String]) -> Result<(), Failure> {
    let found = urls.iter().find_map(|url| Some((url, url_of_place(url)?)));
    found.map_or(Ok(()), |(place, meant)| {
        Err(Failure::config(format!(
            "`{place}` is not a URL; the store was not contacted; write `{meant}`"
        )))
    })
}

/// Refuses a misspelt variable, so that its job takes no lock that nobody else sees.
fn refuse_misspelt(unknown: &[Unknown]) -> Result<(), Failure> {
    let Some(misspelt) = unknown.iter().find(|unknown| unknown.is_store()) else { return Ok(()) };
    Err(Failure::config(format!(
        "{}; nothing else names a store, so none was contacted; correct the variable, or use \
         --local for the embedded store of this machine",
        misspelt.complaint()
    )))
}

fn inherited_file(path: OsString) -> Result<PathBuf, Failure> {
    if path.is_empty() {
        let message =
            format!("{URL_FILE} is empty; the store was not contacted; write a path into it");
        return Err(Failure::config(message));
    }
    Ok(path.into())
}

fn inherited_urls(text: OsString) -> Result<String, Failure> {
    if text.is_empty() {
        // A job that lost its configuration must not take a lock that nobody else sees.
        return Err(Failure::config(
            "LEASEHOLD_URL is empty; the store was not contacted; write a URL into it, or unset it \
             for the embedded store of this machine",
        ));
    }
    text.into_string().map_err(|_| {
        Failure::config("LEASEHOLD_URL is not valid UTF-8; the store was not contacted")
    })
}

/// How a command learns of the URLs, which came from `file` if there is one.
fn for_child(
    urls: &[String],
    file: Option<&Path>,
    here: Option<&Path>,
) -> Result<ForChild, Failure> {
    let wanted: Vec<_> = urls.iter().map(|url| absolute(url, here)).collect();
    // A relative path in the file would name another store in another directory.
    let is_portable = wanted == urls;
    let path = file.map(|file| here.map_or_else(|| file.to_owned(), |here| here.join(file)));
    let text = path.as_deref().and_then(Path::to_str);
    if let Some(path) = text.filter(|_| is_portable) {
        return Ok(ForChild::File(path.to_owned()));
    }
    if file.is_some() && urls.iter().any(|url| has_password(url)) {
        let (what, next) = if is_portable {
            ("and its own path is not valid UTF-8", "rename the file")
        } else {
            ("and one with a relative path", "make that path absolute")
        };
        return Err(Failure::config(format!(
            "the file has a URL with a password, {what}, so the command under the lock can get \
             neither the file nor its URLs; the store was not contacted; {next}"
        )));
    }
    match wanted.iter().find(|url| url.contains(char::is_whitespace)) {
        // The commands under the lock could not tell where such a URL ends.
        Some(url) if wanted.len() > 1 => Err(Failure::config(format!(
            "`{}` has white space in it, but white space separates the URLs of a quorum in \
             LEASEHOLD_URL; the store was not contacted; remove the white space",
            redact_url(url)
        ))),
        _ => Ok(ForChild::Urls(wanted.join(" "))),
    }
}

fn default_url(set: impl Fn(&str) -> Option<OsString>) -> Result<String, Failure> {
    // Relative paths are ignored, since they would mean another store in each directory.
    let path = |name| set(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = path("XDG_STATE_HOME").or_else(|| Some(path("HOME")?.join(".local/state")));
    let Some(state) = state else {
        return Err(Failure::config(
            "there is no directory for the embedded store: neither XDG_STATE_HOME nor HOME is an \
             absolute path; the store was not contacted; name a store by --url or LEASEHOLD_URL",
        ));
    };
    let file = state.join("leasehold/locks.db");
    let file = file.to_str().ok_or_else(|| {
        Failure::config(format!(
            "the path of the embedded store is not valid UTF-8: {}; the store was not contacted; \
             name a store by --url",
            file.display()
        ))
    })?;
    Ok(format!("sqlite:{file}"))
}

#[cfg(test)]
mod tests;
