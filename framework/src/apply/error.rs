//! Errors of apply.

use std::fmt;
use std::time::Duration;

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
    /// The object has a `generateName` and no name, so each apply would create another one.
    #[error("cannot apply a {kind} with generateName: set its name, or neither, for that of its owner")]
    GenerateName {
        /// The kind.
        kind: String,
    },
    /// Another object with the same kind and name was applied to the set before: each reconcile would write both.
    #[error(
        "{kind} {key} was applied twice to one set; give each object a name (one without a name gets that of its owner)"
    )]
    AppliedTwice {
        /// The kind.
        kind: String,
        /// The object.
        key: Key,
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
    /// The request to delete it failed.
    #[error("cannot delete {kind} {key}")]
    NotDeleted {
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
            Self::GenerateName { .. } => "NoName",
            Self::AppliedTwice { .. } => "AppliedTwice",
            Self::Refused { source, .. } | Self::NotDeleted { source, .. } => source.reason(),
            Self::Encode { .. } => "CannotEncode",
        }
    }

    fn retry(&self) -> Retry {
        match self {
            // The other object may be deleted.
            Self::NotOurs { .. } => Retry::BackOff,
            Self::Elsewhere { .. } | Self::GenerateName { .. } | Self::AppliedTwice { .. } | Self::Encode { .. } => {
                Retry::Terminal
            }
            Self::Refused { source, .. } | Self::NotDeleted { source, .. } => source.retry(),
        }
    }
}

/// The error of a reconciler without an error type of its own.
///
/// Errors of kube and of [`apply`](crate::apply) become one by `?`. Any other has a reason, and says when to retry:
///
/// ```
/// use std::time::Duration;
/// use trishanku_framework::{Error, Failure, Result, Retry};
///
/// fn check(level: &str, pump: Option<&str>) -> Result<u32> {
///     // Only a change of the spec helps.
///     let level = level.parse().map_err(|error| Error::terminal("InvalidLevel", error))?;
///     if level > 9 {
///         return Err(Error::terminal("LevelAboveRim", format!("level {level} is above the rim")));
///     }
///     pump.ok_or_else(|| Error::waiting("NoPump", "the pump", Duration::from_mins(1)))?;
///     Ok(level)
/// }
///
/// let error = check("12", None).unwrap_err();
/// assert_eq!((error.reason(), error.retry()), ("LevelAboveRim", Retry::Terminal));
/// ```
///
/// Implement [`Failure`] yourself if callers must distinguish the errors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A request failed.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// An object could not be applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// Something else failed, or is missing.
    #[error(transparent)]
    Other(OtherError),
}

/// An error with a reason: see [`Error::terminal`], [`Error::failed`] and [`Error::waiting`].
#[derive(Debug)]
pub struct OtherError {
    reason: &'static str,
    retry: Retry,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl fmt::Display for OtherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl std::error::Error for OtherError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.source()
    }
}

impl Failure for OtherError {
    fn reason(&self) -> &'static str {
        self.reason
    }

    fn retry(&self) -> Retry {
        self.retry.clone()
    }
}

impl Error {
    /// Creates an error that only a change helps against ([`Retry::Terminal`]): the spec is wrong. `reason` is a word in upper camel
    /// case, and `source` an error or a message.
    pub fn terminal(reason: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(OtherError { reason, retry: Retry::Terminal, source: source.into() })
    }

    /// Creates an error that is retried as `source` is, with another reason: for a failure that users know by a word of yours.
    pub fn failed(reason: &'static str, source: impl Failure) -> Self {
        Self::Other(OtherError { reason, retry: source.retry(), source: source.into() })
    }

    /// Creates an error that something is missing, which is not a failure ([`Retry::Waiting`]). It is retried after `look_again`,
    /// or earlier if a watch triggers a reconcile. `on` is what is missing, for the log and for conditions.
    pub fn waiting(reason: &'static str, on: impl Into<String>, look_again: Duration) -> Self {
        let on = on.into();
        let source = format!("waiting for {on}").into();
        Self::Other(OtherError { reason, retry: Retry::Waiting { on, look_again }, source })
    }
}

/// The result of a reconciler without an error type of its own.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::Api(error) => error.reason(),
            Self::Apply(error) => error.reason(),
            Self::Other(error) => error.reason(),
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Api(error) => error.retry(),
            Self::Apply(error) => error.retry(),
            Self::Other(error) => error.retry(),
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

    #[test]
    fn an_error_with_a_reason_says_when_to_retry_and_what_caused_it() {
        let said = |error: &Error| (error.reason(), error.retry(), chain(error));
        let error = Error::terminal("NoServers", "spec.servers is missing");
        assert_eq!(said(&error), ("NoServers", Retry::Terminal, "spec.servers is missing".to_owned()));
        let minute = Duration::from_mins(1);
        let error = Error::waiting("NoPump", "the pump", minute);
        let retry = Retry::Waiting { on: "the pump".to_owned(), look_again: minute };
        assert_eq!(said(&error), ("NoPump", retry, "waiting for the pump".to_owned()));

        let busy = serde_json::json!({
            "status": "Failure", "message": "busy", "reason": "TooManyRequests", "code": 429,
            "details": {"retryAfterSeconds": 7},
        });
        let busy = kube::Error::Api(Box::new(serde_json::from_value(busy).expect("the status is valid")));
        let (kind, key) = ("Job".to_owned(), Key::namespaced("plant", "tide"));
        let error = Error::failed("JobCreationFailed", ApplyError::Refused { kind, key, source: Box::new(busy) });
        let text = "cannot apply Job plant/tide: ApiError: busy: TooManyRequests".to_owned();
        assert_eq!(said(&error), ("JobCreationFailed", Retry::NotBefore(Duration::from_secs(7)), text));
    }
}
