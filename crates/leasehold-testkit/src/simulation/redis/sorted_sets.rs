//! Commands on sorted sets.

use super::Server;
use super::arguments::Arguments;
use super::numbers;
use super::reply::{Refusal, Reply};
use super::sorted_set::{Range, SortedSet};

pub(super) fn zadd(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let options = ["NX", "XX", "GT", "LT", "CH", "INCR"];
    if options.iter().any(|option| arguments.is(2, option)) {
        return Err(Refusal::left_out("the options of ZADD"));
    }
    if !arguments.len().is_multiple_of(2) {
        return Err(Refusal::SYNTAX);
    }
    let pairs = (2..arguments.len()).step_by(2).map(|place| {
        let score = numbers::score(arguments.at(place)).ok_or(Refusal::NOT_A_FLOAT)?;
        Ok((score, arguments.at(place + 1)))
    });
    let pairs = pairs.collect::<Result<Vec<_>, Refusal>>()?;
    let add = |members: &mut SortedSet| {
        pairs.iter().filter(|(score, member)| members.set(member, *score)).count()
    };
    server.keyspace.change_sorted(arguments.at(1), add).map(Reply::count)
}

pub(super) fn zrem(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let remove =
        |members: &mut SortedSet| arguments.from(2).filter(|member| members.remove(member)).count();
    server.keyspace.change_sorted(arguments.at(1), remove).map(Reply::count)
}

pub(super) fn zcard(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let members = server.keyspace.sorted(arguments.at(1))?;
    Ok(Reply::count(members.map_or(0, SortedSet::len)))
}

pub(super) fn zscore(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let members = server.keyspace.sorted(arguments.at(1))?;
    Ok(score_of(members, arguments.at(2)))
}

pub(super) fn zmscore(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let members = server.keyspace.sorted(arguments.at(1))?;
    Ok(Reply::Array(arguments.from(2).map(|member| score_of(members, member)).collect()))
}

pub(super) fn zrank(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let members = server.keyspace.sorted(arguments.at(1))?;
    let rank = members.and_then(|members| members.rank(arguments.at(2)));
    Ok(rank.map_or(Reply::Nil, Reply::count))
}

pub(super) fn zcount(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let range = range_at(arguments, 2)?;
    let members = server.keyspace.sorted(arguments.at(1))?;
    Ok(Reply::count(members.map_or(0, |members| members.within(range).count())))
}

pub(super) fn zrange(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let options = Options::read(arguments)?;
    if options.limit.is_some_and(|(_, count)| count != -1) {
        return Err(Refusal::fixed(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ));
    }
    let (start, stop) = (arguments.integer(2)?, arguments.integer(3)?);
    let Some(members) = server.keyspace.sorted(arguments.at(1))? else {
        return Ok(Reply::Array(Vec::new()));
    };
    let length = i64::try_from(members.len()).expect("fewer than the memory has bytes");
    // A negative index counts from the end.
    let from_start = |index: i64| if index < 0 { index.saturating_add(length) } else { index };
    let (start, stop) = (from_start(start).max(0), from_start(stop));
    let skipped = usize::try_from(start).unwrap_or(usize::MAX);
    let count = stop.saturating_sub(start).saturating_add(1).max(0);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    Ok(options.listed(members.in_order().skip(skipped).take(count)))
}

pub(super) fn zrangebyscore(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let options = Options::read(arguments)?;
    let range = range_at(arguments, 2)?;
    let Some(members) = server.keyspace.sorted(arguments.at(1))? else {
        return Ok(Reply::Array(Vec::new()));
    };
    let (offset, count) = options.limit.unwrap_or((0, -1));
    // A negative offset skips everything, and a negative count has no limit.
    let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    Ok(options.listed(members.within(range).skip(skipped).take(count)))
}

/// The options after a range.
struct Options {
    with_scores: bool,
    limit: Option<(i64, i64)>,
}

impl Options {
    fn read(arguments: &Arguments) -> Result<Self, Refusal> {
        let mut options = Self { with_scores: false, limit: None };
        let mut place = 4;
        while place < arguments.len() {
            if arguments.is(place, "WITHSCORES") {
                options.with_scores = true;
            } else if arguments.is(place, "LIMIT") && place + 2 < arguments.len() {
                options.limit =
                    Some((arguments.integer(place + 1)?, arguments.integer(place + 2)?));
                place += 2;
            } else if ["REV", "BYLEX", "BYSCORE"].iter().any(|word| arguments.is(place, word))
                && arguments.is(0, "ZRANGE")
            {
                return Err(Refusal::left_out("ZRANGE by anything but ranks"));
            } else {
                return Err(Refusal::SYNTAX);
            }
            place += 1;
        }
        Ok(options)
    }

    fn listed<'a>(&self, members: impl Iterator<Item = (&'a [u8], f64)>) -> Reply {
        let mut listed = Vec::new();
        for (member, score) in members {
            listed.push(Reply::Bytes(member.to_vec()));
            if self.with_scores {
                listed.push(score_reply(score));
            }
        }
        Reply::Array(listed)
    }
}

fn range_at(arguments: &Arguments, place: usize) -> Result<Range, Refusal> {
    let bound = |place| {
        let bound = numbers::bound(arguments.at(place));
        bound.ok_or(Refusal::fixed("ERR min or max is not a float"))
    };
    Ok(Range { min: bound(place)?, max: bound(place + 1)? })
}

fn score_of(members: Option<&SortedSet>, member: &[u8]) -> Reply {
    members.and_then(|members| members.score(member)).map_or(Reply::Nil, score_reply)
}

fn score_reply(score: f64) -> Reply {
    Reply::Bytes(numbers::written(score).into_bytes())
}
