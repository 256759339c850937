//! The faults that cannot be injected on this machine, and the reason for each.

use std::collections::BTreeMap;

use super::kind::Kind;

/// The faults of a run, and those that are no part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parted {
    /// The faults to inject.
    pub kinds: Vec<Kind>,
    /// The names of the others, and the reason for each.
    pub left_out: BTreeMap<String, String>,
}

/// Parts the faults into those that can be injected here and the others. `no_disk` says why no disk
/// can be mounted here, or returns `None`. It is asked only if a fault needs a disk.
#[must_use]
pub fn part(kinds: Vec<Kind>, no_disk: impl FnOnce() -> Option<String>) -> Parted {
    let reason = kinds.contains(&Kind::DiskFull).then(no_disk).flatten();
    let Some(reason) = reason else { return Parted { kinds, left_out: BTreeMap::new() } };
    let reason = format!("no disk can be mounted here: {reason}");
    let left_out = BTreeMap::from([(Kind::DiskFull.name().to_owned(), reason)]);
    let kinds = kinds.into_iter().filter(|kind| *kind != Kind::DiskFull).collect();
    Parted { kinds, left_out }
}

/// The lines that say which faults are no part of the run.
pub fn lines(left_out: &BTreeMap<String, String>) -> impl Iterator<Item = String> {
    left_out.iter().map(|(name, reason)| format!("`{name}` is not part of this run: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_needs_a_right_is_left_out_by_name() {
        let both = || vec![Kind::Reset, Kind::DiskFull];
        let parted = part(both(), || None);
        assert_eq!((parted.kinds, parted.left_out.len()), (both(), 0));
        let parted = part(both(), || Some("permission denied".to_owned()));
        assert_eq!(parted.kinds, [Kind::Reset]);
        let lines: Vec<_> = lines(&parted.left_out).collect();
        let expected = "`disk-full` is not part of this run: no disk can be mounted here: \
                        permission denied";
        assert_eq!(lines, [expected]);
    }

    #[test]
    fn nothing_is_mounted_for_a_run_without_such_a_fault() {
        let parted = part(vec![Kind::Reset], || unreachable!("no fault needs a disk"));
        assert_eq!((parted.kinds, parted.left_out.len()), (vec![Kind::Reset], 0));
    }
}
