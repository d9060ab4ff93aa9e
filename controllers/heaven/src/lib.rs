//! Sets up heavens: a [`TrishankuHeaven`](trishanku_api::TrishankuHeaven) becomes Secrets, a `ConfigMap` and a
//! Deployment.
//!
//! | module | content |
//! |---|---|
//! | [`certificates`] | computes the desired certificates from the present ones; pure |
//! | `secrets` | writes them to the cluster, but never to user-supplied Secrets |
//! | `reconcile` | observe, plan, apply, report |
//! | `last_push` | delays deletion until the last push |
//!
//! Start with [`controller`].

pub mod certificates;
mod ending;
mod error;
mod host;
mod last_push;
mod reconcile;
mod secrets;
mod shows;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use time::OffsetDateTime;
use trishanku_api::GitHubRepository;
use trishanku_framework::{Controller, Key, Manager};
use trishanku_heaven_plan::exposure;
use trishanku_heaven_plan::own_namespace::OwnNamespace;
use trishanku_heaven_plan::plan::Images;
use trishanku_heaven_plan::workload;

pub use self::error::Error;
pub use self::reconcile::Heavens;

/// The source of the present time.
pub type Clock = Arc<dyn Fn() -> OffsetDateTime + Send + Sync>;

/// Label of Secrets that this controller creates; the value is their purpose. Secrets without it are user-supplied.
pub const CERTIFICATE: &str = "controllers.trishanku.org/certificate";
/// Annotation with a time (RFC 3339): all certificates of this heaven from before are reissued.
pub const REISSUE_BEFORE: &str = "controllers.trishanku.org/reissue-certificates-before";
/// Annotation of pods that changes when they must restart to read their certificates.
pub const FINGERPRINT: &str = "controllers.trishanku.org/certificates";

/// Annotation that, if `true`, permits the deletion of a heaven that may have unpushed commits.
pub const DELETE_UNPUSHED: &str = "controllers.trishanku.org/delete-unpushed";
/// The finalizer that keeps a heaven until its last push.
pub const FINALIZER: &str = "controllers.trishanku.org/last-push";

/// Creates the controller of heavens for a manager, which refuses heavens in its own namespace.
pub fn controller(manager: &Manager, images: Images, own_namespace: OwnNamespace, clock: Clock) -> Controller<Heavens> {
    let heavens = Heavens::new(manager, images, own_namespace, clock);
    let (users, maps, followers) = (heavens.secrets_used(), heavens.maps_used(), heavens.remotes_used());
    let others = users.clone();
    let (secrets, own_maps, other_maps) = (heavens.secrets.clone(), heavens.maps.clone(), heavens.other_maps.clone());
    let users_of_maps = maps.clone();
    Controller::new("trishankuheaven", heavens)
        .owns_kind(&workload::kind())
        .owns::<PersistentVolumeClaim>()
        .owns::<Service>()
        .owns_cached(&own_maps)
        .watches_cached(&secrets.ours, move |change| {
            if secrets::is_of_interest(change) { users.of(&Key::of(change.object())) } else { Vec::new() }
        })
        .watches_cached(secrets.others.metadata(), move |change| {
            if secrets::is_of_others(change) { others.of(&Key::of(change.object())) } else { Vec::new() }
        })
        // Of a ConfigMap of another owner, the two caches learn one after the other.
        .watches_cached(&own_maps, move |change| maps.of(&Key::of(change.object())))
        .watches_cached(other_maps.metadata(), move |change| users_of_maps.of(&Key::of(change.object())))
        .watches(move |repository: &GitHubRepository| {
            let namespace = repository.metadata.namespace.as_deref().unwrap_or_default();
            let urls = exposure::urls(repository).into_iter();
            urls.flat_map(|url| followers.of(&Key::namespaced(namespace, &url))).collect()
        })
}
