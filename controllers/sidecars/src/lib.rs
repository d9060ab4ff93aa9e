//! What runs beside a controller in a heaven, and what runs in an `AutomatedMerge`.
//!
//! [`plan::heaven`] and [`plan::merge`] are pure functions: of a manifest, of the images that count where it names none, of the paths and
//! ports of where it is going to run, and of which entry points there are. They give a [`Plan`](plan::Plan): the steps in their order, each with program, arguments,
//! environment, files, port and probes, without a word about pods.
//!
//! [`pod::render`] puts a plan into a user's pod template. It works on the template as JSON, so that fields of a newer Kubernetes survive.
//!
//! ```
//! use serde_json::json;
//! use trishanku_api::TrishankuHeavenSpec;
//! use trishanku_sidecars::plan::{EntryPoints, Images, Place, heaven};
//! use trishanku_sidecars::pod;
//!
//! let users = json!({"spec": {"containers": [{"name": "app", "image": "app:1", "newField": true}]}});
//! let spec: TrishankuHeavenSpec = serde_json::from_value(json!({
//!     "certificates": {"controller": {"userName": "system:app"}},
//!     "app": {"podTemplate": users},
//! }))?;
//! let place = Place::pod().with_ports(pod::ports(&users, None)?);
//! let plan = heaven("sample", &spec, &Images::default(), &place, &EntryPoints::default())?;
//! assert_eq!(plan.steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>(), ["gitcd-init", "gitcd", "kube-apiserver"]);
//!
//! let template = pod::render(&plan, &users)?;
//! assert_eq!(template["spec"]["initContainers"][2]["name"], "kube-apiserver");
//! assert_eq!(template["spec"]["containers"][0]["newField"], true);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

/// The annotation of pods that says at which port their gitcd shows its status.
pub const STATUS_PORT: &str = "controllers.trishanku.org/status-port";

pub mod names;
pub mod objects;
pub mod plan;
pub mod pod;
pub mod uses;
pub mod workload;
