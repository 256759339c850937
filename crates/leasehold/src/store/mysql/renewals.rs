//! Renewals of many leases, in one call and one transaction. A call for each lease would cost a
//! commit and a packet each.

use super::text::{read_hex, write_hex};
use crate::store::Renewal;
use crate::store::sql::Row;

/// An entry of the list.
pub(super) fn entry(renewal: &Renewal) -> String {
    let Renewal { lease, ttl, at_least, reserve, idle } = renewal;
    let mut entry = "[\"".to_owned();
    write_hex(&mut entry, lease.key.as_str());
    entry.push_str("\",\"");
    write_hex(&mut entry, lease.owner.as_str());
    let at_least = at_least.map_or_else(|| "null".to_owned(), |token| token.get().to_string());
    let (ttl_us, idle) = (ttl.get().as_micros(), u8::from(*idle));
    entry + &format!("\",{ttl_us},{at_least},{reserve},{idle}]")
}

/// The call for a list.
pub(super) fn call(entries: &[&str]) -> String {
    format!("CALL leasehold_renew_all('[{}]')", entries.join(","))
}

/// The row of each renewal, in the order of the list. A line that is not as it should be becomes a
/// row without columns.
pub(super) fn rows(answer: &[Row]) -> Vec<Row> {
    let text = answer.first().and_then(|row| row.first()?.as_deref()).unwrap_or_default();
    text.lines().map(|line| row(line).unwrap_or_default()).collect()
}

fn row(line: &str) -> Option<Row> {
    let mut row: Row = line.split(' ').map(|it| (it != "-").then(|| it.to_owned())).collect();
    // Any bytes may be in a request to let go, so it comes as digits.
    if let Some(request) = row.get_mut(6)?.take() {
        row[6] = Some(read_hex(&request)?);
    }
    Some(row)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::core::claim::Claim;
    use crate::core::key::Key;
    use crate::core::token::{FencingToken, OwnerToken};
    use crate::core::ttl::Ttl;
    use crate::store::LeaseId;

    #[test]
    fn a_list_has_the_values_of_each_renewal() {
        let lease = LeaseId {
            key: Key::new("a'\u{e9}").expect("a name"),
            owner: OwnerToken::new("x").expect("printable"),
            claim: Claim::Exclusive,
        };
        let ttl = Ttl::new(Duration::from_millis(20)).expect("within bounds");
        let one = Renewal::new(lease, ttl);
        let other = Renewal {
            at_least: FencingToken::new(9),
            reserve: 4,
            idle: true,
            ..Renewal::new(one.lease.clone(), ttl)
        };
        let entries = [entry(&one), entry(&other)];
        assert_eq!(
            call(&[&entries[0], &entries[1]]),
            "CALL leasehold_renew_all('[[\"6127c3a9\",\"78\",20000,null,0,0],\
             [\"6127c3a9\",\"78\",20000,9,4,1]]')"
        );
    }

    #[test]
    fn an_answer_has_a_row_for_each_line() {
        let answer = |text: &str| vec![vec![Some(text.to_owned())]];
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            rows(&answer("lost - - - - 0 -\nrenewed 7 2 - - 1 C3A90A")),
            [
                vec![some("lost"), None, None, None, None, some("0"), None],
                vec![
                    some("renewed"),
                    some("7"),
                    some("2"),
                    None,
                    None,
                    some("1"),
                    some("\u{e9}\n")
                ],
            ]
        );
        let latin = rows(&answer("renewed 7 2 - - 1 E9"));
        assert_eq!(latin[0][6], some("\u{fffd}"), "somebody wrote it by hand");
        for odd in ["lost", "renewed 7 2 - - 1 F"] {
            let both = rows(&answer(&format!("{odd}\nlost - - - - 0 -")));
            assert_eq!((both[0].len(), both[1].len()), (0, 7), "{odd}");
        }
        assert_eq!(rows(&answer("")), Vec::<Row>::new());
        assert!(rows(&[]).is_empty() && rows(&[vec![None]]).is_empty());
    }
}
