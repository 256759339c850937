//! Each fencing token is used by the owner for which it was reserved.

use std::collections::HashMap;

use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{OfKey, Story};
use crate::history::window::Window;

/// Checks two rules:
///
/// 1. Before a window began, the server told its owner that the window's fencing token is reserved
///    for it.
/// 2. Of two windows with the same owner token, the later one has the higher fencing token.
///
/// The first rule applies only to keys whose history contains reservations.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (key, of_key) in &story.keys {
        let is_told = of_key.served.iter().any(|served| served.block.is_some());
        let mut latest: HashMap<&str, (&Window<'_>, u64)> = HashMap::new();
        for window in &of_key.windows {
            let Some(fence) = window.fence else { continue };
            let (name, token) = (window.name(), window.token);
            if is_told && !was_reserved(of_key, window, fence) {
                let text = format!("`{key}`: {name} has {fence}, not reserved for {token}");
                violations.push(violation(window, text, true));
            }
            if let Some((before, last)) = latest.insert(token, (window, fence))
                && last >= fence
            {
                let text =
                    format!("`{key}`: {name} has {fence}, after {last} of {}", before.name());
                // A counter that fell back reserves lower numbers.
                let promised = story.weather.fencing_promised(window.began);
                violations.push(violation(window, text, promised));
            }
        }
    }
    violations
}

fn was_reserved(of_key: &OfKey<'_>, window: &Window<'_>, fence: u64) -> bool {
    let until = of_key.served.partition_point(|served| served.at <= window.began);
    // Search from the newest step, since a lease is used soon after its grant.
    of_key.served[..until].iter().rev().any(|served| {
        served.after == Some(window.token) && served.block.is_some_and(|block| block.has(fence))
    })
}

fn violation(window: &Window<'_>, text: String, promised: bool) -> Violation {
    Violation { invariant: Invariant::FenceReserved, at: window.began, text, promised }
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::FenceReserved;
    use crate::history::build::{ASK, JOIN, Tale, tale};
    use crate::history::event::Request::{Keep, Release};

    /// Owner A has the numbers 7 to 9.
    fn reserved() -> Tale {
        tale().locks(1).serves(JOIN, "A", "", "A").reserves(7, 3).gets(1, "A", 7, 9.9)
    }

    #[test]
    fn numbers_of_the_own_block_pass() {
        let tale = reserved().at(1.0).gives_up("A").takes(1, "A", 8, 9.9).at(2.0).gives_up("A");
        tale.takes(1, "A", 9, 9.9).at(3.0).gives_up("A").passes();
    }

    #[test]
    fn a_number_beyond_the_block_is_found() {
        let tale = reserved().at(1.0).gives_up("A").takes(1, "A", 10, 9.9).at(2.0).gives_up("A");
        tale.breaks(FenceReserved);
    }

    #[test]
    fn a_number_of_a_block_that_is_reserved_later_is_found_and_one_of_the_new_block_passes() {
        let tale = |from, to| {
            let tale = reserved().at(1.0).gives_up("A").at(from).takes(1, "A", 20, 9.9);
            tale.at(to).serves(Keep, "A", "A", "A").reserves(20, 5).at(2.0).gives_up("A")
        };
        tale(1.1, 1.2).breaks(FenceReserved);
        let tale = reserved().at(1.0).gives_up("A").serves(Keep, "A", "A", "A").reserves(20, 5);
        tale.at(1.1).takes(1, "A", 20, 9.9).at(2.0).gives_up("A").passes();
    }

    #[test]
    fn a_number_that_falls_within_the_block_is_found() {
        let tale = reserved().at(1.0).gives_up("A").takes(1, "A", 9, 9.9).at(2.0).gives_up("A");
        let found = tale.takes(1, "A", 8, 9.9).at(3.0).gives_up("A").violations();
        assert!(found.iter().any(|one| one.invariant == FenceReserved), "{found:?}");
    }

    #[test]
    fn the_number_of_another_owner_is_found_and_that_of_a_hand_over_passes() {
        let tale = |fence| {
            let tale = reserved().at(1.0).gives_up("A").locks(2);
            let tale = tale.serves(Release, "A", "A", "B").reserves(10, 1).at(1.1);
            tale.gets(2, "B", fence, 9.9).at(2.0).gives_up("B")
        };
        tale(9).breaks(FenceReserved);
        tale(10).passes();
    }

    #[test]
    fn a_history_that_does_not_tell_blocks_passes() {
        tale().takes(1, "A", 7, 9.9).serves(ASK, "A", "", "A").gives_up("A").passes();
    }
}
