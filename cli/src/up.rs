//! Starts a control plane, supervises it, and stops it.

mod error;
mod settings;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::mpsc;

pub use self::error::UpError;
use crate::headless::{self, DESK, Topology};
use crate::heavens::{
    Audit, FlagOption, HeavenRecord, ImagePrograms, Kind, Manifests, Remark, RemoteOption, RenderError, Rendered,
    Renewal, Renewed, Request, SecretError,
};
use crate::plane::assets::{self, Assets};
use crate::plane::certs::{self, CertsError};
use crate::plane::components::{Blueprint, Component};
use crate::plane::file;
use crate::plane::home::Home;
use crate::plane::leftovers::{self, Leftover, LeftoverError};
use crate::plane::ports::{Allotted, Moved, Ports, Reservations};
use crate::plane::process::Identity;
use crate::plane::registry::Registry;
use crate::plane::state::{Form, State, Store};
use crate::plane::supervisor::{Notice, PeriodicWork, Stop, Supervisor, WorkDone};
use crate::plane::{audit, kubeconfig, log};

/// Interval of certificate checks where no renewal time is computed.
const CHECK_EVERY: Duration = Duration::from_hours(1);
/// The clients beside a kube-apiserver on one branch.
const CLIENTS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// Options of a control plane.
#[derive(Clone, Debug)]
pub struct Up {
    /// The folder of all its state.
    pub home: Home,
    /// The folder of the Kubernetes programs; `None` searches as [`Assets::find`] describes.
    pub assets: Option<PathBuf>,
    /// The gitcd program; `None` searches as [`assets::find_gitcd`] describes.
    pub gitcd: Option<PathBuf>,
    /// What it consists of.
    pub what: What,
    /// Whether commits name the users of kube-apiserver; `None` as in the previous run, or yes.
    pub audit: Option<bool>,
    /// How long each component may take to become ready.
    pub ready_within: Duration,
}

/// What a control plane consists of.
#[derive(Clone, Debug)]
pub enum What {
    /// The same as in the previous run; a headless cluster, if it is new.
    Anything(Adaptations),
    /// One kube-apiserver on one branch.
    Central {
        /// The store of the objects; `None` keeps the present one.
        store: Option<Store>,
        /// The encoding in which kube-apiserver stores objects; `None` keeps the present one.
        storage_media_type: Option<String>,
    },
    /// A headless cluster.
    Headless(Topology, Adaptations),
    /// The heavens and merges of files.
    Manifests(Adaptations),
}

/// How manifests become processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adaptations {
    /// Files with manifests.
    pub files: Vec<PathBuf>,
    /// Programs by image.
    pub images: ImagePrograms,
    /// Repositories in place of others.
    pub remotes: Vec<RemoteOption>,
    /// Flags that processes do not get.
    pub dropped_flags: Vec<FlagOption>,
    /// Flags that processes get.
    pub added_flags: Vec<FlagOption>,
}

/// An event while a control plane starts and runs.
#[derive(Debug)]
#[non_exhaustive]
pub enum Progress {
    /// A process of an earlier run was stopped.
    EndedLeftover(Leftover),
    /// Another program uses a port of the previous run.
    PortMoved(Moved),
    /// Certificates were issued for these subjects.
    Issued(Vec<String>),
    /// A remark about the manifests.
    Remark(Remark),
    /// A heaven of the previous run is in none of the files.
    LeftOut(String),
    /// A notice about the running components.
    Plane(Notice),
}

/// What is ready to be started.
struct Prepared<'a> {
    components: Vec<Component>,
    periodic_work: PeriodicWork<'a>,
    reservations: Reservations,
}

impl Up {
    /// Starts the control plane and supervises it until it is asked to stop; on return none of its processes run.
    ///
    /// # Errors
    /// See [`UpError`]. Failures after the start are reported through `notify`, not returned.
    pub async fn run(&self, stops: &mut mpsc::Receiver<Stop>, mut notify: impl FnMut(Progress)) -> Result<(), UpError> {
        let home = &self.home;
        let assets = Assets::find(self.assets.as_deref())?;
        home.create()?;
        let Some(lock) = home.try_lock()? else {
            let running = State::load(&home.state_file())?;
            if running.is_supervised() {
                self.compare(&running)?;
            }
            return Err(UpError::AlreadyRunning { dir: home.dir().into() });
        };
        let mut state = State::load(&home.state_file())?;
        let mut registry = Registry::of_user();
        if let Some(of_user) = &registry
            && let Err(error) = of_user.record(home, &lock, &state)
        {
            notify(Progress::Plane(Notice::NotListed(error)));
            registry = None;
        }
        for leftover in end_leftovers(home, &state, registry.as_ref()).await? {
            notify(Progress::EndedLeftover(leftover));
        }
        state.settings = self.settle(&state)?;
        state.manifests = self.adaptations().map(Adaptations::digest).transpose()?;
        state.supervisor = Identity::of(std::process::id()).map_err(UpError::Identity)?;
        // The ports stay reserved until all components have ended.
        let Prepared { components, periodic_work, reservations: _reservations } = match state.settings.form {
            Form::Headless(topology) => self.heavens(Some(topology), &assets, &mut state, &mut notify)?,
            Form::Manifests => self.heavens(None, &assets, &mut state, &mut notify)?,
            Form::Undecided | Form::Central => self.central(&assets, &mut state, &mut notify)?,
        };
        for component in &components {
            log::rotate(&component.log).map_err(|source| UpError::Log { path: component.log.clone(), source })?;
        }
        // Later failures to save are only reported; without this first save, no other command could find the processes.
        state.save(&home.state_file())?;
        let mut notify_plane = |notice| notify(Progress::Plane(notice));
        let supervisor = Supervisor::new(components, state, home.state_file(), &mut notify_plane)?;
        supervisor
            .with_periodic_work(periodic_work)
            .in_folder(home, &lock, registry)
            .run(stops, self.ready_within)
            .await?;
        Ok(())
    }

    /// The manifests of files, and the changes to them.
    fn adaptations(&self) -> Option<&Adaptations> {
        match &self.what {
            What::Anything(given) | What::Headless(_, given) | What::Manifests(given) => Some(given),
            What::Central { .. } => None,
        }
    }

    /// Prepares one kube-apiserver on one branch.
    fn central(
        &self,
        assets: &Assets,
        state: &mut State,
        notify: &mut impl FnMut(Progress),
    ) -> Result<Prepared<'_>, UpError> {
        let store = match state.settings.store {
            Store::Gitcd => assets::find_gitcd(self.gitcd.as_deref())?,
            Store::Etcd => assets.program("etcd"),
        };
        let Allotted { ports, moved, reservations } = Ports::choose(state.ports).map_err(UpError::Ports)?;
        moved.into_iter().map(Progress::PortMoved).for_each(&mut *notify);
        state.ports = Some(ports);
        let issued = self.equip(ports)?;
        if !issued.is_empty() {
            notify(Progress::Issued(issued.into_iter().map(ToOwned::to_owned).collect()));
        }
        let blueprint = Blueprint { home: &self.home, assets, store: &store, ports, settings: &state.settings };
        let run = move || {
            let renewed = self.equip(ports).map_err(|error| with_causes(&error))?;
            // kube-apiserver reloads its certificates when they change; its clients read theirs only once.
            let clients = CLIENTS.into_iter().filter(|client| renewed.contains(client));
            let restart = clients.map(ToOwned::to_owned).collect();
            let renewed = renewed.into_iter().map(ToOwned::to_owned).collect();
            Ok(WorkDone { renewed, restart, due_in: CHECK_EVERY })
        };
        let mut components = blueprint.components();
        if state.settings.audit {
            let folder = self.home.keys().join("audit");
            let connected = audit::connect(&mut components, ("gitcd", "kube-apiserver"), &folder, ports.audit);
            connected.map_err(|(path, source)| CertsError::File { path, source })?;
        }
        let periodic_work = PeriodicWork { due_in: CHECK_EVERY, run: Box::new(run) };
        Ok(Prepared { components, periodic_work, reservations })
    }

    /// Prepares heavens and merges: those of a headless cluster, changed by files, or those of files alone.
    fn heavens(
        &self,
        topology: Option<Topology>,
        assets: &Assets,
        state: &mut State,
        notify: &mut impl FnMut(Progress),
    ) -> Result<Prepared<'_>, UpError> {
        let home = &self.home;
        let nothing = Adaptations::default();
        let adaptations = self.adaptations().unwrap_or(&nothing);
        let mut files = Vec::new();
        if let Some(topology) = topology {
            files.extend(headless::files(home, topology).map_err(RenderError::Secret)?);
        }
        files.extend(adaptations.files.iter().cloned());
        let gitcd = assets::find_gitcd(self.gitcd.as_deref())?;
        certs::ensure_local(&home.keys(), OffsetDateTime::now_utc())?;
        let mut manifests = Manifests::read(&files)?;
        let mut after = BTreeMap::new();
        if let Some(topology) = topology {
            headless::join(home, topology, &mut manifests).map_err(RenderError::Secret)?;
            after = headless::first_start(topology, &manifests);
        }
        let mut rendered = Rendered::of(
            manifests,
            &Request {
                home,
                assets,
                gitcd: &gitcd,
                images: &adaptations.images,
                remotes: &adaptations.remotes,
                dropped_flags: &adaptations.dropped_flags,
                added_flags: &adaptations.added_flags,
                // In a headless cluster, people use the desk. The commits of the others name their heaven, and must not wait.
                audit: if topology.is_some() { Audit::OfHeaven(DESK) } else { Audit::OfAll }
                    .only_if(state.settings.audit),
                ports: &state.allotted,
                after: &after,
            },
        )?;
        rendered.remarks.into_iter().map(Progress::Remark).for_each(&mut *notify);
        rendered.moved.into_iter().map(Progress::PortMoved).for_each(&mut *notify);
        if !rendered.issued.is_empty() {
            notify(Progress::Issued(rendered.issued));
        }
        // The user's kubeconfig is that of the desk, or of the first heaven that has one.
        let first = rendered.records.iter().find_map(|record| record.kubeconfig.as_ref());
        if let Some(kubeconfig) = first {
            let path = home.kubeconfig();
            let copied = std::fs::read(kubeconfig).and_then(|content| file::replace(&path, &content, 0o600));
            copied.map_err(|source| RenderError::Secret(SecretError::File { path: path.clone(), source }))?;
            if let Some(renewal) = &mut rendered.renewal {
                renewal.follow(kubeconfig.clone(), path);
            }
        }
        left_out(&state.heavens, &rendered.records).map(Progress::LeftOut).for_each(&mut *notify);
        let periodic_work = periodic_work(home.keys(), rendered.renewal, &rendered.components);
        state.allotted = rendered.ports;
        state.heavens = rendered.records;
        Ok(Prepared { components: rendered.components, periodic_work, reservations: rendered.reservations })
    }

    /// Issues missing certificates and writes the kubeconfigs.
    fn equip(&self, ports: Ports) -> Result<Vec<&'static str>, CertsError> {
        let keys = self.home.keys();
        let issued = certs::ensure(&keys, OffsetDateTime::now_utc())?;
        kubeconfig::write(&self.home.kubeconfig(), &keys, "admin", ports.apiserver)?;
        for component in CLIENTS {
            let path = self.home.component_kubeconfig(component);
            kubeconfig::write(&path, &keys, component, ports.apiserver)?;
        }
        Ok(issued)
    }
}

/// Renews certificates of heavens, and restarts the components that read them only once.
fn periodic_work<'a>(keys: PathBuf, renewal: Option<Renewal>, components: &[Component]) -> PeriodicWork<'a> {
    let until = |due: Option<OffsetDateTime>| {
        let left = due.map(|due| due - OffsetDateTime::now_utc());
        // Not zero: what is due now is renewed a moment later.
        left.map_or(CHECK_EVERY, |left| Duration::try_from(left).unwrap_or_default().max(Duration::from_secs(1)))
    };
    // Only users' components restart; the others reload certificates when these change.
    let users = components.iter().filter(|component| !component.is_essential).map(|component| component.name.clone());
    let users: Vec<String> = users.collect();
    let due_in = until(renewal.as_ref().and_then(Renewal::due));
    let mut renewal = renewal;
    let run = move || {
        // No restart for the certificates of this machine: both sides read them for each connection.
        let local = certs::ensure_local(&keys, OffsetDateTime::now_utc()).map_err(|error| with_causes(&error))?;
        let mut renewed: Vec<String> = local.into_iter().map(ToOwned::to_owned).collect();
        let Some(renewal) = &mut renewal else {
            return Ok(WorkDone { renewed, restart: Vec::new(), due_in: CHECK_EVERY });
        };
        let Renewed { issued, heavens } = renewal.renew().map_err(|error| with_causes(&error))?;
        renewed.extend(issued);
        let is_of = |name: &&String| heavens.iter().any(|heaven| name.split('/').next() == Some(heaven));
        let restart = users.iter().filter(is_of).cloned().collect();
        Ok(WorkDone { renewed, restart, due_in: until(renewal.due()).min(CHECK_EVERY) })
    };
    PeriodicWork { due_in, run: Box::new(run) }
}

/// Heavens of the previous run that are missing from this one. Merges are left out: they depend on the topology.
fn left_out(before: &[HeavenRecord], now: &[HeavenRecord]) -> impl Iterator<Item = String> {
    let is_there = |name: &str| now.iter().any(|record| record.name == name);
    let gone = before.iter().filter(move |record| record.kind == Kind::Heaven && !is_there(&record.name));
    gone.map(|record| record.name.clone())
}

/// Formats an error and its causes in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

async fn end_leftovers(
    home: &Home,
    state: &State,
    registry: Option<&Registry>,
) -> Result<Vec<Leftover>, LeftoverError> {
    let (home, state, registry) = (home.clone(), state.clone(), registry.cloned());
    let end = move || {
        let mut ended = leftovers::end(&state)?;
        if let Some(registry) = registry {
            ended.extend(leftovers::end_strays(&home, &registry)?);
        }
        Ok(ended)
    };
    tokio::task::spawn_blocking(end).await.expect("stopping processes does not panic, and nothing cancels it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavens_that_no_file_has_any_more_are_named() {
        let record = |name: &str, kind| HeavenRecord {
            name: name.into(),
            kind,
            branch: "refs/heads/main".into(),
            metadata: None,
            repository: "/repo".into(),
            gitcd_port: None,
            kubeconfig: None,
            remotes: Vec::new(),
        };
        let before =
            [record("desk", Kind::Heaven), record("sample", Kind::Heaven), record("cluster-automerge", Kind::Merge)];
        let gone: Vec<_> = left_out(&before, &before[..1]).collect();
        assert_eq!(gone, ["sample"]);
        assert_eq!(left_out(&before, &before).count(), 0);
    }
}
