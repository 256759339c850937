//! Which store we speak to, and with what rights to talk about it.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use leasehold::store::redact_url;
use leasehold::{Client, Identity};

use crate::exit::Failure;
use crate::talk::{Level, Talk};
use crate::urls::{absolute, after_scheme, has_password, in_file, split};

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

/// Where the URLs came from.
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
    /// One, or those of a quorum.
    urls: Vec<String>,
    /// The same ones, from whatever directory.
    urls_for_child: String,
    source: Source,
    namespace: Option<String>,
}

impl Settings {
    /// Chooses: flags before the environment before the default.
    pub(crate) fn resolve(flags: &StoreFlags) -> Result<Self, Failure> {
        let here = std::env::current_dir().ok();
        Self::choose(flags, |name| std::env::var_os(name), here.as_deref())
    }

    fn choose(
        flags: &StoreFlags,
        env: impl Fn(&str) -> Option<OsString>,
        here: Option<&Path>,
    ) -> Result<Self, Failure> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let (urls, source) = if !flags.urls.is_empty() {
            (flags.urls.iter().flat_map(|text| split(text)).collect(), Source::Flag)
        } else if let Some(path) = &flags.url_file {
            (in_file(path)?, Source::File)
        } else if let Some(text) = env("LEASEHOLD_URL") {
            (split(&inherited_urls(text)?), Source::Environment)
        } else {
            (vec![default_url(set)?], Source::Default)
        };
        let urls_for_child = for_child(&urls, here)?;
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
        Ok(Self { urls, urls_for_child, source, namespace })
    }

    /// Connects, after what there is to say about the choice.
    pub(crate) async fn connect(&self, who: Identity, talk: &Talk) -> Result<Client, Failure> {
        if self.source == Source::Flag && self.urls.iter().any(|url| has_password(url)) {
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
        let builder = match &self.urls[..] {
            [url] => Client::builder(url),
            urls => Client::quorum(urls),
        };
        let mut builder = builder.identity(who);
        if let Some(namespace) = &self.namespace {
            builder = builder.namespace(namespace);
        }
        Ok(builder.connect().await?)
    }

    /// Refuses a store in which nobody else could see the lock.
    pub(crate) fn refuse_private(&self, name: &str) -> Result<(), Failure> {
        if !self.urls.iter().any(|url| after_scheme(url, "memory").is_some()) {
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

    /// The URLs for the environment of a command, so that it reaches the same store from whatever
    /// directory it moves to.
    pub(crate) fn urls_for_child(&self) -> String {
        self.urls_for_child.clone()
    }
}

fn inherited_urls(text: OsString) -> Result<String, Failure> {
    if text.is_empty() {
        // A job that lost its configuration must not take a lock that nobody else sees.
        return Err(Failure::config(
            "LEASEHOLD_URL is empty; the store was not contacted, name one in it, or unset it for \
             the embedded store of this machine",
        ));
    }
    text.into_string().map_err(|_| {
        Failure::config("LEASEHOLD_URL is not valid UTF-8; the store was not contacted")
    })
}

/// The URLs as LEASEHOLD_URL carries them.
fn for_child(urls: &[String], here: Option<&Path>) -> Result<String, Failure> {
    let urls: Vec<_> = urls.iter().map(|url| absolute(url, here)).collect();
    match urls.iter().find(|url| url.contains(char::is_whitespace)) {
        // The commands that run under the lock could not tell where it ends.
        Some(url) if urls.len() > 1 => Err(Failure::config(format!(
            "several URLs make a quorum, and `{}` among them has white space in it, which stands \
             between URLs in LEASEHOLD_URL; the store was not contacted, write it without",
            redact_url(url)
        ))),
        _ => Ok(urls.join(" ")),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(flags: &StoreFlags, env: &[(&str, &str)]) -> Result<(String, Source), String> {
        let get = |name: &str| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        };
        Settings::choose(flags, get, Some(Path::new("/srv")))
            .map(|settings| (settings.urls_for_child, settings.source))
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
            let settings = Settings::choose(&flags, get, None).expect("a store");
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
