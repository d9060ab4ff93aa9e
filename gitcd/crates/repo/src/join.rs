//! What a metadata commit says of histories that came together since the one before it.
//!
//! A merge commit has its parents in the order of their ids, so that two branches that merge one another make the same commit; and a
//! fast-forward makes commits of another store ours, whose revisions are other ones here. Which side was this branch only its own metadata can tell.

use std::fmt;

use git2::Oid;

/// Histories that came together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// A merge commit was made of both.
    Merged {
        /// The commit of this branch.
        ours: Oid,
        /// The other one.
        theirs: Oid,
    },
    /// Theirs became ours.
    FastForward {
        /// The commit of this branch, as the metadata commit before knew it.
        ours: Oid,
        /// The other one.
        theirs: Oid,
    },
    /// The metadata was derived from data that was there.
    Adopted {
        /// The data.
        data: Oid,
    },
    /// The metadata commit before is one of the Go implementation's.
    Converted {
        /// That one.
        metadata: Oid,
    },
}

impl Join {
    /// All that a message of a metadata commit says.
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

impl fmt::Display for Join {
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
            Join::FastForward { ours: oid("1"), theirs: oid("2") },
            Join::Merged { ours: oid("3"), theirs: oid("4") },
            Join::Merged { ours: oid("5"), theirs: oid("6") },
            Join::Adopted { data: oid("7") },
            Join::Converted { metadata: oid("8") },
        ];
        let message = crate::message::metadata(7, &joins);
        assert!(message.starts_with("metadata at revision 7\n\nFast-forward: 1111"), "{message}");
        assert_eq!(Join::all(&message), joins);
        assert_eq!(crate::message::metadata(7, &[]), "metadata at revision 7\n");
        for wrong in ["Merged: 12..34", "Merged: ", "Adopted", "Adopted: 77", "Other: 1"] {
            assert_eq!(Join::all(&format!("metadata at revision 7\n\n{wrong}\n")), [], "{wrong}");
        }
    }
}
