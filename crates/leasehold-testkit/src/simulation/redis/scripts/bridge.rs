//! The functions that connect Lua and the server.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex};

use mlua::{
    Debug as Frame, Function, Lua, MultiValue, Result as LuaResult, String as Text, Table, Value,
};

use crate::simulation::redis::arguments::Arguments;
use crate::simulation::redis::commands::{Known, Need, Run};
use crate::simulation::redis::reply::{Refusal, Reply};
use crate::simulation::redis::{Server, lock, numbers};

/// The name of the setup file in Lua.
pub(super) const SETUP_NAME: &str = "=setup";

/// The script that is running.
#[derive(Debug, Default)]
pub(in crate::simulation::redis) struct Running {
    hash: Option<Arc<str>>,
    /// Whether the script has called a command that writes, even without success. After that, a
    /// full memory does not stop the script.
    has_written: bool,
    arguments: Arguments,
}

/// A refusal on its way through Lua.
#[derive(Debug)]
struct Raised(Refusal);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.text())
    }
}

impl Error for Raised {}

impl Running {
    pub(super) fn begin(&mut self, hash: &Arc<str>) {
        self.hash = Some(Arc::clone(hash));
        self.has_written = false;
    }
}

impl Server {
    /// Runs a command of a script.
    fn execute_for_script(&mut self, arguments: &Arguments) -> Result<Reply, Refusal> {
        let Some(known) = Known::find(arguments.at(0)) else {
            return Err(Refusal::fixed("ERR Unknown Redis command called from script"));
        };
        if !known.takes(arguments.len()) {
            let text = "ERR Wrong number of args calling Redis command from script";
            return Err(Refusal::fixed(text));
        }
        let Run::Plainly(run) = known.run else {
            return Err(Refusal::fixed("ERR This Redis command is not allowed from script"));
        };
        if self.is_full && known.need == Need::Memory && !self.running.has_written {
            return Err(Refusal::FULL);
        }
        self.running.has_written |= known.need != Need::None;
        self.run(run, arguments)
    }
}

/// The functions that `setup.lua` receives, in its order.
pub(super) fn functions(
    lua: &Lua,
    server: &Arc<Mutex<Server>>,
) -> LuaResult<(Function, Function, Function, Function)> {
    let servers = || Arc::clone(server);
    let (raising, telling, describing) = (servers(), servers(), servers());
    let call = move |lua: &Lua, words: MultiValue| match call(&raising, &words) {
        Ok(reply) => into_lua(lua, reply),
        Err(refusal) => Err(mlua::Error::external(Raised(refusal))),
    };
    let call_without_raising =
        move |lua: &Lua, words: MultiValue| into_lua(lua, call_quietly(&telling, &words));
    let as_text = |lua: &Lua, error: Value| match (refusal_in(&error), &error) {
        (Some(refusal), _) => lua.create_string(refusal.text()).map(Value::String),
        (None, Value::Table(table)) => match table.raw_get("err")? {
            text @ (Value::String(_) | Value::Integer(_) | Value::Number(_)) => Ok(text),
            _ => Ok(error),
        },
        _ => Ok(error),
    };
    let describe = move |lua: &Lua, error: Value| {
        let hash = lock(&describing).running.hash.clone();
        lua.create_string(describe(lua, &error, hash.as_deref().unwrap_or_default()))
    };
    Ok((
        lua.create_function(call)?,
        lua.create_function(call_without_raising)?,
        lua.create_function(as_text)?,
        lua.create_function(describe)?,
    ))
}

/// Runs a script. The first `keys` arguments after the number of keys are its keys.
pub(super) fn run(
    lua: &Lua,
    run: &Function,
    script: &Function,
    arguments: &Arguments,
    keys: usize,
) -> Result<Reply, Refusal> {
    let called = (|| {
        let given = || arguments.from(3).map(Text::wrap);
        let argv = lua.create_sequence_from(given().skip(keys))?;
        let keys = lua.create_sequence_from(given().take(keys))?;
        run.call::<(bool, Value)>((script, keys, argv))
    })();
    match called {
        Ok((true, value)) => from_lua(&value),
        Ok((false, Value::String(text))) => Err(Refusal::new(text.to_string_lossy())),
        // This is an error that Lua cannot catch, such as a lack of memory.
        Ok((false, _)) => Err(Refusal::fixed("ERR Error running script")),
        Err(error) => Err(Refusal::new(format!("ERR Error running script: {error}"))),
    }
}

fn call_quietly(server: &Mutex<Server>, words: &MultiValue) -> Reply {
    call(server, words).unwrap_or_else(Reply::Refused)
}

fn call(server: &Mutex<Server>, words: &MultiValue) -> Result<Reply, Refusal> {
    if words.is_empty() {
        let text = "ERR Please specify at least one argument for this redis lib call";
        return Err(Refusal::fixed(text));
    }
    let mut server = lock(server);
    let mut arguments = std::mem::take(&mut server.running.arguments);
    arguments.clear();
    let read = words.iter().try_for_each(|word| push(&mut arguments, word));
    let reply = read.and_then(|()| server.execute_for_script(&arguments));
    server.running.arguments = arguments;
    reply
}

fn push(arguments: &mut Arguments, word: &Value) -> Result<(), Refusal> {
    match word {
        Value::String(text) => arguments.push(&text.as_bytes()),
        Value::Integer(number) => push_number(arguments, *number as f64),
        Value::Number(number) => push_number(arguments, *number),
        _ => {
            let text = "ERR Lua redis lib command arguments must be strings or integers";
            return Err(Refusal::fixed(text));
        }
    }
    Ok(())
}

fn push_number(arguments: &mut Arguments, number: f64) {
    // Every whole number up to this limit has at most 16 digits, and is written with all its
    // digits.
    const PLAIN_MAX: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= PLAIN_MAX {
        arguments.push((number as i64).to_string().as_bytes());
    } else {
        arguments.push(numbers::written(number).as_bytes());
    }
}

/// Converts a reply for a script.
fn into_lua(lua: &Lua, reply: Reply) -> LuaResult<Value> {
    let tagged = |name: &str, text: &str| {
        let table = lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, text)?;
        Ok(Value::Table(table))
    };
    match reply {
        Reply::Nil => Ok(Value::Boolean(false)),
        Reply::Int(number) => Ok(Value::Integer(number)),
        Reply::Status(text) => tagged("ok", &text),
        Reply::Refused(refusal) => tagged("err", refusal.text()),
        Reply::Bytes(bytes) => lua.create_string(bytes).map(Value::String),
        Reply::Array(replies) => {
            let table = lua.create_table_with_capacity(replies.len(), 0)?;
            for reply in replies {
                table.raw_push(into_lua(lua, reply)?)?;
            }
            Ok(Value::Table(table))
        }
    }
}

/// Converts the result of a script for clients.
fn from_lua(value: &Value) -> Result<Reply, Refusal> {
    Ok(match value {
        Value::String(text) => Reply::Bytes(text.as_bytes().to_vec()),
        Value::Boolean(true) => Reply::Int(1),
        Value::Integer(number) => Reply::Int(*number),
        Value::Number(number) => Reply::Int(truncated(*number)),
        Value::Table(table) => return table_from_lua(table),
        _ => Reply::Nil,
    })
}

fn table_from_lua(table: &Table) -> Result<Reply, Refusal> {
    let field = |name: &str| table.raw_get::<Value>(name).unwrap_or(Value::Nil);
    if let Value::String(text) = field("err") {
        return Ok(Reply::Refused(Refusal::new(text.to_string_lossy())));
    }
    if let Value::String(text) = field("ok") {
        return Ok(Reply::Status(text.to_string_lossy().replace(['\r', '\n'], " ").into()));
    }
    let mut replies = Vec::new();
    for place in 1.. {
        match table.raw_get(place) {
            Ok(Value::Nil) | Err(_) => break,
            Ok(value) => replies.push(from_lua(&value)?),
        }
    }
    Ok(Reply::Array(replies))
}

/// Drops the fraction of a number. A number that does not fit becomes the smallest integer, as on
/// real processors.
fn truncated(number: f64) -> i64 {
    let fits = number >= i64::MIN as f64 && number < i64::MAX as f64;
    if fits { number as i64 } else { i64::MIN }
}

/// The refusal inside an error, if it is one of ours.
fn refusal_in(error: &Value) -> Option<Refusal> {
    let Value::Error(error) = error else { return None };
    let mut error = error.as_ref();
    // Each of our functions that the error passed through has wrapped it once.
    while let mlua::Error::CallbackError { cause, .. } = error {
        error = cause;
    }
    error.downcast_ref::<Raised>().map(|raised| raised.0.clone())
}

/// The error text of a script for a client: the refusal, the script and the line.
fn describe(lua: &Lua, error: &Value, hash: &str) -> String {
    let text = match (refusal_in(error), error) {
        (Some(refusal), _) => refusal.text().to_owned(),
        (None, Value::Table(table)) => {
            table.raw_get::<Text>("err").map(|text| text.to_string_lossy()).unwrap_or_default()
        }
        (None, Value::Error(error)) => format!("ERR {error}"),
        (None, other) => format!("ERR {}", other.to_string().unwrap_or_default()),
    };
    // The innermost function that belongs to the script.
    let place = (1..).map_while(|level| lua.inspect_stack(level, place_of)).flatten().next();
    match place {
        Some((source, line)) => format!("{text} script: {hash}, on {source}:{line}."),
        None => text,
    }
}

/// The source and the line of a function, if it belongs to a script.
fn place_of(function: &Frame) -> Option<(String, usize)> {
    let source = function.source();
    let is_script = source.what != "C" && source.source.as_deref() != Some(SETUP_NAME);
    is_script.then(|| {
        let line = function.current_line().unwrap_or(0);
        (source.source.unwrap_or_default().into_owned(), line)
    })
}
