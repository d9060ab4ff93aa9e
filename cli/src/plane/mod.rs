//! One control plane as processes of this machine.
//!
//! In the order in which [`up`](crate::up) uses them: a [`home`] holds everything; [`assets`] are the programs; [`ports`] are chosen;
//! [`certs`] and [`kubeconfig`] let the programs trust each other; [`components`] says what is run with which flags; the [`supervisor`]
//! runs it with one keeper a component, asks over [`http`] whether it is ready, and writes the [`state`] down, in which a
//! [`process`] cannot be mistaken for another; [`leftovers`] ends what a killed supervisor left behind; [`log`] reads the last lines.

pub mod assets;
pub mod certs;
pub mod components;
mod failure;
pub(crate) mod file;
pub mod home;
pub mod http;
mod keeper;
pub mod kubeconfig;
pub mod leftovers;
pub mod log;
mod look;
pub mod ports;
pub mod process;
pub mod state;
pub mod supervisor;

pub use assets::Assets;
pub use home::Home;
pub use ports::Ports;
pub use process::Identity;
pub use state::State;
