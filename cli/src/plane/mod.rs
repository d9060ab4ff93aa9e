//! One control plane as processes of this machine.
//!
//! In the order of use by [`up`](crate::up): [`home`] is the folder of all state; [`assets`] are the programs; [`ports`]
//! are chosen; [`certs`] and [`kubeconfig`] make the programs trust each other; [`components`] defines processes and
//! flags; the [`supervisor`] runs them with one runner each, probes them over [`http`] and records the [`state`], where
//! each [`process`] is identified beyond its id; [`leftovers`] stops what a killed supervisor left behind; [`log`] reads
//! and rotates logs. The [`lock`] shows that a folder is still in its place, and the [`registry`] lists the folders of all
//! control planes.

pub mod assets;
pub(crate) mod audit;
pub mod certs;
pub mod components;
pub(crate) mod failure;
pub(crate) mod file;
pub mod home;
pub mod http;
pub mod kubeconfig;
pub mod leftovers;
pub mod lock;
pub mod log;
pub mod ports;
mod prober;
pub mod process;
pub mod registry;
mod runner;
pub mod state;
pub mod supervisor;

pub use assets::Assets;
pub use home::{Home, SUPERVISOR};
pub use lock::HomeLock;
pub use ports::Ports;
pub use process::Identity;
pub use registry::Registry;
pub use state::State;
