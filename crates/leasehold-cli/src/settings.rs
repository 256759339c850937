//! Which store we use, and what the user should know about that choice.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use leasehold::store::redact_url;
use leasehold::{Client, Error, ErrorKind, Identity};

use crate::environment::{NAMESPACE, URL, URL_FILE, Unknown, unknown};
use crate::exit::{Exit, Failure};
use crate::patience::Patience;
use crate::take::DRAIN;
use crate::talk::{Level, Talk};
use crate::urls::{absolute, after_scheme, has_password, in_file, split};

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
    /// One URL, or those of a quorum.
    urls: Vec<String>,
    for_child: ForChild,
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
        let for_child = for_child(&urls, file.as_deref(), here)?;
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
        Ok(Self { urls, for_child, source, namespace, careless, unknown })
    }

    /// Connects, after the messages about the choice.
    pub(crate) async fn connect(&self, who: Identity, talk: &Talk) -> Result<Client, Failure> {
        self.announce(talk);
        self.make_default_directory()?;
        Ok(self.open(who).await?)
    }

    /// As [`connect`](Self::connect), with retries for a while. `name` is the lock if there is one.
    pub(crate) async fn connect_patiently(
        &self,
        who: &Identity,
        name: Option<&str>,
        patience: &mut Patience,
        talk: &Talk,
    ) -> Result<Client, Failure> {
        self.announce(talk);
        self.make_default_directory()?;
        loop {
            match self.open(who.clone()).await {
                Ok(client) => return Ok(client),
                Err(error) if patience.try_again(&error, name, talk).await => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The URLs and the namespace.
    pub(crate) fn named(&self) -> (&[String], Option<&str>) {
        (&self.urls, self.namespace.as_deref())
    }

    /// Whether the user has named a store.
    pub(crate) fn names_a_store(&self) -> bool {
        self.source != Source::Default
    }

    /// The URLs and the namespace, after the messages about the choice. For a command that opens no
    /// client.
    pub(crate) fn chosen(&self, talk: &Talk) -> Result<(&[String], Option<&str>), Failure> {
        self.announce(talk);
        self.make_default_directory()?;
        Ok((&self.urls, self.namespace.as_deref()))
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

    /// Waits until every node of a quorum was tried, for commands that make a single request:
    /// nobody repeats it later at a slow node.
    pub(crate) async fn reach_all(&self, client: &Client, name: &str) -> Result<(), Failure> {
        if self.urls.len() < 2 {
            return Ok(());
        }
        let seen = tokio::time::timeout(DRAIN, client.inspect(name)).await;
        let error = seen.ok().and_then(Result::err).filter(|error| !error.is_retryable());
        error.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Tells the user what matters about the choice.
    fn announce(&self, talk: &Talk) {
        for unknown in &self.unknown {
            let text = format!("{}; it is ignored", unknown.complaint());
            talk.notice(Level::Warning, "unknown-variable", None, &text);
        }
        if self.source == Source::Flag && self.urls.iter().any(|url| has_password(url)) {
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
    }

    /// Creates the default directory. The library refuses a file in a missing directory, which may
    /// be a typing error; but nobody typed this one.
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
                 was not contacted, name a store by --url or LEASEHOLD_URL",
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

    /// The namespace for the environment of a command, so that it reaches the same locks.
    pub(crate) fn namespace_for_child(&self) -> Option<String> {
        self.namespace.clone()
    }

    /// The store for the environment of a command, so that it reaches the same store.
    pub(crate) fn store_for_child(&self) -> [(&'static str, Option<String>); 2] {
        match self.for_child.clone() {
            ForChild::Urls(urls) => [(URL, Some(urls)), (URL_FILE, None)],
            ForChild::File(path) => [(URL, None), (URL_FILE, Some(path))],
        }
    }
}

fn two_stores() -> Failure {
    Failure::config(format!(
        "{URL} and {URL_FILE} both name a store; the store was not contacted; unset one of them"
    ))
}

/// Refuses a misspelt variable: its job must not take a lock that nobody else sees.
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
            format!("{URL_FILE} is empty; the store was not contacted; name a file in it");
        return Err(Failure::config(message));
    }
    Ok(path.into())
}

fn inherited_urls(text: OsString) -> Result<String, Failure> {
    if text.is_empty() {
        // A job that lost its configuration must not take a lock that nobody else sees.
        return Err(Failure::config(
            "LEASEHOLD_URL is empty; the store was not contacted; name one in it, or unset it for \
             the embedded store of this machine",
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
    // Relative paths are ignored: they would mean another store in each directory.
    let path = |name| set(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = path("XDG_STATE_HOME").or_else(|| Some(path("HOME")?.join(".local/state")));
    let Some(state) = state else {
        return Err(Failure::config(
            "there is no place for the embedded store: neither XDG_STATE_HOME nor HOME is \
             an absolute path; \
             the store was not contacted; name a store by --url or LEASEHOLD_URL",
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
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    fn chosen(flags: &StoreFlags, env: &[(&str, &str)]) -> Result<(String, Source), String> {
        let get = |name: &str| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        };
        let unknown = unknown(env.iter().map(|(name, _)| OsString::from(name)));
        Settings::choose(flags, get, unknown, Some(Path::new("/srv")))
            .map(|settings| match settings.for_child {
                ForChild::Urls(urls) => (urls, settings.source),
                ForChild::File(path) => (format!("in {path}"), settings.source),
            })
            .map_err(|failure| failure.message)
    }

    fn url(text: &str) -> StoreFlags {
        StoreFlags { urls: vec![text.to_owned()], ..StoreFlags::default() }
    }

    #[test]
    fn flags_go_before_the_environment_and_that_before_the_default() {
        let env = [("LEASEHOLD_URL", "b:"), ("HOME", "/h"), ("XDG_STATE_HOME", "/x")];
        let none = StoreFlags::default();
        let is = |text: &str, source| Ok((text.to_owned(), source));
        assert_eq!(chosen(&url("a:"), &env), is("a:", Source::Flag));
        assert_eq!(chosen(&none, &env), is("b:", Source::Environment));
        assert_eq!(chosen(&none, &env[1..]), is("sqlite:/x/leasehold/locks.db", Source::Default));
        let home = is("sqlite:/h/.local/state/leasehold/locks.db", Source::Default);
        assert_eq!(chosen(&none, &env[1..2]), home);
        assert_eq!(chosen(&none, &[("XDG_STATE_HOME", "relative"), ("HOME", "/h")]), home);
        let refusal = chosen(&none, &[("LEASEHOLD_URL", ""), ("HOME", "/h")]).expect_err("empty");
        assert!(refusal.contains("unset"), "{refusal}");
    }

    #[test]
    fn a_misspelt_variable_is_no_reason_to_take_the_embedded_store() {
        let home = ("HOME", "/h");
        let none = StoreFlags::default();
        for name in ["LEASEHOLD_URI", "LEASEHOLD_URL_FIEL", "LEASEHOLD_REDIS_URL"] {
            let refusal = chosen(&none, &[(name, "redis://a"), home]).expect_err(name);
            assert!(refusal.contains(name) && refusal.contains("--local"), "{refusal}");
            assert!(chosen(&url("a:"), &[(name, "redis://a"), home]).is_ok(), "{name}");
            let local = StoreFlags { local: true, ..StoreFlags::default() };
            let (_, source) = chosen(&local, &[(name, "redis://a"), home]).expect("it is meant");
            assert_eq!(source, Source::Local);
        }
        let (_, source) = chosen(&none, &[("LEASEHOLD_TTL", "5"), home]).expect("no store");
        assert_eq!(source, Source::Default);
    }

    #[test]
    fn a_file_is_handed_on_by_its_path_unless_a_path_in_it_is_relative() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("url");
        let flags = StoreFlags { url_file: Some(path.clone()), ..StoreFlags::default() };
        let by_env = [(URL_FILE, path.to_str().expect("text"))];
        std::fs::write(&path, "redis://:hunter2@a\n").expect("a file");
        let handed_on = Ok((format!("in {}", path.display()), Source::File));
        assert_eq!(chosen(&flags, &[]), handed_on);
        assert_eq!(chosen(&StoreFlags::default(), &by_env), handed_on);
        std::fs::write(&path, "sqlite:a.db\n").expect("a file");
        assert_eq!(chosen(&flags, &[]), Ok(("sqlite:/srv/a.db".to_owned(), Source::File)));
        std::fs::write(&path, "sqlite:a.db\nredis://:hunter2@a\n").expect("a file");
        let refusal = chosen(&flags, &[]).expect_err("not to be handed on");
        assert!(refusal.contains("absolute") && !refusal.contains("hunter2"), "{refusal}");
        let path = dir.path().join(std::ffi::OsStr::from_bytes(b"\xff"));
        std::fs::write(&path, "redis://:hunter2@a\n").expect("a file");
        let strange = StoreFlags { url_file: Some(path), ..StoreFlags::default() };
        let refusal = chosen(&strange, &[]).expect_err("not to be handed on");
        assert!(refusal.contains("rename") && !refusal.contains("hunter2"), "{refusal}");
        let both = [(URL, "redis://a"), by_env[0]];
        let refusal = chosen(&StoreFlags::default(), &both).expect_err("two stores");
        assert!(refusal.contains("unset one"), "{refusal}");
        let refusal = chosen(&StoreFlags::default(), &[(URL_FILE, "")]).expect_err("empty");
        assert!(refusal.contains("is empty"), "{refusal}");
    }

    #[test]
    fn without_a_home_the_way_out_is_named() {
        let refusal = chosen(&StoreFlags::default(), &[("HOME", "")]).expect_err("no home");
        assert!(refusal.contains("--url") && refusal.contains("HOME"), "{refusal}");
        let relative = [("HOME", "here"), ("XDG_STATE_HOME", "there")];
        let refusal = chosen(&StoreFlags::default(), &relative).expect_err("relative");
        assert!(refusal.contains("absolute path"), "{refusal}");
    }

    #[test]
    fn a_namespace_is_inherited_unless_the_flag_says_otherwise() {
        for (flag, inherited, namespace) in [
            (None, None, None),
            (None, Some("a"), Some("a")),
            (None, Some(""), None),
            (Some("b"), Some("a"), Some("b")),
            (Some(""), Some("a"), None),
        ] {
            let flags = StoreFlags { namespace: flag.map(str::to_owned), ..url("a:") };
            let get = |name: &str| inherited.filter(|_| name == NAMESPACE).map(OsString::from);
            let settings = Settings::choose(&flags, get, vec![], None).expect("a store");
            assert_eq!(settings.namespace.as_deref(), namespace, "{flag:?} {inherited:?}");
        }
    }

    #[test]
    fn several_urls_are_a_quorum_which_is_handed_on_whole() {
        let is = |text: &str, source| Ok((text.to_owned(), source));
        let urls = ["redis://a", "sqlite:b.db", "unix:/c redis://d"].map(str::to_owned);
        let flags = StoreFlags { urls: urls.into(), ..StoreFlags::default() };
        let whole = "redis://a sqlite:/srv/b.db unix:/c redis://d";
        assert_eq!(chosen(&flags, &[]), is(whole, Source::Flag));
        let none = StoreFlags::default();
        let env = [("LEASEHOLD_URL", whole)];
        assert_eq!(chosen(&none, &env), is(whole, Source::Environment));
        let env = [("LEASEHOLD_URL", "sqlite:/my locks.db")];
        assert_eq!(chosen(&none, &env), is("sqlite:/my locks.db", Source::Environment));
    }

    #[test]
    fn a_blank_in_a_url_of_a_quorum_is_refused_without_its_password() {
        let urls = ["redis://a", "redis://:hunter2 @b"].map(str::to_owned);
        let flags = StoreFlags { urls: urls.into(), ..StoreFlags::default() };
        let refusal = chosen(&flags, &[]).expect_err("a blank");
        assert!(refusal.contains("white space") && !refusal.contains("hunter2"), "{refusal}");
    }
}
