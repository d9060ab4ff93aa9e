//! What all transports share: errors, updates of references, and the time limit of an exchange.

use std::time::Duration;

use git2::Oid;
use gitcd_repo::transfer::TransferError;

use super::status::Condition;

/// Default timeout of an exchange with a remote.
pub(super) const LIMIT: Duration = Duration::from_mins(5);

/// A reference, its new value, and its expected value.
pub(super) type Update = (String, Oid, Option<Oid>);

/// How operators allow credentials over plain HTTP, for error messages.
pub(super) const PLAIN_HTTP: &str = "--allow-plain-http-credentials (in a manifest, gitcd.allowPlainHttpCredentials)";

/// Why an exchange with a remote failed.
#[derive(Debug)]
pub(super) struct TransportError {
    pub(super) condition: Condition,
    pub(super) cause: Cause,
    pub(super) said: String,
}

/// The cause of a failure, for what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// None of the others, or unknown.
    Other,
    /// The remote requires other credentials.
    Unauthenticated,
    /// The host requires a token of gitcd itself; its message says so.
    OwnAccess,
    /// No trusted authority has issued the remote's certificate.
    UntrustedCertificate,
    /// The remote redirects from HTTPS to plain HTTP, or Git's configuration rewrites its URL so.
    PlainHttp,
    /// The SSH host key of the remote is unknown.
    UnknownHostKey,
    /// The remote does not support atomic pushes.
    NotAtomic,
    /// The reference is the lease of a branch that a gitcd serves in the remote's repository.
    Served,
}

impl TransportError {
    pub(super) fn new(condition: Condition, said: impl std::fmt::Display) -> Self {
        Self { condition, cause: Cause::Other, said: said.to_string() }
    }

    pub(super) fn with_cause(self, cause: Cause) -> Self {
        Self { cause, ..self }
    }

    /// The error for credentials that are not sent to a URL, which has none in it, because they could be read on the network.
    pub(super) fn withheld(url: &str) -> Self {
        let said = format!(
            "credentials are not sent to {url}, because plain HTTP does not encrypt them: use https://, or allow it with {PLAIN_HTTP}"
        );
        Self::new(Condition::Failed, said)
    }

    /// An error of the local repository.
    pub(super) fn here(error: impl std::fmt::Display) -> Self {
        Self::new(Condition::Failed, error)
    }

    /// An error of objects on their way to the local repository.
    pub(super) fn received(error: &TransferError) -> Self {
        let condition = match error {
            TransferError::Read { .. } | TransferError::TooLarge => Condition::Damaged,
            TransferError::Write(error) if is_full(error) => Condition::NoSpace,
            _ => Condition::Failed,
        };
        Self::new(condition, gitcd_core::error::chain(error))
    }
}

/// Returns whether an error is caused by a full disk, or an exceeded quota.
pub(super) fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| {
            matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::is_full;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot write")]
    struct Wrapped(#[source] Error);

    #[test]
    fn a_full_disk_is_recognized_by_its_kind_and_not_by_a_name_with_space_in_it() {
        assert!(is_full(&Wrapped(Error::from(ErrorKind::StorageFull))));
        assert!(is_full(&Wrapped(Error::from(ErrorKind::QuotaExceeded))));
        assert!(!is_full(&Wrapped(Error::other("/workspace: permission denied"))));
    }
}
