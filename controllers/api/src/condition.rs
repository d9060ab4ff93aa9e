//! Types of conditions beside `Ready`, `Reconciling` and `Stalled`.

/// The Secrets with certificates are there and will be valid for a while.
pub const CERTIFICATES_READY: &str = "CertificatesReady";
/// The branch is there, and its remotes can be reached.
pub const REPOSITORY_READY: &str = "RepositoryReady";
/// Pods of the Deployment are ready, as the Deployment itself says.
pub const AVAILABLE: &str = "Available";
/// The last exchange with each remote worked.
pub const SYNCED: &str = "Synced";
