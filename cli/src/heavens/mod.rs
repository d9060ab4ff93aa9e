//! Heavens as processes: runs the plan of manifests on this machine.
//!
//! ```text
//! files ─► manifest ─► the plan (trishanku-heaven-plan) ─► servers ─┐
//!             └──────► the user's pod template ───────► users ───┴─► components of the supervisor
//! ```
//!
//! A [`manifest`] has the objects, [`images`] maps their images to programs. Since the paths and ports of a pod exist
//! only once on a machine, each heaven has a `site`, its own folder and ports, and `paths` translates what its
//! containers read. `secrets` issues certificates as the manager does in a cluster.

mod check;
mod environment;
mod error;
mod flags;
pub mod images;
pub mod manifest;
mod paths;
mod remotes;
mod render;
mod render_context;
mod renewal;
mod secrets;
mod servers;
mod site;
mod users;
mod volumes;

pub use crate::record::{HeavenRecord, Kind};
pub use error::RenderError;
pub use flags::FlagOption;
pub use images::{ImagePrograms, Mapping};
pub use manifest::{Ignored, ManifestError, Manifests};
pub use remotes::RemoteOption;
pub(crate) use remotes::make_bare;
pub use render::{Audit, Remark, Rendered, Request};
pub use renewal::{Renewal, Renewed};
pub use secrets::SecretError;
pub(crate) use secrets::make_folder;
