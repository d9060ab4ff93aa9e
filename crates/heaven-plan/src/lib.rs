//! The servers beside a heaven's controller, and those of an `AutomatedMerge`.
//!
//! [`plan::heaven`] and [`plan::merge`] are pure functions of a manifest, the default images, the paths and ports of the
//! environment, and the available entry points. [`HeavenParts`] has the fields of the manifest that a heaven needs. The
//! functions return a [`Plan`](plan::Plan): the steps in order, each with program, arguments, environment, files, port and
//! probes, independent of pods.
//!
//! [`pod::render`] puts a plan into a user's pod template. It works on JSON, so that fields of newer Kubernetes versions
//! survive.
//!
//! ```
//! use serde_json::json;
//! use trishanku_api::TrishankuHeavenSpec;
//! use trishanku_heaven_plan::HeavenParts;
//! use trishanku_heaven_plan::plan::{EntryPoints, Images, Place, heaven};
//! use trishanku_heaven_plan::pod;
//!
//! let users = json!({"spec": {"containers": [{"name": "app", "image": "app:1", "newField": true}]}});
//! let spec: TrishankuHeavenSpec = serde_json::from_value(json!({
//!     "certificates": {"controller": {"userName": "system:app"}},
//!     "app": {"podTemplate": users},
//! }))?;
//! let place = Place::pod().with_ports(pod::ports(&users, None)?);
//! let parts = HeavenParts::of_spec("sample", &spec);
//! let plan = heaven(&parts, &Images::default(), &place, &EntryPoints::default())?;
//! assert_eq!(plan.steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>(), ["gitcd-init", "gitcd", "kube-apiserver"]);
//!
//! let template = pod::render(&plan, &users)?;
//! assert_eq!(template["spec"]["initContainers"][2]["name"], "kube-apiserver");
//! assert_eq!(template["spec"]["containers"][0]["newField"], true);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

/// Annotation of pods with the port of gitcd's status.
pub const STATUS_PORT: &str = "controllers.trishanku.org/status-port";

pub mod credentials;
pub mod encryption;
pub mod entry_points;
pub mod exposure;
pub mod injected;
pub mod names;
pub mod objects;
pub mod own_namespace;
mod parts;
pub mod plan;
pub mod pod;
pub mod uses;
pub mod workload;

pub use self::parts::{HeavenParts, User};
