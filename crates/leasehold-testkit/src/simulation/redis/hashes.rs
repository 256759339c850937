//! The commands on hashes.

use super::Server;
use super::arguments::Arguments;
use super::keyspace::Hash;
use super::reply::{Refusal, Reply};

pub(super) fn hset(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    if !arguments.len().is_multiple_of(2) {
        return Err(Refusal::wrong_arity("hset"));
    }
    let set = |fields: &mut Hash| {
        let pairs = (2..arguments.len()).step_by(2);
        let is_new = |place: &usize| {
            let (field, value) = (arguments.at(*place), arguments.at(place + 1));
            fields.insert(field.to_vec(), value.to_vec()).is_none()
        };
        pairs.filter(is_new).count()
    };
    server.keyspace.change_hash(arguments.at(1), set).map(Reply::count)
}

pub(super) fn hget(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let fields = server.keyspace.hash(arguments.at(1))?;
    Ok(value_of(fields, arguments.at(2)))
}

pub(super) fn hmget(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let fields = server.keyspace.hash(arguments.at(1))?;
    Ok(Reply::Array(arguments.from(2).map(|field| value_of(fields, field)).collect()))
}

pub(super) fn hgetall(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let fields = server.keyspace.hash(arguments.at(1))?;
    let pairs = fields.into_iter().flatten().flat_map(|(field, value)| [field, value]);
    Ok(Reply::Array(pairs.map(|bytes| Reply::Bytes(bytes.clone())).collect()))
}

pub(super) fn hlen(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let fields = server.keyspace.hash(arguments.at(1))?;
    Ok(Reply::count(fields.map_or(0, Hash::len)))
}

pub(super) fn hdel(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let remove = |fields: &mut Hash| {
        arguments.from(2).filter(|field| fields.remove(*field).is_some()).count()
    };
    server.keyspace.change_hash(arguments.at(1), remove).map(Reply::count)
}

fn value_of(fields: Option<&Hash>, field: &[u8]) -> Reply {
    Reply::bytes(fields.and_then(|fields| fields.get(field)).map(Vec::as_slice))
}
