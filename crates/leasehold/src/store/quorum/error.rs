//! Errors that name every node.

use super::Shared;
use super::ballot::{Ballot, NodeAnswer};
use super::node::Node;
use crate::core::error::{Error, ErrorKind};

/// The text before the messages of the nodes. The command breaks the line there, and at each `|`.
const SEE: &str = "see what the nodes say:";

/// The error if no majority granted a key, for another reason than that other clients have it.
pub(super) fn no_majority<S>(shared: &Shared<S>, ballot: &Ballot) -> Error {
    let votes = ballot.votes();
    let failed = |vote: &NodeAnswer| match vote {
        NodeAnswer::Failed(error) => Some(error.kind()),
        _ => None,
    };
    let kinds: Vec<_> = votes.iter().filter_map(failed).collect();
    let is_open = |vote: &NodeAnswer| matches!(vote, NodeAnswer::Open { .. });
    // `Unknown` makes the caller release leftover grants.
    let may_be_granted = ballot.may_be_granted() || votes.iter().any(is_open);
    let kind = if may_be_granted { ErrorKind::Unknown } else { most_telling(&kinds) };
    let granted = ballot.counted();
    let said = said(shared, ballot);
    let (nodes, majority) = (votes.len(), ballot.majority());
    let next = match kind {
        ErrorKind::Unknown if granted == 0 => "any grant is released; try again",
        ErrorKind::Unknown => "the grants are released; try again",
        _ => "nothing was acquired",
    };
    Error::new(
        kind,
        format!(
            "{granted} of {nodes} nodes granted the lock and {majority} are needed; {next}; {SEE} \
             {}",
            list(said)
        ),
    )
}

/// The error if too few nodes can be used, or if a node has an error that retrying cannot fix.
pub(super) fn not_connected<S>(
    shared: &Shared<S>,
    failures: &[(usize, Error)],
    kind: ErrorKind,
) -> Error {
    let said = failures.iter().map(|(node, error)| at(&shared.nodes[*node].label, error));
    let (nodes, needed) = (shared.nodes.len(), shared.majority());
    let reached = nodes - failures.len();
    let why = if reached < needed {
        format!("and at least {needed} are needed, each a separate store")
    } else {
        "and the errors of the others will not go away by themselves".to_owned()
    };
    Error::new(
        kind,
        format!(
            "{reached} of {nodes} nodes can be used, {why}; no request was sent; {SEE} {}",
            list(said)
        ),
    )
}

/// The vote of each node, as text.
fn said<S>(shared: &Shared<S>, ballot: &Ballot) -> impl Iterator<Item = String> {
    let votes = shared.nodes.iter().zip(ballot.votes()).enumerate();
    votes.map(move |(number, (node, vote))| match vote {
        NodeAnswer::Granted(_) => match ballot.twin(number) {
            None => format!("{} granted it", node.label),
            Some(twin) => format!(
                "{} granted it, and may be the same store as {}: one of the two counts",
                node.label, shared.nodes[twin].label
            ),
        },
        NodeAnswer::Taken { .. } => format!("{}: this client does not hold it there", node.label),
        NodeAnswer::Quarantined(quarantine) => format!("{}: {quarantine}", node.label),
        NodeAnswer::Open { .. } => format!("{} has not answered", node.label),
        NodeAnswer::Failed(error) => at(&node.label, error),
    })
}

/// The error if no majority renewed a lease, although a majority may still have it.
pub(super) fn not_renewed<S>(shared: &Shared<S>, ballot: &Ballot) -> Error {
    Error::new(
        ErrorKind::Unknown,
        format!(
            "fewer than {} of {} nodes renewed the lease; the holder may act until its deadline, \
             and the client retries until then; {SEE} {}",
            ballot.majority(),
            ballot.votes().len(),
            list(said(shared, ballot))
        ),
    )
}

/// The error if it is unknown whether a majority had the lease: some nodes released it, and some
/// did not have it.
pub(super) fn not_released<S>(
    shared: &Shared<S>,
    freed: usize,
    not_held: usize,
    failures: &[(usize, Error)],
) -> Error {
    let nodes = shared.nodes.len();
    let failures = with_those_not_asked(shared, failures);
    Error::new(
        final_kind(&failures).unwrap_or(ErrorKind::Unknown),
        format!(
            "{freed} of {nodes} nodes released the lease, {not_held} did not have it and {} \
             failed; a failed node may keep the lease until its ttl ends; it is safe to release \
             again; {SEE} {}",
            nodes - freed - not_held,
            list_of(&failures)
        ),
    )
}

/// The error if no majority answered an inspection or a listing.
pub(super) fn not_seen<S>(shared: &Shared<S>, failures: &[(usize, Error)]) -> Error {
    unanswered(shared, None, "answered; nothing was changed", failures)
}

/// The error if no majority answered an eviction. Some nodes may have ended the lease.
pub(super) fn not_evicted<S>(
    shared: &Shared<S>,
    is_ended_somewhere: bool,
    failures: &[(usize, Error)],
) -> Error {
    if is_ended_somewhere || is_unknown_somewhere(failures) {
        let state = "answered the eviction; the lease may have been ended at some of them; \
                     inspect the lock and evict again";
        return unanswered(shared, Some(ErrorKind::Unknown), state, failures);
    }
    unanswered(shared, None, "answered the eviction; nothing was changed", failures)
}

/// The error if too few nodes answered a request to let go. Some may keep it.
pub(super) fn not_revoked<S>(
    shared: &Shared<S>,
    is_asked_somewhere: bool,
    failures: &[(usize, Error)],
) -> Error {
    if is_asked_somewhere || is_unknown_somewhere(failures) {
        let state = "answered the request to let go; the holder may have been asked and keeps its \
                     lease; you may safely ask again";
        return unanswered(shared, Some(ErrorKind::Unknown), state, failures);
    }
    unanswered(shared, None, "answered the request to let go; it reached no holder", failures)
}

/// Whether a request that failed may have taken effect at its node.
fn is_unknown_somewhere(failures: &[(usize, Error)]) -> bool {
    failures.iter().any(|(_, error)| error.kind() == ErrorKind::Unknown)
}

/// The nodes that failed, and the nodes without a vote, with their errors.
fn with_those_not_asked<'a, S>(
    shared: &'a Shared<S>,
    failures: &[(usize, Error)],
) -> Vec<(&'a str, Error)> {
    let of_node = |(number, node): (usize, &'a Node<S>)| {
        let failed = failures.iter().find(|(failed, _)| *failed == number);
        let error = failed.map(|(_, error)| error.clone()).or_else(|| node.no_vote())?;
        Some((&*node.label, error))
    };
    shared.nodes.iter().enumerate().filter_map(of_node).collect()
}

/// The kind of the error if no retry helps. A retry may help if at least one node was only out of
/// reach.
fn final_kind(failures: &[(&str, Error)]) -> Option<ErrorKind> {
    let is_final = failures.iter().all(|(_, error)| !error.is_retryable());
    let kinds: Vec<_> = failures.iter().map(|(_, error)| error.kind()).collect();
    is_final.then(|| most_telling(&kinds))
}

/// The error if no majority answered. `kind`: the kind, if it does not follow from the failures.
fn unanswered<S>(
    shared: &Shared<S>,
    kind: Option<ErrorKind>,
    state: &str,
    failures: &[(usize, Error)],
) -> Error {
    let failures = with_those_not_asked(shared, failures);
    let kind = kind.or_else(|| final_kind(&failures)).unwrap_or(ErrorKind::Unavailable);
    Error::new(
        kind,
        format!(
            "fewer than {} of {} nodes {state}; {SEE} {}",
            shared.majority(),
            shared.nodes.len(),
            list_of(&failures)
        ),
    )
}

fn list_of(failures: &[(&str, Error)]) -> String {
    list(failures.iter().map(|(label, error)| at(label, error)))
}

/// The kind that best says what to do if nothing was granted. Kinds that no retry fixes come first.
fn most_telling(kinds: &[ErrorKind]) -> ErrorKind {
    let order = [ErrorKind::Config, ErrorKind::Denied, ErrorKind::Unsupported];
    order.into_iter().find(|kind| kinds.contains(kind)).unwrap_or(ErrorKind::Unavailable)
}

/// The message of a node, for a place that already shows its name.
pub(super) fn without_label<'a>(label: &str, error: &'a Error) -> &'a str {
    let text = error.message();
    text.strip_prefix(label).and_then(|text| text.strip_prefix(": ")).unwrap_or(text)
}

/// The message of a node, with its name. The list shows the name of the lock only once.
fn at(label: &str, error: &Error) -> String {
    let text = error.message();
    if text.starts_with(label) { text.to_owned() } else { format!("{label}: {text}") }
}

fn list(said: impl Iterator<Item = String>) -> String {
    said.collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests;
