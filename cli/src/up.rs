//! From nothing to a running control plane, and back.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::plane::assets::{self, Assets, AssetsError};
use crate::plane::certs::{self, CertsError};
use crate::plane::components::Blueprint;
use crate::plane::home::{Home, HomeError};
use crate::plane::leftovers::{self, Leftover, LeftoverError};
use crate::plane::ports::{Moved, Ports};
use crate::plane::process::Identity;
use crate::plane::state::{Settings, State, StateError, Store};
use crate::plane::supervisor::{Notice, StartError, Stop, Supervisor};
use crate::plane::{kubeconfig, log};

/// What can be chosen about a control plane.
#[derive(Clone, Debug)]
pub struct Up {
    /// Where everything is kept.
    pub home: Home,
    /// The folder of the Kubernetes programs; `None` searches as [`Assets::find`] tells.
    pub assets: Option<PathBuf>,
    /// The gitcd program; `None` searches as [`assets::find_gitcd`] tells.
    pub gitcd: Option<PathBuf>,
    /// What the objects are stored in; `None` keeps what the control plane has.
    pub store: Option<Store>,
    /// The encoding in which kube-apiserver stores objects; `None` keeps what the control plane has.
    pub storage_media_type: Option<String>,
    /// How long each component may take to get ready.
    pub ready_within: Duration,
}

/// What is told while a control plane comes up and runs.
#[derive(Debug)]
#[non_exhaustive]
pub enum Progress {
    /// A process of an earlier run was ended.
    EndedLeftover(Leftover),
    /// Somebody else has taken a port of the previous run.
    PortMoved(Moved),
    /// Certificates were issued for these.
    Issued(Vec<&'static str>),
    /// From the running components.
    Plane(Notice),
}

/// Why a control plane did not come up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpError {
    /// A supervisor runs there already.
    #[error("the control plane in {dir:?} already runs; see `trishanku status`, stop it with `trishanku down`")]
    AlreadyRunning {
        /// The control plane's folder.
        dir: PathBuf,
    },
    /// There is data of another store.
    #[error(
        "the control plane in {dir:?} keeps its data in {has}; choose another --name or --dir for one in {wanted}",
        has = .has.name(), wanted = .wanted.name()
    )]
    OtherStore {
        /// The control plane's folder.
        dir: PathBuf,
        /// What it has.
        has: Store,
        /// What was asked for.
        wanted: Store,
    },
    /// The system has no free port.
    #[error("no free port on 127.0.0.1")]
    Ports(#[source] io::Error),
    /// The previous run's log cannot be put aside.
    #[error("cannot put the log {path:?} aside")]
    Log {
        /// The log.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// This process cannot be identified.
    #[error("cannot read /proc, by which processes are told apart (only Linux is supported)")]
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

impl Up {
    /// Brings the control plane up and keeps it up until told to stop; nothing of it runs any more on return.
    ///
    /// # Errors
    /// Whatever keeps it from coming up, see [`UpError`]. What happens later is told, not returned.
    pub async fn run(&self, stops: &mut mpsc::Receiver<Stop>, mut tell: impl FnMut(Progress)) -> Result<(), UpError> {
        let home = &self.home;
        let assets = Assets::find(self.assets.as_deref())?;
        home.create()?;
        let Some(_lock) = home.try_lock()? else {
            return Err(UpError::AlreadyRunning { dir: home.dir().into() });
        };
        let mut state = State::load(&home.state_file())?;
        for leftover in end_leftovers(&state).await? {
            tell(Progress::EndedLeftover(leftover));
        }
        state.settings = self.settle(&state)?;
        let store = match state.settings.store {
            Store::Gitcd => assets::find_gitcd(self.gitcd.as_deref())?,
            Store::Etcd => assets.program("etcd"),
        };
        let (ports, moved) = Ports::choose(state.ports).map_err(UpError::Ports)?;
        moved.into_iter().map(Progress::PortMoved).for_each(&mut tell);
        state.ports = Some(ports);
        let issued = self.equip(ports)?;
        if !issued.is_empty() {
            tell(Progress::Issued(issued));
        }
        state.supervisor = Identity::of(std::process::id()).map_err(UpError::Identity)?;
        let components =
            Blueprint { home, assets: &assets, store: &store, ports, settings: &state.settings }.components();
        for component in &components {
            log::rotate(&component.log).map_err(|source| UpError::Log { path: component.log.clone(), source })?;
        }
        // Later failures to write are only told; but without this first one nobody could find what is about to start.
        state.save(&home.state_file())?;
        let mut tell_notice = |notice| tell(Progress::Plane(notice));
        Supervisor::new(components, state, home.state_file(), &mut tell_notice)?.run(stops, self.ready_within).await?;
        Ok(())
    }

    fn settle(&self, state: &State) -> Result<Settings, UpError> {
        let mut settings = state.settings.clone();
        let has_data = self.home.repository().exists() || self.home.etcd_data().exists();
        match self.store {
            Some(wanted) if wanted != settings.store && has_data => {
                return Err(UpError::OtherStore { dir: self.home.dir().into(), has: settings.store, wanted });
            }
            Some(wanted) => settings.store = wanted,
            None => {}
        }
        if let Some(media_type) = &self.storage_media_type {
            settings.storage_media_type.clone_from(media_type);
        }
        Ok(settings)
    }

    /// Certificates and kubeconfigs.
    fn equip(&self, ports: Ports) -> Result<Vec<&'static str>, CertsError> {
        let keys = self.home.keys();
        let issued = certs::ensure(&keys, time::OffsetDateTime::now_utc())?;
        kubeconfig::write(&self.home.kubeconfig(), &keys, "admin", ports.apiserver)?;
        for component in ["kube-controller-manager", "kube-scheduler"] {
            let path = self.home.component_kubeconfig(component);
            kubeconfig::write(&path, &keys, component, ports.apiserver)?;
        }
        Ok(issued)
    }
}

async fn end_leftovers(state: &State) -> Result<Vec<Leftover>, LeftoverError> {
    let state = state.clone();
    tokio::task::spawn_blocking(move || leftovers::end(&state))
        .await
        .expect("ending processes does not panic, and nothing cancels it")
}
