//! The health of a control plane, and how far the store's commits are behind.

mod heavens;
mod kinds;
mod store;

use std::path::PathBuf;
use std::time::SystemTime;

use serde::Serialize;

use crate::headless::Topology;
use crate::heavens::HeavenRecord;
use crate::plane::failure::{Failure, repeated};
use crate::plane::home::Home;
use crate::plane::process::Identity;
use crate::plane::state::{Component, Condition, Form, Phase, State, StateError, Store};

pub use self::heavens::{HeavenReport, RemoteReport};
pub use self::kinds::Unlistable;
pub use self::store::{StoreFigures, StoreStatus};

/// The status of one control plane.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The overall health.
    pub health: Health,
    /// Its folder.
    pub dir: PathBuf,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// What it consists of.
    pub form: Form,
    /// The Git repository with all branches; `None` if the data is in an etcd.
    pub repository: Option<PathBuf>,
    /// The supervisor's process id, while it runs.
    pub supervisor_pid: Option<u32>,
    /// The components in start order.
    pub components: Vec<ComponentReport>,
    /// Metrics of the store, if there is one and it responds.
    pub store: Option<StoreFigures>,
    /// The heavens and merges.
    pub heavens: Vec<HeavenReport>,
    /// The kinds that an API server cannot list.
    pub unlistable: Vec<Unlistable>,
    /// What the store responds, if there are no heavens, and it runs.
    #[serde(skip)]
    pub store_status: Option<StoreStatus>,
    #[serde(skip)]
    records: Vec<HeavenRecord>,
}

/// The overall health, checked against the running processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    /// Nothing runs.
    Stopped,
    /// It is starting.
    Starting,
    /// Every component is ready.
    Ready,
    /// Another server writes a branch: the components that are not ready wait for their turn.
    StandingBy,
    /// A component that has been ready is not, or an API server cannot list a kind.
    Degraded,
    /// It is stopping.
    Stopping,
    /// Components run without the supervisor; `up` or `down` stops them.
    Orphaned,
}

/// The status of one component.
#[derive(Clone, Debug, Serialize)]
pub struct ComponentReport {
    /// Its name.
    pub name: String,
    /// Its process id, while it runs.
    pub pid: Option<u32>,
    /// Its condition.
    pub condition: Condition,
    /// Its loopback port, if it has one.
    pub port: Option<u16>,
    /// How long it has been running.
    pub uptime_seconds: Option<u64>,
    /// How often it was restarted after it exited by itself.
    pub restarts: u32,
    /// How it exited last and the end of its log, if it exited by itself and has not been ready since.
    pub failure: Option<Failure>,
}

/// Reads the state and checks it against the running processes; sends no requests.
///
/// # Errors
/// [`StateError`] if the state file cannot be read.
pub fn read(home: &Home) -> Result<Report, StateError> {
    let state = State::load(&home.state_file())?;
    let now = SystemTime::now();
    let components: Vec<_> =
        state.components.iter().map(|component| ComponentReport::of(home, component, now)).collect();
    Ok(Report {
        health: health_of(&state),
        dir: home.dir().into(),
        kubeconfig: home.kubeconfig(),
        form: state.settings.form,
        repository: repository(home, &state),
        supervisor_pid: state.supervisor.filter(Identity::is_alive).map(|supervisor| supervisor.pid),
        heavens: state.heavens.iter().map(|record| HeavenReport::of(record, &components)).collect(),
        records: state.heavens,
        components,
        unlistable: Vec::new(),
        store: None,
        store_status: None,
    })
}

/// The repository with all branches: the upstream, if there is one; otherwise that of the first heaven, which pulls from
/// all others.
#[must_use]
pub fn repository(home: &Home, state: &State) -> Option<PathBuf> {
    match state.settings.form {
        Form::Headless(Topology::Star) => Some(home.upstream()),
        Form::Headless(Topology::Mesh) | Form::Manifests => {
            state.heavens.first().map(|heaven| heaven.repository.clone())
        }
        Form::Central | Form::Undecided => (state.settings.store == Store::Gitcd).then(|| home.repository()),
    }
}

impl Report {
    /// Adds the metrics of the stores that run. A store that does not respond within seconds has none.
    #[must_use]
    pub async fn with_store_figures(mut self) -> Self {
        let keys = Home::at(&self.dir).keys();
        let records = std::mem::take(&mut self.records);
        let components = &self.components;
        let asked = self.heavens.iter_mut().zip(&records).map(|(heaven, record)| {
            let gitcd = format!("{}/gitcd", record.name);
            let runs = components.iter().any(|component| component.name == gitcd && component.pid.is_some());
            heaven.ask(record, &keys, runs)
        });
        futures::future::join_all(asked).await;
        self.records = records;
        if !self.heavens.is_empty() {
            return self;
        }
        let store = self.components.first().filter(|store| store.pid.is_some());
        if let Some(port) = store.and_then(|store| store.port) {
            let status = StoreStatus::ask(port, &keys).await;
            self.store = status.figures;
            self.store_status = Some(status);
        }
        self
    }
}

impl Report {
    /// Lists every kind at each ready API server; the control plane is degraded if one cannot list a kind.
    #[must_use]
    pub async fn with_kinds(mut self) -> Self {
        let is_ready = |name: &str| {
            self.components.iter().any(|component| component.name == name && component.condition == Condition::Ready)
        };
        let mut asked = Vec::new();
        if is_ready("kube-apiserver") {
            asked.push((None, self.kubeconfig.clone()));
        }
        for heaven in &self.heavens {
            if let Some(kubeconfig) = heaven.kubeconfig.clone()
                && is_ready(&format!("{}/kube-apiserver", heaven.name))
            {
                asked.push((Some(heaven.name.clone()), kubeconfig));
            }
        }
        for (heaven, kubeconfig) in asked {
            match kinds::unlistable(heaven.as_deref(), &kubeconfig).await {
                Ok(found) => self.unlistable.extend(found),
                Err(reason) => {
                    self.unlistable.push(Unlistable { heaven, resource: "apis".to_owned(), reason, after: None });
                }
            }
        }
        if !self.unlistable.is_empty() && self.health == Health::Ready {
            self.health = Health::Degraded;
        }
        self
    }
}

impl Health {
    /// Returns the health in one word, as in JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Starting => "starting",
            Self::StandingBy => "standing-by",
            Self::Degraded => "degraded",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Orphaned => "orphaned",
        }
    }
}

impl ComponentReport {
    /// Returns its condition in one word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.condition {
            Condition::Ready => "ready",
            Condition::Starting => "starting",
            Condition::Waiting => "waiting",
            Condition::BackingOff => "restarting",
            Condition::Stopped => "stopped",
        }
    }

    /// The heaven or merge to which it belongs.
    #[must_use]
    pub fn heaven(&self) -> Option<&str> {
        self.name.split_once('/').map(|(heaven, _)| heaven)
    }

    fn of(home: &Home, component: &Component, now: SystemTime) -> Self {
        let process = component.process.as_ref().filter(|p| p.is_alive());
        let condition = condition(component);
        let is_failing = matches!(condition, Condition::BackingOff | Condition::Starting);
        let failure = component.last_exit.as_ref().filter(|_| is_failing).map(|cause| {
            let log = home.log(&component.name);
            Failure::read(&component.name, repeated(cause, component.restarts), log)
        });
        Self {
            name: component.name.clone(),
            pid: process.map(|p| p.pid),
            condition,
            port: component.port,
            uptime_seconds: process.and(component.uptime(now)).map(|uptime| uptime.as_secs()),
            restarts: component.restarts,
            failure,
        }
    }
}

/// The condition of a component, checked against its process.
fn condition(component: &Component) -> Condition {
    match component.condition {
        // The supervisor was killed, or has not noticed yet.
        Condition::Starting | Condition::Ready if !is_alive(component) => Condition::Stopped,
        condition => condition,
    }
}

fn is_alive(component: &Component) -> bool {
    component.process.as_ref().is_some_and(Identity::is_alive)
}

/// Returns the overall health, checked against the running processes; sends no requests.
pub(crate) fn health_of(state: &State) -> Health {
    if !state.is_supervised() {
        return if state.components.iter().any(is_alive) { Health::Orphaned } else { Health::Stopped };
    }
    let conditions: Vec<Condition> = state.components.iter().map(condition).collect();
    let all_ready = conditions.iter().all(|condition| *condition == Condition::Ready);
    let stands_by = conditions.iter().all(|condition| matches!(condition, Condition::Ready | Condition::Waiting));
    match state.phase {
        Phase::Ready if all_ready => Health::Ready,
        Phase::Ready if stands_by => Health::StandingBy,
        Phase::Ready => Health::Degraded,
        // The supervisor runs, but has not written its state yet, or is about to exit.
        Phase::Starting => Health::Starting,
        Phase::Stopping | Phase::Stopped => Health::Stopping,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_plane_that_never_ran_is_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let report = read(&Home::at(dir.path())).unwrap();
        assert_eq!(report.health, Health::Stopped);
        assert!(report.components.is_empty());
    }

    #[test]
    fn running_components_without_their_supervisor_are_orphans() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let state = State {
            phase: Phase::Ready,
            components: vec![Component {
                name: "gitcd".into(),
                port: Some(1),
                condition: Condition::Ready,
                process: Identity::of(std::process::id()).unwrap(),
                started_unix_seconds: Some(0),
                restarts: 0,
                last_exit: None,
            }],
            ..State::default()
        };
        state.save(&home.state_file()).unwrap();
        assert_eq!(read(&home).unwrap().health, Health::Orphaned);
    }
}
