//! History links: what a metadata commit records about histories that were combined since the previous one.
//!
//! A merge commit has its parents in the order of their IDs, so that two branches that merge each other make the same commit. And
//! a fast-forward takes over commits of another store, whose revisions do not apply here. Only the branch's own metadata knows
//! which side was this branch.

use std::fmt;

use git2::Oid;

/// A history link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryLink {
    /// A merge commit of both.
    Merged {
        /// The commit of this branch.
        ours: Oid,
        /// The other one.
        theirs: Oid,
    },
    /// A fast-forward to their commit.
    FastForward {
        /// The commit of this branch in the previous metadata commit.
        ours: Oid,
        /// The other one.
        theirs: Oid,
    },
    /// The metadata was derived from existing data.
    Adopted {
        /// The data commit.
        data: Oid,
    },
    /// The previous metadata commit is one of the Go implementation.
    Converted {
        /// The previous metadata commit.
        metadata: Oid,
    },
}

impl HistoryLink {
    /// Parses the history links in a metadata commit's message.
    pub fn all(message: &str) -> Vec<Self> {
        message.lines().skip(1).filter_map(Self::parse).collect()
    }

    fn parse(line: &str) -> Option<Self> {
        let (name, value) = line.split_once(": ")?;
        let oid = |text: &str| Oid::from_str(text).ok().filter(|_| text.len() == 40);
        let both = || value.split_once("..").and_then(|(ours, theirs)| Some((oid(ours)?, oid(theirs)?)));
        match name {
            "Merged" => both().map(|(ours, theirs)| Self::Merged { ours, theirs }),
            "Fast-forward" => both().map(|(ours, theirs)| Self::FastForward { ours, theirs }),
            "Adopted" => oid(value).map(|data| Self::Adopted { data }),
            "Converted" => oid(value).map(|metadata| Self::Converted { metadata }),
            _ => None,
        }
    }
}

impl fmt::Display for HistoryLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Merged { ours, theirs } => write!(f, "Merged: {ours}..{theirs}"),
            Self::FastForward { ours, theirs } => write!(f, "Fast-forward: {ours}..{theirs}"),
            Self::Adopted { data } => write!(f, "Adopted: {data}"),
            Self::Converted { metadata } => write!(f, "Converted: {metadata}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_message_says_is_read_back() {
        let oid = |digit: &str| Oid::from_str(&digit.repeat(40)).expect("it has 40 digits");
        let joins = [
            HistoryLink::FastForward { ours: oid("1"), theirs: oid("2") },
            HistoryLink::Merged { ours: oid("3"), theirs: oid("4") },
            HistoryLink::Merged { ours: oid("5"), theirs: oid("6") },
            HistoryLink::Adopted { data: oid("7") },
            HistoryLink::Converted { metadata: oid("8") },
        ];
        let message = crate::message::metadata(7, &joins);
        assert!(message.starts_with("metadata at revision 7\n\nFast-forward: 1111"), "{message}");
        assert_eq!(HistoryLink::all(&message), joins);
        assert_eq!(crate::message::metadata(7, &[]), "metadata at revision 7\n");
        for wrong in ["Merged: 12..34", "Merged: ", "Adopted", "Adopted: 77", "Other: 1"] {
            assert_eq!(HistoryLink::all(&format!("metadata at revision 7\n\n{wrong}\n")), [], "{wrong}");
        }
    }
}
