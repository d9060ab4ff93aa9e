//! The kinds that users write: `TrishankuHeaven`, `AutomatedMerge` and `GitHubRepository`.
//!
//! They are those of the existing Go implementation, so that its manifests apply unchanged; new fields are optional.
//! `kubectl explain` shows the documentation of the fields. The API server rejects invalid objects: the schemas have
//! bounds, patterns and CEL rules with messages that say what to do.
//!
//! ```
//! use kube::CustomResourceExt;
//! use trishanku_api::{AutomatedMerge, GitHubRepository, TrishankuHeaven};
//!
//! assert_eq!(TrishankuHeaven::crd_name(), "trishankuheavens.controllers.trishanku.org.trishanku.org");
//! println!("{}", trishanku_api::definitions());
//! ```

#![allow(unreachable_pub, reason = "kube's derives generate types of the same visibility in private modules")]

mod condition;
mod gitcd;
mod heaven;
mod image;
mod merge;
mod repository;
mod schema;

use trishanku_framework::crd::Definitions;

pub use self::condition::{AVAILABLE, CERTIFICATES_READY, GIT_HOST_ENCRYPTED, REPOSITORY_READY, SYNCED};
pub use self::gitcd::{
    Branches, ConflictResolution, Git, Gitcd, Host, Pull, Remote, RetentionPolicies, Storage, VolumeClaim,
};
pub use self::heaven::{
    ApiServer, App, BranchStatus, Certificates, ControllerCertificate, EventsEtcd, LocalEtcd, Skip, TrishankuHeaven,
    TrishankuHeavenSpec, TrishankuHeavenStatus,
};
pub use self::image::{Image, PullPolicy};
pub use self::merge::{AutomatedMerge, AutomatedMergeSpec, AutomatedMergeStatus, MergeApp, RemoteStatus};
pub use self::repository::{DeletionPolicy, GitHubRepository, GitHubRepositorySpec, GitHubRepositoryStatus};
pub use self::schema::pod_template as pod_template_schema;

/// The group of all kinds.
pub const GROUP: &str = "controllers.trishanku.org.trishanku.org";
/// The version of all kinds.
pub const VERSION: &str = "v1alpha1";

/// The CRDs of all kinds.
pub fn definitions() -> Definitions {
    Definitions::of::<TrishankuHeaven>().and::<AutomatedMerge>().and::<GitHubRepository>()
}
