//! Condition types besides `Ready`, `Reconciling` and `Stalled`.

/// The Secrets with certificates exist and will stay valid for a while.
pub const CERTIFICATES_READY: &str = "CertificatesReady";
/// The Git host serves over TLS, so that tokens cannot be read on the network. Only heavens with a Git host have it.
pub const GIT_HOST_ENCRYPTED: &str = "GitHostEncrypted";
/// The branch exists and can be written.
pub const REPOSITORY_READY: &str = "RepositoryReady";
/// The Deployment reports enough ready pods.
pub const AVAILABLE: &str = "Available";
/// The last exchange with each remote succeeded.
pub const SYNCED: &str = "Synced";
