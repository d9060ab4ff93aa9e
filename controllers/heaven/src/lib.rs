//! Sets up heavens: what a [`TrishankuHeaven`](trishanku_api::TrishankuHeaven) asks for becomes Secrets, a `ConfigMap` and a Deployment.
//!
//! | module | what it does |
//! |---|---|
//! | [`certificates`] | which certificates there should be, by what there is: pure |
//! | `secrets` | brings that into the cluster, and never touches what is somebody else's |
//! | `reconcile` | observe, plan, apply, report |
//! | `last_push` | what is waited for before a heaven goes |
//!
//! Begin with [`controller`].

pub mod certificates;
mod ending;
mod error;
mod last_push;
mod public;
mod reconcile;
mod secrets;
mod shows;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service};
use time::OffsetDateTime;
use trishanku_api::GitHubRepository;
use trishanku_framework::cache::Change;
use trishanku_framework::{Controller, Key, Manager};
use trishanku_sidecars::plan::Images;
use trishanku_sidecars::workload;

pub use self::error::Error;
pub use self::reconcile::Heavens;

/// What time it is.
pub type Clock = Arc<dyn Fn() -> OffsetDateTime + Send + Sync>;

/// The label of Secrets that were made here, with what they are for. What does not have it is somebody else's.
pub const CERTIFICATE: &str = "controllers.trishanku.org/certificate";
/// The annotation with a time (RFC 3339): all certificates of this heaven that were made before are made anew.
pub const REISSUE_BEFORE: &str = "controllers.trishanku.org/reissue-certificates-before";
/// The annotation of pods that changes when they have to be started anew to read their certificates.
pub const FINGERPRINT: &str = "controllers.trishanku.org/certificates";

/// The annotation that lets a heaven go although not everything is known to be pushed, if it is `true`.
pub const DELETE_UNPUSHED: &str = "controllers.trishanku.org/delete-unpushed";
/// Keeps a heaven until its last push.
pub const FINALIZER: &str = "controllers.trishanku.org/last-push";

/// The controller of heavens, for a manager.
pub fn controller(manager: &Manager, images: Images, clock: Clock) -> Controller<Heavens> {
    let heavens = Heavens::new(manager, images, clock);
    let (users, maps, followers) = (heavens.secrets_used(), heavens.maps_used(), heavens.remotes_used());
    Controller::new("trishankuheaven", heavens)
        .owns_kind(&workload::kind())
        .owns::<ConfigMap>()
        .owns::<PersistentVolumeClaim>()
        .owns::<Service>()
        .watches_changes(
            move |change: &Change<'_, Secret>| {
                if secrets::is_of_interest(change) { users.of(&Key::of(change.object())) } else { Vec::new() }
            },
        )
        .watches(move |map: &ConfigMap| maps.of(&Key::of(map)))
        .watches(move |repository: &GitHubRepository| {
            let namespace = repository.metadata.namespace.as_deref().unwrap_or_default();
            let urls = public::urls(repository).into_iter();
            urls.flat_map(|url| followers.of(&Key::namespaced(namespace, &url))).collect()
        })
}
