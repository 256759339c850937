//! Script calls: finds the script and runs it.

mod bridge;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use mlua::{ChunkMode, Function, Lua, LuaOptions, StdLib};

use super::arguments::Arguments;
use super::keys::is_sync_or_async;
use super::reply::{Refusal, Reply};
use super::sha1::sha1_hex;
use super::{Server, lock};

pub(super) use self::bridge::Running;

/// The result of a command, and the name of the script that ran, if any.
pub(super) type Called = (Result<Reply, Refusal>, Option<Arc<str>>);

/// Prepares Lua as the server does: no input or output, no random numbers, and no new globals.
/// Returns the function that runs a script.
const SETUP: &str = include_str!("setup.lua");

/// The scripts that a server has seen, and the Lua state that they run in.
pub(super) struct Scripts {
    lua: Lua,
    run: Function,
    /// The scripts by hash. The map is used only for lookups, so its random order does no harm.
    compiled: HashMap<String, Compiled>,
}

#[derive(Clone)]
struct Compiled {
    function: Function,
    hash: Arc<str>,
    name: Option<Arc<str>>,
}

impl Scripts {
    pub(super) fn new(server: &Arc<Mutex<Server>>) -> Self {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new()).expect("these libraries are safe");
        // Scripts leave little garbage, so collection can wait until memory has grown ten times.
        lua.gc_inc(1_000, 200, 0);
        let bridge = bridge::functions(&lua, server).expect("there is memory for some functions");
        let setup = lua.load(SETUP).set_name(bridge::SETUP_NAME).set_mode(ChunkMode::Text);
        let run = setup.call(bridge).expect("it runs, as the tests show");
        Self { lua, run, compiled: HashMap::new() }
    }

    pub(super) fn flush(&mut self) {
        self.compiled.clear();
    }

    /// Runs EVAL, EVALSHA or SCRIPT.
    pub(super) fn execute(&mut self, server: &Mutex<Server>, arguments: &Arguments) -> Called {
        if arguments.is(0, "SCRIPT") {
            return (self.manage(arguments), None);
        }
        match self.find(arguments) {
            Ok((script, keys)) => {
                lock(server).running.begin(&script.hash);
                (bridge::run(&self.lua, &self.run, &script.function, arguments, keys), script.name)
            }
            Err(refusal) => (Err(refusal), None),
        }
    }

    /// The script that a command calls, and how many of its arguments are keys.
    fn find(&mut self, arguments: &Arguments) -> Result<(Compiled, usize), Refusal> {
        let keys = arguments.integer(2)?;
        let Ok(keys) = usize::try_from(keys) else {
            return Err(Refusal::fixed("ERR Number of keys can't be negative"));
        };
        if keys > arguments.len() - 3 {
            let text = "ERR Number of keys can't be greater than number of args";
            return Err(Refusal::fixed(text));
        }
        let script = if arguments.is(0, "EVAL") {
            self.learn(arguments.at(1))?
        } else {
            self.known(arguments.at(1)).ok_or(Refusal::NO_SCRIPT)?
        };
        Ok((script.clone(), keys))
    }

    fn known(&self, hash: &[u8]) -> Option<&Compiled> {
        let hash = str::from_utf8(hash).ok()?;
        self.compiled.get(hash).or_else(|| self.compiled.get(&hash.to_ascii_lowercase()))
    }

    /// Compiles a script that is new.
    fn learn(&mut self, text: &[u8]) -> Result<&Compiled, Refusal> {
        let hash = sha1_hex(text);
        if !self.compiled.contains_key(&hash) {
            if text.starts_with(b"#!") {
                return Err(Refusal::left_out("scripts that begin with `#!`"));
            }
            let chunk = self.lua.load(text).set_name("@user_script").set_mode(ChunkMode::Text);
            let function = chunk.into_function().map_err(|error| {
                let text = match error {
                    mlua::Error::SyntaxError { message, .. } => message,
                    other => other.to_string(),
                };
                Refusal::new(format!("ERR Error compiling script (new function): {text}"))
            })?;
            let compiled = Compiled { function, hash: hash.as_str().into(), name: name_of(text) };
            self.compiled.insert(hash.clone(), compiled);
        }
        Ok(&self.compiled[&hash])
    }

    fn manage(&mut self, arguments: &Arguments) -> Result<Reply, Refusal> {
        let words = arguments.len();
        let wrong_arity = |name: &str| Refusal::wrong_arity(&format!("script|{name}"));
        if arguments.is(1, "FLUSH") {
            if words > 3 || (words == 3 && !is_sync_or_async(arguments, 2)) {
                let text = "ERR SCRIPT FLUSH only support SYNC|ASYNC option";
                return Err(Refusal::fixed(text));
            }
            self.flush();
            Ok(Reply::OK)
        } else if arguments.is(1, "LOAD") {
            if words != 3 {
                return Err(wrong_arity("load"));
            }
            let script = self.learn(arguments.at(2))?;
            Ok(Reply::Bytes(script.hash.as_bytes().to_vec()))
        } else if arguments.is(1, "EXISTS") {
            if words < 3 {
                return Err(wrong_arity("exists"));
            }
            let known = |hash| Reply::Int(i64::from(self.known(hash).is_some()));
            Ok(Reply::Array(arguments.from(2).map(known).collect()))
        } else {
            Err(Refusal::left_out("this subcommand of SCRIPT"))
        }
    }
}

/// The name of a script, which is the name of the last file in it, from a line `-- NAME.lua: ...`.
pub(in crate::simulation) fn name_of(text: &[u8]) -> Option<Arc<str>> {
    let lines = str::from_utf8(text).ok()?.lines();
    let headers = lines.filter_map(|line| line.strip_prefix("-- ")?.split_once(".lua:"));
    let mut names = headers.map(|(name, _)| name);
    let is_name = |name: &&str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    names.rfind(is_name).map(Arc::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_called_what_its_last_file_is_called() {
        let table = [
            ("-- prelude.lua: first\nlocal a\n-- renew.lua: last\nreturn a", Some("renew")),
            ("-- see renew.lua: no header\nreturn 1", None),
            ("  -- renew.lua: indented", None),
            ("return 1", None),
        ];
        for (text, name) in table {
            assert_eq!(name_of(text.as_bytes()).as_deref(), name, "{text}");
        }
    }
}
