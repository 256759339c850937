//! Words that the documents and the code must not contain.

use super::Finding;
use super::repository::Repository;

/// Parts of paths on the machine of one author, which mean nothing on other machines.
///
/// Each is in two halves, so that the rule does not find this file.
const BANNED: [(&str, &str); 6] = [
    ("/w", "ork/"),
    ("/f", "arm/"),
    (".lib", "rary/"),
    ("sub", "agent"),
    ("work", "place"),
    ("/tmp/h", "-"),
];

/// A reader needs nothing but this repository to understand and use everything in it.
pub(super) fn nothing_is_said_of_the_makers_machine(repository: &Repository) -> Vec<Finding> {
    let banned = BANNED.map(|(start, end)| format!("{start}{end}"));
    let mut findings = Vec::new();
    for file in repository.files() {
        for (index, line) in file.text.lines().enumerate() {
            for word in banned.iter().filter(|word| line.contains(*word)) {
                let message = format!("`{word}` means nothing to others");
                findings.push(Finding::new(&file.path, index + 1, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::assert_finds;
    use super::*;

    #[test]
    fn paths_of_one_machine_are_found_in_every_file() {
        let path = format!("/{}ork/x", "w");
        assert_finds(
            nothing_is_said_of_the_makers_machine,
            &[("a.md", "network/x, workspace"), ("b.md", &format!("\nsee {path}"))],
            &["b.md:2"],
        );
    }
}
