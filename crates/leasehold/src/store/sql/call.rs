//! The requests of the contract as calls of procedures in the database.

use std::fmt::Write as _;
use std::time::Duration;

use super::engine::Dialect;
use crate::core::claim::{Claim, Usage};
use crate::core::key::Key;
use crate::core::line::Stance;
use crate::store::{Ask, ClientRecord, LeaseId, OnRelease, Renewal};

/// A call of a procedure, as SQL. The arguments follow in order.
struct Call<'a> {
    dialect: &'a Dialect,
    sql: String,
    has_arguments: bool,
}

impl<'a> Call<'a> {
    fn new(dialect: &'a Dialect, procedure: &str) -> Self {
        let sql = format!("{}{procedure}(", dialect.before);
        Self { dialect, sql, has_arguments: false }
    }

    fn next(&mut self) -> &mut String {
        if std::mem::replace(&mut self.has_arguments, true) {
            self.sql.push(',');
        }
        &mut self.sql
    }

    fn text(mut self, text: &str) -> Self {
        let write = self.dialect.text;
        write(self.next(), text);
        self
    }

    fn text_or_null(self, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.text(text),
            None => self.null(),
        }
    }

    fn number(mut self, number: impl Into<i128>) -> Self {
        write!(self.next(), "{}", number.into()).expect("a string takes any text");
        self
    }

    fn number_or_null(self, number: Option<impl Into<i128>>) -> Self {
        match number {
            Some(number) => self.number(number),
            None => self.null(),
        }
    }

    fn null(mut self) -> Self {
        self.next().push_str("NULL");
        self
    }

    fn truth(mut self, truth: bool) -> Self {
        self.next().push_str(if truth { "true" } else { "false" });
        self
    }

    /// Adds a span, in microseconds.
    fn span(self, span: Duration) -> Self {
        // A ttl has at most a day, and the clock of the server 64 bits.
        self.number(i64::try_from(span.as_micros()).unwrap_or(i64::MAX / 4))
    }

    /// Adds how long the step may wait for a lock on the row of its key. One wait ends before the
    /// caller's limit, so that the caller hears what happened. Two waits may exceed the limit: for
    /// the turn among those that want the row, and for the transaction that has it.
    fn patience(self, limit: Duration) -> Self {
        if !self.dialect.has_patience {
            return self;
        }
        let patience = (limit * 3 / 4).as_millis().max(1);
        self.number(i64::try_from(patience).unwrap_or(i64::MAX))
    }

    /// The whole call.
    fn end(mut self) -> String {
        self.sql.push(')');
        self.sql
    }
}

/// A claim as an integer of SQL.
const fn claim_number(claim: Claim) -> i64 {
    match claim {
        Claim::Exclusive | Claim::Plain => 0,
        Claim::Shared => -1,
        Claim::Permits { want, .. } => want as i64,
    }
}

/// The claim of an integer, at a key with this many permits.
pub(super) fn claim_of(number: i64, permits: Option<u32>) -> Claim {
    match u32::try_from(number) {
        Ok(0) => Claim::Exclusive,
        Ok(want) => Claim::Permits { want, of: permits.unwrap_or(want) },
        Err(_) => Claim::Shared,
    }
}

pub(super) fn acquire(dialect: &Dialect, ask: &Ask, limit: Duration) -> String {
    let of = match ask.claim.usage() {
        Usage::Lock => None,
        Usage::Permits { of } => Some(of),
    };
    let call = Call::new(dialect, "acquire")
        .text(ask.key.as_str())
        .text(ask.owner.as_str())
        .number(claim_number(ask.claim))
        .number_or_null(of)
        .span(ask.ttl.get())
        .number(ask.reserve);
    let call = match ask.line.place() {
        None => call.null().number(0).number(0).number(0).text(""),
        Some(place) => call
            .number(match place.stance {
                Stance::Joined => 0,
                Stance::Watching => 1,
            })
            .span(place.waiter_ttl.get())
            .span(place.handed_ttl.get())
            .number(place.ask_no)
            .text(place.inbox.as_str()),
    };
    call.text_or_null(ask.note.as_ref().and_then(|note| note.why.as_deref())).patience(limit).end()
}

/// A renewal that waits for a row that another transaction has locked, for `patience`. If that is
/// `None`, it answers at once that the row is locked.
pub(super) fn renew(dialect: &Dialect, renewal: &Renewal, patience: Option<Duration>) -> String {
    let Renewal { lease, ttl, at_least, reserve, idle } = renewal;
    let call = Call::new(dialect, "renew")
        .text(lease.key.as_str())
        .text(lease.owner.as_str())
        .span(ttl.get())
        .number_or_null(at_least.map(|token| token.get()))
        .number(*reserve)
        .truth(*idle);
    match (dialect.has_patience, patience) {
        (false, _) => call.truth(patience.is_some()).end(),
        (true, None) => call.number(0).end(),
        (true, Some(limit)) => call.patience(limit).end(),
    }
}

pub(super) fn release(
    dialect: &Dialect,
    lease: &LeaseId,
    on_release: &OnRelease,
    limit: Duration,
) -> String {
    let call = Call::new(dialect, "release").text(lease.key.as_str()).text(lease.owner.as_str());
    let call = match on_release {
        OnRelease::Free | OnRelease::Open => call.text("free").null().number(0).number(0),
        OnRelease::FreeAndWake => call.text("wake").null().number(0).number(0),
        OnRelease::KeepIfAlone { owner, ttl, reserve, .. } => {
            call.text("keep").text(owner.as_str()).span(ttl.get()).number(*reserve)
        }
        OnRelease::Downgrade { owner, ttl } => {
            call.text("downgrade").text(owner.as_str()).span(ttl.get()).number(0)
        }
    };
    call.patience(limit).end()
}

pub(super) fn inspect(dialect: &Dialect, key: &Key) -> String {
    Call::new(dialect, "inspect").text(key.as_str()).end()
}

pub(super) fn list(dialect: &Dialect, pattern: &str, after: Option<&Key>, most: u32) -> String {
    let after = after.map_or("", Key::as_str);
    Call::new(dialect, "list").text(after).text(&like(pattern)).number(most).end()
}

/// A pattern with `*` and `?` as a pattern of LIKE.
fn like(pattern: &str) -> String {
    let mut like = String::new();
    for c in pattern.chars() {
        match c {
            '*' => like.push('%'),
            '?' => like.push('_'),
            '%' | '_' | '\\' => like.extend(['\\', c]),
            c => like.push(c),
        }
    }
    like
}

pub(super) fn evict(dialect: &Dialect, key: &Key, seen: &str, limit: Duration) -> String {
    Call::new(dialect, "evict").text(key.as_str()).text(seen).patience(limit).end()
}

pub(super) fn revoke(
    dialect: &Dialect,
    key: &Key,
    (seen, words): (&str, &str),
    limit: Duration,
) -> String {
    Call::new(dialect, "revoke").text(key.as_str()).text(seen).text(words).patience(limit).end()
}

pub(super) fn resize(dialect: &Dialect, key: &Key, of: u32, limit: Duration) -> String {
    Call::new(dialect, "resize").text(key.as_str()).number(of).patience(limit).end()
}

pub(super) fn record(dialect: &Dialect, record: &ClientRecord) -> String {
    let ClientRecord { id, host, pid, user, command, ttl: _ } = record;
    let call = Call::new(dialect, "record").text(id.as_str()).text(host);
    call.number(*pid).text(user).text(command).end()
}

pub(super) fn purge(dialect: &Dialect) -> String {
    Call::new(dialect, "purge").end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::token::{ClientId, FencingToken, OwnerToken};
    use crate::core::ttl::Ttl;
    use crate::store::Line;

    #[test]
    fn a_call_has_its_arguments_in_order() {
        let text: fn(&mut String, &str) = |sql, text| sql.extend(["<", text, ">"]);
        let dialect =
            Dialect { before: "CALL s.".to_owned(), text, has_patience: true, list: None };
        let call = |dialect| {
            let call = Call::new(dialect, "f").text("a").text_or_null(None).truth(true);
            call.span(Duration::from_millis(2)).patience(Duration::from_secs(1)).end()
        };
        assert_eq!(call(&dialect), "CALL s.f(<a>,NULL,true,2000,750)");
        let without = Dialect { has_patience: false, ..dialect.clone() };
        assert_eq!(call(&without), "CALL s.f(<a>,NULL,true,2000)");
        assert_eq!(Call::new(&dialect, "f").end(), "CALL s.f()");
    }

    /// Each call of a step, with a limit of one second.
    #[test]
    fn each_step_is_called_with_its_own_values() {
        let text: fn(&mut String, &str) = |sql, text| sql.extend(["<", text, ">"]);
        let dialect = Dialect { before: String::new(), text, has_patience: true, list: None };
        let without = Dialect { has_patience: false, ..dialect.clone() };
        let (limit, ttl) = (Duration::from_secs(1), |ms| {
            Ttl::new(Duration::from_millis(ms)).expect("within bounds")
        });
        let owner = |text: &str| OwnerToken::new(text).expect("printable");
        let inbox = ClientId::new("Nn23PXTR8zL5").expect("an id");
        let ask = |claim, line| {
            let ask = Ask::new(Key::new("k").expect("a name"), owner("x"), claim, ttl(20));
            Ask { line, reserve: 4, ..ask }
        };
        let join = Line::Join {
            waiter_ttl: ttl(30),
            handed_ttl: ttl(50),
            ask_no: 6,
            inbox: inbox.clone(),
        };
        let watch = Line::Watch { waiter_ttl: ttl(30), ask_no: 1, inbox };
        let permits = Claim::Permits { want: 2, of: 3 };
        for (ask, sql) in [
            (ask(Claim::Exclusive, Line::None), "0,NULL,20000,4,NULL,0,0,0,<>,NULL,750"),
            (ask(Claim::Shared, join), "-1,NULL,20000,4,0,30000,50000,6,<Nn23PXTR8zL5>,NULL,750"),
            (ask(permits, watch), "2,3,20000,4,1,30000,30000,1,<Nn23PXTR8zL5>,NULL,750"),
        ] {
            assert_eq!(acquire(&dialect, &ask, limit), format!("acquire(<k>,<x>,{sql})"));
        }
        let lease = ask(permits, Line::None).lease();
        let at_least = FencingToken::new(9);
        let renewal = Renewal::new(lease.clone(), ttl(20));
        let renewal = Renewal { at_least, reserve: 4, idle: true, ..renewal };
        for (dialect, patience, last) in [
            (&dialect, Some(limit), "750"),
            (&dialect, None, "0"),
            (&without, Some(limit), "true"),
            (&without, None, "false"),
        ] {
            let sql = format!("renew(<k>,<x>,20000,9,4,true,{last})");
            assert_eq!(renew(dialect, &renewal, patience), sql);
        }
        let (next, opens) = (owner("next"), false);
        let downgrade = OnRelease::Downgrade { owner: next.clone(), ttl: ttl(30) };
        let keep = OnRelease::KeepIfAlone { owner: next, ttl: ttl(30), reserve: 5, opens };
        for (on_release, sql) in [
            (OnRelease::Free, "<free>,NULL,0,0"),
            (OnRelease::FreeAndWake, "<wake>,NULL,0,0"),
            (keep, "<keep>,<next>,30000,5"),
            (downgrade, "<downgrade>,<next>,30000,0"),
        ] {
            let sql = format!("release(<k>,<x>,{sql},750)");
            assert_eq!(release(&dialect, &lease, &on_release, limit), sql);
        }
    }

    #[test]
    fn a_pattern_means_the_same_in_sql() {
        for (pattern, sql) in [("*", "%"), ("a?b*", "a_b%"), ("50%_\\", "50\\%\\_\\\\")] {
            assert_eq!(like(pattern), sql);
        }
    }
}
