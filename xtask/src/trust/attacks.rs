//! Attacks by outsiders: what they tried, what happened, and the tests that repeat it.

use crate::record::Record;

/// The record.
pub(crate) const RECORD: &str = "trust/attacks.json";

/// One attack.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Attack {
    /// The attempt of the attackers.
    pub(crate) attack: String,
    /// The result at that time.
    pub(crate) was: String,
    /// `PACKAGE TEST_PATH` of each test that repeats it.
    pub(crate) tests: Vec<String>,
}

/// Reads the attacks of a record.
pub(crate) fn read(record: &Record) -> Result<Vec<Attack>, String> {
    let read = |one: Record| {
        let attack = one.text("attack")?;
        let tests = one.texts("tests")?;
        if tests.is_empty() {
            return Err(format!("{RECORD}: no test does this again: {attack}"));
        }
        Ok(Attack { attack, was: one.text("was")?, tests })
    };
    record.list("attacks")?.into_iter().map(read).collect()
}

/// The table of attacks.
pub(super) fn table(record: Option<&Record>) -> Result<String, String> {
    let attacks = record.map_or(Ok(Vec::new()), read)?;
    if attacks.is_empty() {
        return Ok("None is on record.\n".to_owned());
    }
    let mut table = "| Attack | What happened then | Tests |\n|---|---|---|\n".to_owned();
    for one in attacks {
        let tests: Vec<String> = one.tests.iter().map(|test| format!("`{test}`")).collect();
        table += &format!("| {} | {} | {} |\n", one.attack, one.was, tests.join("<br>"));
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(tests: &str) -> Record {
        let text = format!(
            r#"{{"schema":"leasehold.trust.attacks.v1","attacks":[
                {{"attack":"a fork","was":"two holders","tests":{tests}}}]}}"#
        );
        Record::read(RECORD, &text, "leasehold.trust.attacks.v1").expect("a record")
    }

    #[test]
    fn an_attack_is_shown_with_its_tests() {
        let table = table(Some(&record(r#"["leasehold a::b", "xtask c"]"#))).expect("a table");
        assert!(
            table.ends_with("| a fork | two holders | `leasehold a::b`<br>`xtask c` |\n"),
            "{table}"
        );
    }

    #[test]
    fn an_attack_that_no_test_repeats_is_refused() {
        for tests in ["[]", "[1]", "null"] {
            let error = table(Some(&record(tests))).expect_err(tests);
            assert!(error.contains(RECORD), "{error}");
        }
    }
}
