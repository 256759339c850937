//! How the store is chosen.

use std::os::unix::ffi::OsStrExt as _;

use super::*;

fn chosen(flags: &StoreFlags, env: &[(&str, &str)]) -> Result<(String, Source), String> {
    let get = |name: &str| {
        env.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
    };
    let unknown = unknown(env.iter().map(|(name, _)| OsString::from(name)));
    Settings::choose(flags, get, unknown, Some(Path::new("/srv")))
        .and_then(|settings| {
            let [(_, urls), (_, file)] = settings.store_for_child()?;
            let text = urls.or_else(|| Some(format!("in {}", file?)));
            Ok((text.expect("one of them"), settings.source))
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
    for name in ["LEASEHOLD_URI", "LEASEHOLD_UR", "LEASEHOLD_URL_FIEL", "LEASEHOLD_REDIS_URL"] {
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

/// Only `run` and `elect` start a command that has to be told of the store.
#[test]
fn a_store_that_no_command_can_be_told_of_may_be_inspected() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(std::ffi::OsStr::from_bytes(b"\xff"));
    std::fs::write(&path, "redis://:hunter2@a\n").expect("a file");
    let flags = StoreFlags { url_file: Some(path), ..StoreFlags::default() };
    let settings = Settings::choose(&flags, |_| None, vec![], None).expect("a store");
    assert_eq!(settings.urls(), ["redis://:hunter2@a"]);
    let refusal = settings.refuse_out_of_reach(Some("x")).expect_err("not to be handed on");
    assert_eq!(refusal.name.as_deref(), Some("x"));
}

#[test]
fn a_place_without_a_scheme_is_refused_with_the_url_that_was_meant() {
    let refusal = chosen(&url("localhost:6379"), &[]).expect_err("no URL");
    assert!(refusal.contains("write `redis://localhost:6379`"), "{refusal}");
    let env = [("LEASEHOLD_URL", "db:5432")];
    let refusal = chosen(&StoreFlags::default(), &env).expect_err("no URL");
    assert!(refusal.contains("`postgres://USER@db:5432/DATABASE`"), "{refusal}");
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
