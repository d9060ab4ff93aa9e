//! The process form of heavens: the plan of manifests as processes of this machine.
//!
//! ```text
//! files ─► manifest ─► the plan (trishanku-sidecars) ─► servers ─┐
//!             └──────► the user's pod template ───────► users ───┴─► components of the supervisor
//! ```
//!
//! A [`manifest`] says what there is. [`images`] tells which program stands in for which image. Each heaven has a [`site`]: a folder and ports of its own, since
//! the paths and ports of a pod are there once on a machine; [`paths`] translates what a user's container is told. [`secrets`] makes certificates as a
//! manager makes them.

mod check;
mod environment;
mod error;
mod flags;
pub mod images;
pub mod manifest;
mod paths;
mod record;
mod remotes;
mod render;
mod renewal;
mod secrets;
mod servers;
mod site;
mod users;
mod volumes;
mod workshop;

pub use error::RenderError;
pub use flags::FlagOption;
pub use images::{ImagePrograms, Mapping};
pub use manifest::{Ignored, ManifestError, Manifests};
pub use record::{HeavenRecord, Kind};
pub use remotes::RemoteOption;
pub(crate) use remotes::make_bare;
pub use render::{Remark, Rendered, Request};
pub use renewal::{Renewal, Renewed};
pub use secrets::SecretError;
pub(crate) use secrets::make_folder;
