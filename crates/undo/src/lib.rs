//! Plans how changes of Kubernetes objects are undone, and how objects become as they were.
//!
//! Pure: no client, no clock, no Git. The input is a [`Subject`] for each object: its state now, and the changes to revert. The
//! output is a [`Plan`]: one [`Step`] for each object, in the order in which the steps are sent to kube-apiserver. [`fold`]
//! reverts changes three-way, so that later edits stay. [`creation`] prepares an object that is created again, [`custody`] knows
//! which objects belong to controllers, [`owners`] repairs references to owners, and [`order`] sorts the steps.
//!
//! ```
//! use gitcd_merge::schema::Schemas;
//! use serde_json::json;
//! use trishanku_undo::{Action, Change, Live, Mode, Planner, Subject};
//!
//! let prices = |tea: &str, salt: &str| json!({
//!     "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "prices", "namespace": "shop", "uid": "5d2c"},
//!     "data": {"tea": tea, "salt": salt},
//! });
//! // The change to revert set tea from 4 to 5. Salt was edited later.
//! let change = Change { before: Some(prices("4", "9")), after: Some(prices("5", "9")) };
//! let subject = Subject::new("configmaps/shop/prices", Some(prices("5", "8")), vec![change]);
//! let planner = Planner { schemas: &Schemas::builtin(), secrets: &Default::default(), live: &Live::default() };
//! let plan = planner.plan(vec![subject], Mode::Undo);
//! let Action::Update { object, .. } = &plan.steps[0].action else { panic!("an update") };
//! assert_eq!(object["data"], json!({"tea": "4", "salt": "8"}));
//! ```

pub mod creation;
pub mod custody;
mod definition;
pub mod document;
pub mod fold;
pub mod order;
pub mod owners;
mod plan;
mod step;
mod subject;

pub use self::owners::Live;
pub use self::plan::{Plan, Planner};
pub use self::step::{Action, Step, Wave};
pub use self::subject::{Change, Mode, ObjectRef, Subject, Unreadable};
