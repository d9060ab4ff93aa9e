//! Why a control plane did not start.

use std::io;
use std::path::PathBuf;

use crate::heavens::{ManifestError, RenderError};
use crate::plane::assets::AssetsError;
use crate::plane::certs::CertsError;
use crate::plane::home::HomeError;
use crate::plane::leftovers::LeftoverError;
use crate::plane::state::{Form, StateError, Store};
use crate::plane::supervisor::StartError;

/// Why a control plane did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpError {
    /// A supervisor runs there already.
    #[error(
        "the control plane in {dir:?} already runs; see `trishanku status`; to change what it consists of, stop it first with `trishanku down`"
    )]
    AlreadyRunning {
        /// The control plane's folder.
        dir: PathBuf,
    },
    /// A supervisor runs there already, with other manifests or settings.
    #[error(
        "the control plane in {dir:?} already runs other manifests; nothing changed; stop it first with `trishanku down`"
    )]
    RunsOthers {
        /// The control plane's folder.
        dir: PathBuf,
    },
    /// The folder has data in another store.
    #[error(
        "the control plane in {dir:?} keeps its data in {has}; choose another --name or --dir for one in {wanted}",
        has = .has.name(), wanted = .wanted.name()
    )]
    OtherStore {
        /// The control plane's folder.
        dir: PathBuf,
        /// The store of the existing data.
        has: Store,
        /// The requested store.
        wanted: Store,
    },
    /// The folder has data of a control plane of another form.
    #[error(
        "the control plane in {dir:?} is {has}; choose another --name or --dir for {wanted}, or continue with `trishanku {}`",
        .has.command(), has = .has.name(), wanted = .wanted.name()
    )]
    OtherForm {
        /// The control plane's folder.
        dir: PathBuf,
        /// The existing form.
        has: Form,
        /// The requested form.
        wanted: Form,
    },
    /// See [`ManifestError`].
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// See [`RenderError`].
    #[error(transparent)]
    Render(#[from] RenderError),
    /// The system has no free port.
    #[error("no free port on 127.0.0.1")]
    Ports(#[source] io::Error),
    /// The previous run's log cannot be rotated.
    #[error("cannot rotate the log {path:?}")]
    Log {
        /// The log.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// This process cannot be identified.
    #[error("cannot read /proc, which identifies processes (only Linux is supported)")]
    Identity(#[source] io::Error),
    /// See [`HomeError`].
    #[error(transparent)]
    Home(#[from] HomeError),
    /// See [`StateError`].
    #[error(transparent)]
    State(#[from] StateError),
    /// See [`AssetsError`].
    #[error(transparent)]
    Assets(#[from] AssetsError),
    /// See [`CertsError`].
    #[error(transparent)]
    Certs(#[from] CertsError),
    /// See [`LeftoverError`].
    #[error(transparent)]
    Leftover(#[from] LeftoverError),
    /// See [`StartError`].
    #[error(transparent)]
    Start(#[from] StartError),
}
