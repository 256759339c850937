//! The rows of the procedures as answers of the contract.

use std::sync::Arc;
use std::time::Duration;

use super::call::claim_of;
use super::errors::{row_locked, strange};
use super::row::Row;
use super::text::decode;
use crate::core::claim::{Claim, Usage};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::moment::WallTime;
use crate::core::token::{ClientId, FencingBlock, FencingToken, client_of};
use crate::store::{
    Acquired, Ask, ClientRecord, Evicted, Holder, PAGE_KEYS_MAX, Page, PermitsTaken, Refusal,
    Released, Renewed, Revocation, Revoked, Snapshot, Waiter, line_is_full, other_usage,
};

/// Whether the answer is one row that says yes.
pub(super) fn is_true(rows: &[Row]) -> bool {
    rows.first().is_some_and(|row| Columns(row).truth(0))
}

/// One row, column by column.
struct Columns<'a>(&'a Row);

impl<'a> Columns<'a> {
    fn text(&self, at: usize) -> Option<&'a str> {
        self.0.get(at)?.as_deref()
    }

    fn number<T: std::str::FromStr>(&self, at: usize) -> Option<T> {
        self.text(at)?.parse().ok()
    }

    fn truth(&self, at: usize) -> bool {
        // Engines write a truth value in two ways.
        matches!(self.text(at), Some("t" | "1"))
    }

    fn span(&self, at: usize) -> Duration {
        Duration::from_micros(self.number(at).unwrap_or(0))
    }

    /// A block of fencing tokens. This column has the first token, and the next column has how
    /// many.
    fn block(&self, at: usize) -> Option<FencingBlock> {
        let first = FencingToken::new(self.number(at)?)?;
        Some(FencingBlock { first, count: self.number(at + 1).filter(|count| *count > 0)? })
    }
}

/// The only row of an answer, and the status in its first column.
fn only(rows: &[Row]) -> Result<(&str, Columns<'_>), Error> {
    let [row] = rows else { return Err(strange("not one row")) };
    let columns = Columns(row);
    Ok((columns.text(0).ok_or_else(|| strange("no status"))?, columns))
}

pub(super) fn acquired(ask: &Ask, rows: &[Row]) -> Result<Acquired, Error> {
    let (status, row) = only(rows)?;
    match status {
        "granted" => Ok(Acquired::Granted { fencing: row.block(1) }),
        "taken" => Ok(Refusal::taken(Some(row.span(3)), row.number(4).unwrap_or_default()).into()),
        "full" => Err(line_is_full(&ask.key)),
        "used" => {
            let used = row.number(5).map_or(Usage::Lock, |of| Usage::Permits { of });
            Err(other_usage(&ask.key, used, ask.claim))
        }
        _ => Err(strange("an acquire")),
    }
}

/// The client that holds the key and was told that another client waits.
pub(super) fn wanted_of(rows: &[Row]) -> Option<ClientId> {
    ClientId::new(Columns(rows.first()?).text(6)?)
}

pub(super) fn renewed(rows: &[Row]) -> Result<Renewed, Error> {
    let (status, row) = only(rows)?;
    match status {
        "renewed" => Ok(Renewed::Renewed {
            fencing: row.block(1),
            raised_from: row.block(3),
            wanted: row.truth(5),
            revoked: revocation(row.text(6)),
        }),
        "lost" => Ok(Renewed::Lost),
        "kept" => Err(row_locked()),
        _ => Err(strange("a renewal")),
    }
}

fn revocation(text: Option<&str>) -> Option<Arc<Revocation>> {
    text.and_then(|text| Revocation::read(&decode(text))).map(Arc::new)
}

pub(super) fn released(rows: &[Row]) -> Result<Released, Error> {
    let (status, row) = only(rows)?;
    match status {
        "freed" => Ok(Released::Freed),
        "handed_over" => Ok(Released::HandedOver),
        "kept" => Ok(Released::Kept { fencing: row.block(1) }),
        "not_held" => Ok(Released::NotHeld),
        _ => Err(strange("a release")),
    }
}

pub(super) fn evicted(rows: &[Row]) -> Result<Evicted, Error> {
    match only(rows)?.0 {
        "evicted" => Ok(Evicted::Evicted),
        "changed" => Ok(Evicted::Changed),
        _ => Err(strange("an eviction")),
    }
}

pub(super) fn revoked(rows: &[Row]) -> Result<Revoked, Error> {
    match only(rows)?.0 {
        "asked" => Ok(Revoked::Asked),
        "changed" => Ok(Revoked::Changed),
        _ => Err(strange("a request to let go")),
    }
}

pub(super) fn resized(key: &Key, of: u32, rows: &[Row]) -> Result<Option<u32>, Error> {
    let (status, row) = only(rows)?;
    match status {
        "resized" => Ok(row.number(1)),
        "used" => Err(other_usage(key, Usage::Lock, Claim::Permits { want: 1, of })),
        _ => Err(strange("a change of permits")),
    }
}

pub(super) fn snapshot(rows: &[Row]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let mut permits = None;
    for row in rows.iter().map(Columns) {
        match row.text(0) {
            Some("key") => {
                permits = row.number(2);
                let taken = row.number(4).unwrap_or_default();
                snapshot.permits = permits.map(|of| PermitsTaken::new(taken, of));
                snapshot.fencing = row.number(6).and_then(FencingToken::new);
                snapshot.waiting = row.number(7).unwrap_or_default();
            }
            Some("holder") => snapshot.holders.push(holder(&row, permits)),
            Some("waiter") => snapshot.waiters.push(waiter(&row, permits)),
            _ => {}
        }
    }
    snapshot
}

fn holder(row: &Columns<'_>, permits: Option<u32>) -> Holder {
    let mut holder = Holder::new(row.text(1).unwrap_or_default());
    holder.claim = claim_of(row.number(2).unwrap_or_default(), permits);
    holder.since = row.number(3).map(WallTime::from_unix_micros);
    holder.ttl = Some(row.span(4));
    holder.ttl_left = Some(row.span(5));
    holder.fencing = row.block(6);
    holder.why = row.text(8).map(decode);
    holder.idle = row.truth(9);
    holder.revoked = revocation(row.text(10));
    holder.client = client(row);
    holder
}

fn waiter(row: &Columns<'_>, permits: Option<u32>) -> Waiter {
    Waiter {
        id: client_of(row.text(1).unwrap_or_default().as_bytes()),
        client: client(row),
        since: row.number(3).map(WallTime::from_unix_micros),
        claim: claim_of(row.number(2).unwrap_or_default(), permits),
    }
}

/// The record of the client of a holder or waiter, if it left one.
fn client(row: &Columns<'_>) -> Option<ClientRecord> {
    let mut record = ClientRecord::new(client_of(row.text(1)?.as_bytes())?);
    record.host = decode(row.text(11)?);
    record.pid = row.number(12)?;
    record.user = decode(row.text(13)?);
    record.command = decode(row.text(14)?);
    Some(record)
}

pub(super) fn page(rows: &[Row]) -> Page {
    let mut page = Page::default();
    let mut last = None;
    for row in rows.iter().map(Columns) {
        let Some(name) = row.text(0) else { continue };
        if page.keys.len() == PAGE_KEYS_MAX {
            page.next = last;
            return page;
        }
        // Skip a name that no lock can have: of a probe, or written by another program.
        page.keys.extend(Key::new(name).ok().filter(|_| row.truth(1)));
        last = Some(Key::cursor(name));
    }
    // The procedures send one row more than a page has keys.
    let is_cut = rows.len() > PAGE_KEYS_MAX;
    let is_end = rows.last().is_none_or(|row| Columns(row).truth(2));
    page.next = last.filter(|_| is_cut || !is_end);
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::error::ErrorKind;
    use crate::core::token::OwnerToken;
    use crate::core::ttl::Ttl;
    use crate::store::sql::errors::is_row_locked;

    /// A row of these columns, of which `-` is null.
    fn row(columns: &str) -> Row {
        columns.split(' ').map(|text| (text != "-").then(|| text.to_owned())).collect()
    }

    fn block(first: u64, count: u32) -> Option<FencingBlock> {
        FencingToken::new(first).map(|first| FencingBlock { first, count })
    }

    #[test]
    fn an_ask_is_answered_by_the_columns_of_its_row() {
        let owner = OwnerToken::new("x").expect("printable");
        let permits = Claim::Permits { want: 1, of: 3 };
        let ask = Ask::new(Key::new("k").expect("a name"), owner, permits, Ttl::MIN);
        let answer = |columns| acquired(&ask, &[row(columns)]);
        for (columns, expected) in [
            ("granted 41 2 0 0 - -", block(41, 2)),
            ("granted 41 0 0 0 - -", None),
            ("granted - - 0 0 - -", None),
        ] {
            let granted = answer(columns).expect("answered");
            assert!(
                matches!(granted, Acquired::Granted { fencing } if fencing == expected),
                "{columns}: {granted:?}"
            );
        }
        let Ok(Acquired::Refused(refusal)) = answer("taken - - 5000 7 - -") else {
            panic!("it is taken");
        };
        assert_eq!((refusal.retry_in, refusal.ahead), (Some(Duration::from_millis(5)), 7));
        for (columns, kind) in [
            ("full - - 0 0 - -", ErrorKind::Unavailable),
            ("used - - 0 0 2 -", ErrorKind::Config),
            ("other - - 0 0 - -", ErrorKind::Unknown),
            ("- - - 0 0 - -", ErrorKind::Unknown),
        ] {
            assert_eq!(
                answer(columns).map_err(|error| error.kind()).err(),
                Some(kind),
                "{columns}"
            );
        }
        for rows in [vec![], vec![row("granted 41 2"); 2]] {
            let strange = acquired(&ask, &rows).expect_err("not one row");
            assert_eq!(strange.kind(), ErrorKind::Unknown, "nobody knows whether it took effect");
        }
        let told = wanted_of(&[row("taken - - 0 0 - Nn23PXTR8zL5")]);
        assert_eq!(told, ClientId::new("Nn23PXTR8zL5"));
    }

    #[test]
    fn a_renewal_is_answered_by_the_columns_of_its_row() {
        for (columns, fencing, raised_from, wanted) in [
            ("renewed 41 2 - - f -", block(41, 2), None, false),
            ("renewed 50 1 41 2 1 -", block(50, 1), block(41, 2), true),
            ("renewed - - - - t -", None, None, true),
        ] {
            let expected = Renewed::Renewed { fencing, raised_from, wanted, revoked: None };
            assert_eq!(renewed(&[row(columns)]).expect("answered"), expected, "{columns}");
        }
        let kept = renewed(&[row("kept - - - - f -")]).expect_err("its row is locked");
        assert!(is_row_locked(&kept), "{kept}");
        let kept = released(&[row("kept 41 2")]).expect("answered");
        assert_eq!(kept, Released::Kept { fencing: block(41, 2) });
    }

    /// The rows of a listing.
    fn listed(names: &[String], is_end: bool) -> Vec<Row> {
        let truth = |is_true| Some(if is_true { "t" } else { "f" }.to_owned());
        names.iter().map(|name| vec![Some(name.clone()), truth(true), truth(is_end)]).collect()
    }

    #[test]
    fn a_listing_goes_on_behind_the_last_key_of_a_page_until_there_is_none() {
        let names: Vec<_> = (0..=PAGE_KEYS_MAX).map(|at| format!("key-{at:04}")).collect();
        // Another program wrote a name that no client of Leasehold can ask for.
        let strange: Vec<_> = [&["\n".to_owned()], &names[1..]].concat();
        let probe = ["leasehold:probe:x".to_owned()];
        for (rows, keys, next) in [
            (listed(&names[..3], true), 3, None),
            (listed(&names[..3], false), 3, Some("key-0002")),
            (listed(&names[..PAGE_KEYS_MAX], true), PAGE_KEYS_MAX, None),
            (listed(&names, true), PAGE_KEYS_MAX, Some("key-0999")),
            (listed(&strange, true), PAGE_KEYS_MAX, Some("key-1000")),
            (listed(&probe, false), 0, Some("leasehold:probe:x")),
        ] {
            let page = page(&rows);
            assert_eq!((page.keys.len(), page.next.as_ref().map(Key::as_str)), (keys, next));
        }
    }

    #[test]
    fn a_server_sends_no_more_of_a_listing_than_a_page_and_one_key() {
        let limit = format!("ORDER BY k.key LIMIT {};", PAGE_KEYS_MAX + 1);
        assert!(include_str!("../postgres/sql/browse.sql").contains(&limit));
        let limit = limit.replace("k.key", "k.name");
        assert!(include_str!("../mysql/sql/browse.sql").contains(&limit));
    }
}
