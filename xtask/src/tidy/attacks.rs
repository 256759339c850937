//! The recorded attacks, and the tests that repeat them.

use super::Finding;
use super::planted::has_test;
use super::repository::Repository;
use crate::record::Record;
use crate::trust::attacks::{self, RECORD};

/// Every test that `trust/attacks.json` names exists: renaming a test requires renaming it there.
pub(super) fn every_attack_names_tests_that_exist(repository: &Repository) -> Vec<Finding> {
    let Some(file) = repository.file(RECORD) else { return Vec::new() };
    let record = Record::read(RECORD, &file.text, "leasehold.trust.attacks.v1");
    let attacks = match record.and_then(|record| attacks::read(&record)) {
        Ok(attacks) => attacks,
        Err(complaint) => return vec![Finding::new(RECORD, 0, complaint)],
    };
    let tests = attacks.iter().flat_map(|attack| &attack.tests);
    tests
        .filter(|test| !exists(repository, test))
        .map(|test| Finding::new(RECORD, 0, format!("there is no test `{test}`")))
        .collect()
}

/// Whether `PACKAGE TEST_PATH` seems to name a test.
fn exists(repository: &Repository, test: &str) -> bool {
    test.split_once(' ').is_some_and(|(package, path)| has_test(repository, package, path))
}

#[cfg(test)]
mod tests {
    use super::super::assert_finds;
    use super::*;

    #[test]
    fn tests_that_do_not_exist_are_found() {
        let record = |test: &str| {
            format!(
                r#"{{"schema":"leasehold.trust.attacks.v1","attacks":[
                    {{"attack":"a","was":"b","tests":["{test}"]}}]}}"#
            )
        };
        // the test that is named, whether it exists
        let table = [
            ("leasehold store::tests::a_lock_locks", true),
            ("leasehold a_lock_locks", true),
            ("leasehold-cli a_lock_locks", false),
            ("leasehold a_lock", false),
            ("a_lock_locks", false),
        ];
        for (test, exists) in table {
            let text = record(test);
            let files = [
                (RECORD, text.as_str()),
                ("crates/leasehold/src/store.rs", "mod tests {\n    fn a_lock_locks() {}\n}\n"),
            ];
            let expected: &[&str] = if exists { &[] } else { &["trust/attacks.json:0"] };
            assert_finds(every_attack_names_tests_that_exist, &files, expected);
        }
        assert_finds(
            every_attack_names_tests_that_exist,
            &[(RECORD, "{")],
            &["trust/attacks.json:0"],
        );
    }
}
