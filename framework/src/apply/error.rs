//! What keeps a thing from being as it should be.

use crate::{Failure, Key, Retry};

/// Why something is not as it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// There is an object of that name that the owner does not control.
    #[error("{kind} {key} already exists and belongs to {}; use another name, or delete it", owner.as_deref().unwrap_or("no controller"))]
    NotOurs {
        /// The kind.
        kind: String,
        /// Which.
        key: Key,
        /// Who controls it.
        owner: Option<String>,
    },
    /// It would be in a namespace that the owner is not in: such an owner counts as gone, and its objects are collected.
    #[error("{kind} {key} cannot be owned from namespace {owner:?}")]
    Elsewhere {
        /// The kind.
        kind: String,
        /// Which.
        key: Key,
        /// The owner's namespace.
        owner: String,
    },
    /// The apiserver refused it.
    #[error("cannot apply {kind} {key}")]
    Refused {
        /// The kind.
        kind: String,
        /// Which.
        key: Key,
        /// What it said.
        source: Box<kube::Error>,
    },
    /// It cannot be written as JSON.
    #[error("cannot encode {kind} {key}")]
    Encode {
        /// The kind.
        kind: String,
        /// Which.
        key: Key,
        /// Why.
        source: serde_json::Error,
    },
}

impl Failure for ApplyError {
    fn reason(&self) -> &'static str {
        match self {
            Self::NotOurs { .. } => "NotOurs",
            Self::Elsewhere { .. } => "OwnerElsewhere",
            Self::Refused { source, .. } => source.reason(),
            Self::Encode { .. } => "CannotEncode",
        }
    }

    fn retry(&self) -> Retry {
        match self {
            // Somebody may remove it.
            Self::NotOurs { .. } => Retry::BackOff,
            Self::Elsewhere { .. } | Self::Encode { .. } => Retry::AfterChange,
            Self::Refused { source, .. } => source.retry(),
        }
    }
}
