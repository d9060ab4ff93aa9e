//! Sets up merges: an [`AutomatedMerge`](trishanku_api::AutomatedMerge) becomes a Deployment with one gitcd, which pulls
//! other branches into one and pushes it. It serves no clients.
//!
//! Start with [`controller`].

mod error;
mod reconcile;
mod shows;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use trishanku_api::GitHubRepository;
use trishanku_framework::{Controller, Key, Manager};
use trishanku_heaven_plan::exposure;
use trishanku_heaven_plan::own_namespace::OwnNamespace;
use trishanku_heaven_plan::plan::Images;
use trishanku_heaven_plan::workload;

pub use self::error::Error;
pub use self::reconcile::Merges;

/// Creates the controller of merges for a manager, which refuses merges in its own namespace.
pub fn controller(manager: &Manager, images: Images, own_namespace: OwnNamespace) -> Controller<Merges> {
    let merges = Merges::new(manager, images, own_namespace);
    let (maps, secrets, followers) = (merges.maps_used(), merges.secrets_used(), merges.remotes_used());
    let (own_maps, other_maps) = (merges.maps.clone(), merges.other_maps.clone());
    let (own, others, users_of_maps) = (merges.secrets.clone(), merges.other_secrets.clone(), maps.clone());
    Controller::new("automatedmerge", merges)
        .owns_kind(&workload::kind())
        .owns::<PersistentVolumeClaim>()
        .owns_cached(&own_maps)
        .owns_cached(&own)
        // Of the ConfigMap of a heaven, the two caches learn one after the other.
        .watches_cached(&own_maps, move |change| maps.of(&Key::of(change.object())))
        .watches_cached(other_maps.metadata(), move |change| users_of_maps.of(&Key::of(change.object())))
        .watches_cached(others.metadata(), move |change| secrets.of(&Key::of(change.object())))
        .watches(move |repository: &GitHubRepository| {
            let namespace = repository.metadata.namespace.as_deref().unwrap_or_default();
            let urls = exposure::urls(repository).into_iter();
            urls.flat_map(|url| followers.of(&Key::namespaced(namespace, &url))).collect()
        })
}
