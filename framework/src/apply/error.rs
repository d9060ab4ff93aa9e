//! Errors of apply.

use crate::{Failure, Key, Retry};

/// Why an object could not be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// There is an object of that name that the owner does not control.
    #[error("{kind} {key} already exists and belongs to {}; use another name, or delete it", owner.as_deref().unwrap_or("no controller"))]
    NotOurs {
        /// The kind.
        kind: String,
        /// The object.
        key: Key,
        /// Its controlling owner, if it has one.
        owner: Option<String>,
    },
    /// The owner is in another namespace. Such an owner counts as deleted, and its objects are garbage-collected.
    #[error("{kind} {key} cannot be owned from namespace {owner:?}")]
    Elsewhere {
        /// The kind.
        kind: String,
        /// The object.
        key: Key,
        /// The owner's namespace.
        owner: String,
    },
    /// The request failed.
    #[error("cannot apply {kind} {key}")]
    Refused {
        /// The kind.
        kind: String,
        /// The object.
        key: Key,
        /// The error of the request.
        source: Box<kube::Error>,
    },
    /// The object cannot be encoded as JSON.
    #[error("cannot encode {kind} {key}")]
    Encode {
        /// The kind.
        kind: String,
        /// The object.
        key: Key,
        /// The cause.
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
            // The other object may be deleted.
            Self::NotOurs { .. } => Retry::BackOff,
            Self::Elsewhere { .. } | Self::Encode { .. } => Retry::Terminal,
            Self::Refused { source, .. } => source.retry(),
        }
    }
}

/// The error of a reconciler without errors of its own: one of kube or of [`apply`](crate::apply).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A request failed.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// An object could not be applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

/// The result of a reconciler without errors of its own.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::Api(error) => error.reason(),
            Self::Apply(error) => error.reason(),
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Api(error) => error.retry(),
            Self::Apply(error) => error.retry(),
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::error::chain;

    #[test]
    fn a_chain_is_for_people_and_says_everything_once() {
        let refused = kube::Error::Api(Box::new(Status::failure("the pump is locked", "Conflict").with_code(409)));
        assert!(
            refused.to_string().contains("Status {"),
            "kube no longer repeats the status in debug format: {refused}"
        );
        let transparent = Error::from(refused);
        assert_eq!(chain(&transparent), "ApiError: the pump is locked: Conflict");
        let Error::Api(refused) = transparent else { panic!("expected an API error") };
        let (kind, key) = ("ConfigMap".to_owned(), crate::Key::namespaced("plant", "pump"));
        let applied = Error::from(ApplyError::Refused { kind, key, source: Box::new(refused) });
        let Error::Apply(ApplyError::Refused { source, .. }) = &applied else { panic!("expected an apply error") };
        let kube::Error::Api(status) = &**source else { panic!("expected an API error") };
        let watch = kube::runtime::watcher::Error::WatchStartFailed(kube::Error::Api(status.clone()));
        let expected = "failed to start watching object: ApiError: the pump is locked: Conflict";
        assert_eq!(chain(&watch), expected);
        assert_eq!(chain(&applied), "cannot apply ConfigMap plant/pump: ApiError: the pump is locked: Conflict");
    }
}
