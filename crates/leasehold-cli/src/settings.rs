//! Which store we speak to, and with what rights to talk about it.

use std::ffi::OsString;
use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use leasehold::{Client, Identity};

use crate::exit::Failure;
use crate::talk::{Level, Talk};

/// Where a namespace is inherited from.
pub(crate) const NAMESPACE: &str = "LEASEHOLD_NAMESPACE";

/// What the flags say of the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreFlags {
    /// `--url`, each one.
    pub(crate) urls: Vec<String>,
    /// `--url-file`.
    pub(crate) url_file: Option<PathBuf>,
    /// `--namespace`.
    pub(crate) namespace: Option<String>,
}

/// Where a URL came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Flag,
    File,
    Environment,
    Default,
}

/// The store that was chosen.
#[derive(Clone)]
pub(crate) struct Settings {
    url: String,
    source: Source,
    namespace: Option<String>,
}

impl Settings {
    /// Chooses: flags before the environment before the default.
    pub(crate) fn resolve(flags: &StoreFlags) -> Result<Self, Failure> {
        Self::choose(flags, |name| std::env::var_os(name))
    }

    fn choose(flags: &StoreFlags, env: impl Fn(&str) -> Option<OsString>) -> Result<Self, Failure> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let (url, source) = if let [first, more @ ..] = &flags.urls[..] {
            if !more.is_empty() {
                return Err(Failure::new(
                    crate::exit::Exit::CONFIG,
                    leasehold::ErrorKind::Unsupported.as_str(),
                    "several --url make a quorum of stores, which this version cannot do yet; \
                     the store was not contacted, name one store",
                ));
            }
            (first.clone(), Source::Flag)
        } else if let Some(path) = &flags.url_file {
            (first_line(path)?, Source::File)
        } else if let Some(url) = env("LEASEHOLD_URL") {
            if url.is_empty() {
                // A job that lost its configuration must not take a lock that nobody else sees.
                return Err(Failure::config(
                    "LEASEHOLD_URL is empty; the store was not contacted, name one in it, or unset \
                     it for the embedded store of this machine",
                ));
            }
            let url = url.into_string().map_err(|_| {
                Failure::config("LEASEHOLD_URL is not valid UTF-8; the store was not contacted")
            })?;
            (url, Source::Environment)
        } else {
            (default_url(set)?, Source::Default)
        };
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
        // An empty flag takes an inherited namespace away.
        let namespace = namespace.filter(|namespace| !namespace.is_empty());
        Ok(Self { url, source, namespace })
    }

    /// Connects, after what there is to say about the choice.
    pub(crate) async fn connect(&self, who: Identity, talk: &Talk) -> Result<Client, Failure> {
        if self.source == Source::Flag && has_password(&self.url) {
            talk.notice(
                Level::Warning,
                "password-in-arguments",
                None,
                "the password in --url can be seen by everybody who lists the processes of this \
                 machine; use --url-file or LEASEHOLD_URL",
            );
        }
        if self.source == Source::Default {
            announce_default(talk);
        }
        let mut builder = Client::builder(&self.url).identity(who);
        if let Some(namespace) = &self.namespace {
            builder = builder.namespace(namespace);
        }
        Ok(builder.connect().await?)
    }

    /// Refuses a store in which nobody else could see the lock.
    pub(crate) fn refuse_private(&self, name: &str) -> Result<(), Failure> {
        if after_scheme(&self.url, "memory").is_none() {
            return Ok(());
        }
        let message = "a memory: store lives in this process only, no other command would see the \
                       lock; nothing was acquired, name a store by --url";
        Err(Failure::config(message).about(name))
    }

    /// The namespace for the environment of a command, so that it reaches the same locks.
    pub(crate) fn namespace_for_child(&self) -> Option<String> {
        self.namespace.clone()
    }

    /// The URL for the environment of a command, so that it reaches the same store from whatever
    /// directory it moves to.
    pub(crate) fn url_for_child(&self) -> String {
        let here = std::env::current_dir().ok();
        absolute(&self.url, here.as_deref()).unwrap_or_else(|| self.url.clone())
    }
}

/// Nobody chose the embedded store, so a person is told how far it reaches.
fn announce_default(talk: &Talk) {
    if std::io::stderr().is_terminal() {
        talk.notice(
            Level::Info,
            "embedded-store",
            None,
            "using the embedded store: only this user on this machine sees these locks; \
             --url names another store",
        );
    }
}

fn first_line(path: &Path) -> Result<String, Failure> {
    let refused = |reason: &str| {
        Failure::config(format!(
            "--url-file {}: {reason}; the store was not contacted",
            path.display()
        ))
    };
    let text = fs::read_to_string(path).map_err(|error| refused(&error.to_string()))?;
    match text.lines().next().map(str::trim) {
        Some(url) if !url.is_empty() => Ok(url.to_owned()),
        _ => Err(refused("its first line holds no URL")),
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
             the store was not contacted, name a store by --url or LEASEHOLD_URL",
        ));
    };
    let file = state.join("leasehold/locks.db");
    let file = file.to_str().ok_or_else(|| {
        Failure::config(format!(
            "the path of the embedded store is not valid UTF-8: {}; the store was not contacted, \
             name a store by --url",
            file.display()
        ))
    })?;
    Ok(format!("sqlite:{file}"))
}

fn has_password(url: &str) -> bool {
    let authority = url.split_once("://").map_or("", |(_, rest)| rest);
    authority.rsplit_once('@').is_some_and(|(user, _)| {
        user.split_once(':').is_some_and(|(_, password)| !password.is_empty())
    })
}

/// What follows the scheme, whose case does not matter.
fn after_scheme<'a>(url: &'a str, scheme: &str) -> Option<&'a str> {
    let (given, rest) = url.split_once(':')?;
    given.eq_ignore_ascii_case(scheme).then_some(rest)
}

fn absolute(url: &str, here: Option<&Path>) -> Option<String> {
    let file = after_scheme(url, "sqlite").filter(|file| !file.starts_with('/'))?;
    Some(format!("sqlite:{}", here?.join(file).to_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(flags: &StoreFlags, env: &[(&str, &str)]) -> Result<(String, Source), String> {
        let get = |name: &str| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        };
        Settings::choose(flags, get)
            .map(|settings| (settings.url, settings.source))
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
            let settings = Settings::choose(&flags, get).expect("a store");
            assert_eq!(settings.namespace.as_deref(), namespace, "{flag:?} {inherited:?}");
        }
    }

    #[test]
    fn several_urls_are_refused_for_now() {
        let flags = StoreFlags { urls: vec!["a:".into(), "b:".into()], ..StoreFlags::default() };
        let refusal = chosen(&flags, &[]).expect_err("two URLs");
        assert!(refusal.contains("quorum"), "{refusal}");
    }

    #[test]
    fn a_password_is_noticed() {
        for (url, password) in [
            ("redis://user:secret@host", true),
            ("redis://:secret@host", true),
            ("redis://user@host", false),
            ("redis://user:@host", false),
            ("redis://host:6379/0", false),
            ("sqlite:/a@b:c", false),
        ] {
            assert_eq!(has_password(url), password, "{url}");
        }
    }

    #[test]
    fn a_relative_file_stays_the_same_file_after_a_change_of_directory() {
        let here = Some(Path::new("/srv"));
        assert_eq!(absolute("sqlite:a/b.db", here).as_deref(), Some("sqlite:/srv/a/b.db"));
        assert_eq!(absolute("SQLite:b.db", here).as_deref(), Some("sqlite:/srv/b.db"));
        assert_eq!(absolute("sqlite:/a/b.db", here), None);
        assert_eq!(absolute("redis://host", here), None);
        assert_eq!(absolute("sqlite:a/b.db", None), None);
    }
}
