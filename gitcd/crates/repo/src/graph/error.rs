//! Why a history cannot be walked.

use git2::Oid;

use crate::boundary::{BoundaryError, Cut};

/// Why a history cannot be walked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// A commit cannot be read.
    #[error("commit {oid}: {problem}")]
    Unreadable {
        /// The commit.
        oid: Oid,
        /// What is wrong.
        problem: String,
    },
    /// The history that is needed was cut by gitcd.
    #[error(
        "commit {oid}: the history was cut here on {date} at revision {revision} ({archive_status}), and what is needed to compare the two \
         branches is older; clone the other branch again from this one, or fetch the removed history from the archive with \
         `git fetch --unshallow ARCHIVE {reference}`"
    )]
    Cut {
        /// The commit at which the walk ended.
        oid: Oid,
        /// The date of the cut.
        date: String,
        /// The oldest revision that is kept.
        revision: i64,
        /// Where the removed commits are.
        archive_status: String,
        /// The reference of the data.
        reference: String,
    },
    /// The boundary of the history cannot be read.
    #[error(transparent)]
    Boundary(#[from] BoundaryError),
}

impl GraphError {
    /// Returns the error for a commit that cannot be read.
    pub fn unreadable(oid: Oid, problem: impl Into<String>) -> Self {
        Self::Unreadable { oid, problem: problem.into() }
    }

    /// Returns the error for a walk that ends at this commit.
    pub fn ended(oid: Oid, cut: &Cut) -> Self {
        Self::Cut {
            oid,
            date: cut.date(),
            revision: cut.revision,
            archive_status: cut.archive_status(),
            reference: cut.reference.clone(),
        }
    }

    /// Returns the commit at which a walk ended because gitcd cut the history there.
    pub fn cut_at(&self) -> Option<Oid> {
        match self {
            Self::Cut { oid, .. } => Some(*oid),
            _ => None,
        }
    }

    /// Returns whether the history that is needed was cut by gitcd. Such a repository is not deepened again.
    pub fn is_cut(&self) -> bool {
        matches!(self, Self::Cut { .. })
    }
}
