//! The lease record: the message of the commit to which the lease reference points. `docs/design/writer-lease.md` has the format.

use std::time::Duration;

use git2::{Oid, Repository};

/// The record of a writer lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Whether the lease is held; otherwise it was handed over.
    pub(super) is_held: bool,
    /// How often the lease was acquired.
    pub(super) epoch: u64,
    /// The holder: a random id, different for each process and start.
    pub(super) holder: String,
    /// The holder's host name, for operators.
    pub(super) host: String,
    /// How long a server must see the reference unchanged before it may take the lease.
    pub(super) duration: Duration,
}

/// The prefix of lease references.
pub const LEASES: &str = "refs/gitcd/lease/";

/// Error for a reference that does not point to a lease.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{oid} is not a lease: {problem}")]
pub(super) struct NoRecord {
    /// The object that it points to.
    pub(super) oid: Oid,
    /// What is wrong.
    pub(super) problem: String,
}

const FORMAT: &str = "1";
/// The longest duration that is accepted.
pub(super) const LONGEST: Duration = Duration::from_hours(24);

impl Record {
    /// Returns the message of a commit that `left` more commits of its chain follow.
    pub(super) fn message(&self, branch: &str, left: usize) -> String {
        let Self { is_held, epoch, holder, host, duration } = self;
        let state = if *is_held { "held" } else { "released" };
        format!(
            "writer lease of {branch}: {state}\n\nLease-Format: {FORMAT}\nState: {state}\nEpoch: {epoch}\nHolder: {holder}\nHost: {host}\n\
             Duration-Ms: {}\nRenewals-Left: {left}\n",
            duration.as_millis()
        )
    }

    fn parse(message: &str) -> Result<Self, String> {
        let value = |name: &str| {
            let mut lines = message.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            match (lines.next(), lines.next()) {
                (Some(value), None) => Ok(value),
                (None, _) => Err(format!("its message has no line {name:?}")),
                (Some(_), Some(_)) => Err(format!("its message has more than one line {name:?}")),
            }
        };
        let number = |name: &str| {
            let text = value(name)?;
            text.parse::<u64>().map_err(|_| format!("{name} is {text:?}, not a number"))
        };
        let format = value("Lease-Format")?;
        if format != FORMAT {
            return Err(format!("it has the format {format:?}; this gitcd supports {FORMAT:?}"));
        }
        let is_held = match value("State")? {
            "held" => true,
            "released" => false,
            other => return Err(format!("State is {other:?}")),
        };
        let duration = Duration::from_millis(number("Duration-Ms")?);
        if duration.is_zero() || duration > LONGEST {
            return Err(format!("Duration-Ms is {duration:?}"));
        }
        let (holder, host) = (value("Holder")?.to_owned(), value("Host")?.to_owned());
        Ok(Self { is_held, epoch: number("Epoch")?, holder, host, duration })
    }

    /// Reads the record of a commit.
    pub(super) fn read(repository: &Repository, oid: Oid) -> Result<Self, NoRecord> {
        let wrong = |problem: String| NoRecord { oid, problem };
        let commit = repository.find_commit(oid).map_err(|error| wrong(error.message().to_owned()))?;
        let message = commit.message().map_err(|error| wrong(error.message().to_owned()))?;
        Self::parse(message).map_err(wrong)
    }
}

/// Returns the lease reference of a branch, given its data reference.
pub fn reference(data_reference: &str) -> String {
    let short = data_reference.strip_prefix("refs/heads/").or_else(|| data_reference.strip_prefix("refs/"));
    format!("{LEASES}{}", short.unwrap_or(data_reference))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> Record {
        let (holder, host) = ("00ff".to_owned(), "pod-1".to_owned());
        Record { is_held: true, epoch: 3, holder, host, duration: Duration::from_secs(3) }
    }

    #[test]
    fn an_invalid_record_is_rejected_with_the_reason() {
        let good = record().message("refs/heads/main", 7);
        assert_eq!(Record::parse(&good), Ok(record()));
        for (from, to, reason) in [
            ("Epoch: 3", "Epoch: x", "not a number"),
            ("Epoch: 3\n", "", "no line \"Epoch\""),
            ("Epoch: 3\n", "Epoch: 3\nEpoch: 4\n", "more than one"),
            ("Format: 1", "Format: 2", "format"),
            ("State: held", "State: lost", "State"),
            ("3000", "0", "Duration-Ms"),
            ("3000", "18446744073709551615", "Duration-Ms"),
        ] {
            let error = Record::parse(&good.replace(from, to)).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        assert!(Record::parse("an external commit\n").is_err());
    }

    #[test]
    fn each_branch_has_a_lease_of_its_own() {
        assert_eq!(reference("refs/heads/main"), "refs/gitcd/lease/main");
        assert_eq!(reference("refs/team/main"), "refs/gitcd/lease/team/main");
    }

    proptest! {
        #[test]
        fn a_written_record_is_read_back(is_held: bool, epoch: u64, holder in "[0-9a-f]{1,32}", host in "[a-z0-9.-]{1,20}", ms in 1..86_400_000_u64, left: u16) {
            let record = Record { is_held, epoch, holder, host, duration: Duration::from_millis(ms) };
            prop_assert_eq!(Record::parse(&record.message("refs/heads/main", left.into())), Ok(record));
        }
    }
}
