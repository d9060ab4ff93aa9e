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

use time::OffsetDateTime;
use trishanku_framework::{Controller, WithStatus};
use trishanku_heaven_plan::own_namespace::OwnNamespace;
use trishanku_heaven_plan::plan::Images;

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

/// Creates the controller of heavens, which refuses heavens in `own_namespace`, that of the manager.
pub fn controller(images: Images, own_namespace: OwnNamespace, clock: Clock) -> Controller<WithStatus<Heavens>> {
    Controller::with_status("trishankuheaven", move |kinds| Heavens::new(kinds, images, own_namespace, clock))
        .field_manager(secrets::MANAGER)
}
