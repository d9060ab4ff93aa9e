//! Sets up merges: an [`AutomatedMerge`](trishanku_api::AutomatedMerge) becomes a Deployment with one gitcd, which pulls
//! other branches into one and pushes it. It serves no clients.
//!
//! Start with [`controller`].

mod error;
mod reconcile;
mod status_source;

use trishanku_framework::{Controller, WithStatus};
use trishanku_heaven_plan::own_namespace::OwnNamespace;
use trishanku_heaven_plan::plan::Images;

pub use self::error::Error;
pub use self::reconcile::Merges;

/// Creates the controller of merges, which refuses merges in `own_namespace`, that of the manager.
pub fn controller(images: Images, own_namespace: OwnNamespace) -> Controller<WithStatus<Merges>> {
    Controller::with_status("automatedmerge", move |kinds| Merges::new(kinds, images, own_namespace))
        .field_manager(reconcile::MANAGER)
}
