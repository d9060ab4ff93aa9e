//! Sets up merges: an [`AutomatedMerge`](trishanku_api::AutomatedMerge) becomes a Deployment with one gitcd, which pulls
//! other branches into one and pushes it. It serves no clients.
//!
//! Start with [`controller`].

mod error;
mod reconcile;
mod shows;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use trishanku_framework::{Controller, Key, Manager};
use trishanku_heaven_plan::plan::Images;
use trishanku_heaven_plan::workload;

pub use self::error::Error;
pub use self::reconcile::Merges;

/// Creates the controller of merges for a manager.
pub fn controller(manager: &Manager, images: Images) -> Controller<Merges> {
    let merges = Merges::new(manager, images);
    let (maps, secrets) = (merges.maps_used(), merges.secrets_used());
    Controller::new("automatedmerge", merges)
        .owns_kind(&workload::kind())
        .owns::<ConfigMap>()
        .owns::<PersistentVolumeClaim>()
        .owns::<Secret>()
        .watches(move |map: &ConfigMap| maps.of(&Key::of(map)))
        .watches(move |secret: &Secret| secrets.of(&Key::of(secret)))
}
