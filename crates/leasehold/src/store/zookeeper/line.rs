//! The nodes of a lock, as one read shows them. The first has the lock, and the others wait.

use super::names::{number, place, token};
use super::rpc::Stat;
use crate::core::error::{Error, ErrorKind};
use crate::core::token::OwnerToken;

/// The nodes of a lock, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    nodes: Vec<String>,
    /// The numbers of the node of the lock.
    stat: Stat,
}

impl Line {
    /// The line from the children of the node of a lock.
    ///
    /// # Errors
    ///
    /// `Config` if they are not the nodes of a lock, or if their numbers have overflowed.
    pub(super) fn of((mut nodes, stat): (Vec<String>, Stat)) -> Result<Self, Error> {
        let refuse = |message: String| Error::new(ErrorKind::Config, message);
        if let Some(other) = nodes.iter().find(|node| number(node).is_none()) {
            let message = format!(
                "the node of this name is not a lock, since it has the child `{}`; nothing was \
                 changed; use another name, or another path in the URL",
                other.escape_debug()
            );
            return Err(refuse(message));
        }
        if nodes.iter().any(|node| number(node).is_some_and(has_run_over)) {
            let message = "2147483647 clients have asked for this lock while it was never free, so \
                           ZooKeeper's numbers have overflowed; nothing was changed; use another \
                           name, or let the lock be free for a minute";
            return Err(refuse(message.to_owned()));
        }
        nodes.sort_unstable_by(|a, b| number(a).cmp(&number(b)).then_with(|| a.cmp(b)));
        Ok(Self { nodes, stat })
    }

    pub(super) fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// The node that has the lock.
    pub(super) fn first(&self) -> Option<&str> {
        self.nodes.first().map(String::as_str)
    }

    /// How many clients wait.
    pub(super) fn waiting(&self) -> u32 {
        u32::try_from(self.nodes.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    pub(super) fn position(&self, node: &str) -> Option<usize> {
        self.nodes.iter().position(|it| it == node)
    }

    /// The nodes of an owner: one, except for a while after answers were lost.
    pub(super) fn nodes_of(&self, owner: &OwnerToken) -> impl Iterator<Item = &str> {
        let prefix = place(owner);
        let is_its = move |node: &&str| {
            node.strip_prefix(&prefix).is_some_and(|it| number(node) == Some(it))
        };
        self.nodes.iter().map(String::as_str).filter(is_its)
    }

    /// The first node of an owner, but not `except`.
    pub(super) fn node_of(&self, owner: &OwnerToken, except: &str) -> Option<&str> {
        self.nodes_of(owner).find(|node| *node != except)
    }

    /// The owner of the lock, if it has the form of an owner token.
    pub(super) fn holder(&self) -> Option<OwnerToken> {
        OwnerToken::new(token(self.first()?)).ok()
    }

    /// Whether this node was alone when it was made. If so, no earlier holder made a later change.
    pub(super) fn is_alone_since(&self, made: Stat) -> bool {
        self.nodes.len() == 1 && self.stat.children_changed == made.created
    }
}

/// Whether the numbers of a lock are used up. After 2147483647, some versions of ZooKeeper give
/// negative numbers, and others repeat this number.
fn has_run_over(number: &str) -> bool {
    !number.parse::<i32>().is_ok_and(|number| (0..i32::MAX).contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(nodes: &[&str]) -> Result<Line, Error> {
        Line::of((nodes.iter().map(|node| (*node).to_owned()).collect(), Stat::default()))
    }

    #[test]
    fn nodes_are_in_the_order_of_their_numbers_for_all_clients() {
        let owner = OwnerToken::new("a").expect("printable");
        let line = line(&[
            "_c_a-lock-0000000009",
            "_c_6fa459ea-ee8a-3ca4-894e-db77e160355e-lock-0000000003",
            "lock-0000000010",
            "_c_ab-lock-0000000004",
            "_c_a-lock-x-lock-0000000005",
        ]);
        let line = line.expect("a lock");
        let numbers: Vec<_> = line.nodes().iter().filter_map(|node| number(node)).collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
        assert_eq!(line.waiting(), 4);
        let holder = line.holder().expect("a token");
        assert_eq!(holder.as_str(), "6fa459ea-ee8a-3ca4-894e-db77e160355e");
        let mine = line.node_of(&owner, "").expect("it has one");
        assert_eq!((mine, line.position(mine)), ("_c_a-lock-0000000009", Some(3)));
        assert_eq!(line.node_of(&owner, mine), None);
    }

    #[test]
    fn a_node_was_alone_if_no_other_one_was_made_or_deleted_since() {
        let made = Stat { created: 7, ..Stat::default() };
        let is_alone = |nodes: &[&str], children_changed| {
            let stat = Stat { children_changed, ..Stat::default() };
            let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
            Line::of((nodes, stat)).expect("a lock").is_alone_since(made)
        };
        let (one, ahead) = ("_c_a-lock-0000000009", "_c_b-lock-0000000008");
        assert!(is_alone(&[one], 7));
        assert!(!is_alone(&[one], 8), "one was ahead of it, and has left since");
        assert!(!is_alone(&[one, ahead], 7), "one is ahead of it");
    }

    #[test]
    fn children_that_are_no_places_are_no_lock() {
        for (nodes, part) in [
            (&["locks", "leases"][..], "not a lock"),
            (&["_c_a-lock-0000000001", "x\ny"], "`x\\ny`"),
            (&["_c_a-lock--2147483648"], "overflowed"),
            (&["_c_a-lock-2147483647"], "overflowed"),
        ] {
            let error = line(nodes).expect_err("no lock");
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(part), "{error}");
        }
        assert_eq!(line(&[]).expect("free").first(), None);
    }
}
