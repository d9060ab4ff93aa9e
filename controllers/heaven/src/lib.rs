//! Sets up heavens: a [`TrishankuHeaven`] becomes Secrets, a `ConfigMap` and a
//! Deployment. Other kinds of heavens, with other workloads, implement [`HeavenKind`].
//!
//! | module | content |
//! |---|---|
//! | [`certificates`] | computes the desired certificates from the present ones; pure |
//! | [`secrets`] | writes them to the cluster, but never to user-supplied Secrets |
//! | `kind` | the trait that kinds of heavens implement |
//! | `injection` | an admission webhook: heavens beside the pods of labelled namespaces |
//! | `reconcile` | observe, plan, apply, report |
//! | `last_push` | delays deletion until the last push |
//!
//! Start with [`heavens`], or with [`controller`] for `TrishankuHeaven` objects.

pub mod certificates;
mod deletion;
mod error;
mod guard;
mod host;
mod injection;
mod kind;
mod last_push;
mod reconcile;
mod report;
pub mod secrets;
mod settings;
mod status_source;

use trishanku_api::TrishankuHeaven;
use trishanku_framework::{Controller, WithStatus};

pub use self::error::Error;
pub use self::injection::{HeavenInjector, INJECT};
pub use self::kind::HeavenKind;
pub use self::reconcile::Heavens;
pub use self::settings::{Clock, Settings};

/// Label of Secrets that this controller creates; the value is their purpose. Secrets without it are user-supplied.
pub const CERTIFICATE: &str = "controllers.trishanku.org/certificate";
/// Annotation with a time (RFC 3339): all certificates of this heaven from before are reissued.
pub const REISSUE_BEFORE: &str = "controllers.trishanku.org/reissue-certificates-before";
/// Annotation of pods that changes when they must restart to read their certificates.
pub const FINGERPRINT: &str = "controllers.trishanku.org/certificates";

/// Annotation of workloads that run once, with the generation of the heaven for which they were created.
pub const GENERATION: &str = "controllers.trishanku.org/heaven-generation";

/// Annotation that, if `true`, permits the deletion of a heaven that may have unpushed commits.
pub const DELETE_UNPUSHED: &str = "controllers.trishanku.org/delete-unpushed";
/// The finalizer that keeps a heaven until its last push.
pub const FINALIZER: &str = "controllers.trishanku.org/last-push";

/// Creates the controller of `TrishankuHeaven` objects.
pub fn controller(settings: Settings) -> Controller<WithStatus<Heavens<TrishankuHeaven>>> {
    heavens("trishankuheaven", settings).field_manager(secrets::MANAGER)
}

/// Creates the controller of a kind of heavens, with the name in metrics, logs and events.
pub fn heavens<K: HeavenKind>(name: &'static str, settings: Settings) -> Controller<WithStatus<Heavens<K>>> {
    Controller::with_status(name, move |kinds| Heavens::new(kinds, settings))
}
