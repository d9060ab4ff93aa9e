//! Sets up merges: an [`AutomatedMerge`](trishanku_api::AutomatedMerge) becomes a Deployment with one gitcd, which pulls
//! other branches into one and pushes it. It serves no clients.
//!
//! Start with [`controller`].

mod error;
mod reconcile;
mod shows;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
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
    Controller::new("automatedmerge", merges)
        .owns_kind(&workload::kind())
        .owns::<ConfigMap>()
        .owns::<PersistentVolumeClaim>()
        .owns::<Secret>()
        .watches(move |map: &ConfigMap| maps.of(&Key::of(map)))
        .watches(move |secret: &Secret| secrets.of(&Key::of(secret)))
        .watches(move |repository: &GitHubRepository| {
            let namespace = repository.metadata.namespace.as_deref().unwrap_or_default();
            let urls = exposure::urls(repository).into_iter();
            urls.flat_map(|url| followers.of(&Key::namespaced(namespace, &url))).collect()
        })
}
