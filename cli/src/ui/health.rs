//! The health that the page shows: that of `trishanku status`.

mod branch;
mod repository;

use std::path::PathBuf;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::runtime::Builder;
use trishanku::plane::Home;
use trishanku::status::{ComponentReport, Health as Overall, HeavenReport, Report};
use trishanku_page::health::{BranchHealth, ComponentHealth, Finding, Health, HealthReport, HealthState};

pub(crate) use self::repository::{Gitcd, RepositoryHealth};

/// The reference of a store that no heaven has.
const MAIN: &str = "refs/heads/main";

/// The health of a control plane that `trishanku` brought up.
pub(super) struct PlaneHealth(PathBuf);

impl PlaneHealth {
    pub(super) fn of(home: &Home) -> Self {
        Self(home.dir().to_owned())
    }
}

impl Health for PlaneHealth {
    fn report(&self) -> BoxFuture<'static, HealthReport> {
        let home = Home::at(&self.0);
        apart(move || async move {
            match trishanku::status::read(&home) {
                Ok(report) => of_plane(&report.with_store_figures().await),
                Err(error) => HealthReport::unknown("the state cannot be read", vec![error.to_string()]),
            }
        })
    }
}

/// Runs on a thread with an event loop of its own: a status runs Git, and reads files and processes.
fn apart<F: Future<Output = HealthReport>>(
    make: impl FnOnce() -> F + Send + 'static,
) -> BoxFuture<'static, HealthReport> {
    let work = move || match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(make()),
        Err(error) => HealthReport::unknown("cannot start an event loop", vec![error.to_string()]),
    };
    async move {
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|error| HealthReport::unknown("an internal error", vec![error.to_string()]))
    }
    .boxed()
}

fn of_plane(report: &Report) -> HealthReport {
    let branches: Vec<BranchHealth> = if report.heavens.is_empty() {
        of_store(report).into_iter().collect()
    } else {
        report.heavens.iter().map(|heaven| of_heaven(heaven, &report.components)).collect()
    };
    let is_healthy = matches!(report.health, Overall::Ready | Overall::StandingBy);
    let is_good = is_healthy && branches.iter().all(|branch| branch.state.is_good);
    // The components can be ready while the status of a branch is bad, or unknown.
    let word = if is_healthy && !is_good { Overall::Degraded.word() } else { report.health.word() };
    let of_no_branch = report.components.iter().filter(|component| branches.is_empty() || component.heaven().is_none());
    HealthReport {
        state: Some(HealthState { word: word.to_owned(), is_good }),
        problems: of_no_branch.filter_map(failure).collect(),
        branches,
        components: report.components.iter().map(of_component).collect(),
    }
}

fn of_component(component: &ComponentReport) -> ComponentHealth {
    ComponentHealth {
        name: component.name.clone(),
        state: state_of(component),
        uptime_seconds: component.uptime_seconds,
        restarts: component.restarts,
    }
}

fn state_of(component: &ComponentReport) -> HealthState {
    let word = component.word();
    HealthState { word: word.to_owned(), is_good: matches!(word, "ready" | "waiting") }
}

/// Returns how a component failed. The log may name objects.
fn failure(component: &ComponentReport) -> Option<Finding> {
    let failure = component.failure.as_ref()?;
    let details = failure.remedy.iter().chain(&failure.tail).cloned().collect();
    Some(Finding { what: format!("{}: {}", component.name, failure.cause), details })
}

/// Returns the health of the branch of a heaven or merge.
fn of_heaven(heaven: &HeavenReport, components: &[ComponentReport]) -> BranchHealth {
    let own: Vec<_> = components.iter().filter(|component| component.heaven() == Some(&heaven.name)).collect();
    let gitcd = own.iter().find(|component| component.name.ends_with("/gitcd")).or(own.first()).copied();
    let mut health = branch::of(heaven, gitcd.map(state_of));
    health.problems.extend(own.into_iter().filter_map(failure));
    health
}

/// Returns the health of the branch of a control plane without heavens.
fn of_store(report: &Report) -> Option<BranchHealth> {
    let (repository, component) = (report.repository.clone()?, report.components.first());
    let name = component.map_or("gitcd", |component| component.name.as_str());
    let mut store = HeavenReport::of_repository(name, repository, MAIN);
    store.restarts = component.map_or(0, |component| component.restarts);
    if let Some(status) = &report.store_status {
        store.add(status.clone());
    }
    Some(branch::of(&store, component.map(state_of)))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use trishanku::plane::state::{Component, Condition, Phase};
    use trishanku::plane::{Identity, State};

    use super::*;

    /// Returns the health of a control plane with this state.
    async fn health(folder: &TempDir, state: &State) -> HealthReport {
        let home = Home::at(folder.path());
        state.save(&home.state_file()).expect("the folder is writable");
        PlaneHealth::of(&home).report().await
    }

    fn component(name: &str, condition: Condition) -> Component {
        let process = Identity::of(std::process::id()).expect("/proc is readable");
        Component {
            name: name.into(),
            // Below those that programs listen on without rights.
            port: Some(1),
            condition,
            process: process.filter(|_| condition == Condition::Ready),
            started_unix_seconds: Some(0),
            restarts: 2,
            last_exit: (condition == Condition::BackingOff).then(|| "exited with code 3".to_owned()),
        }
    }

    #[tokio::test]
    async fn a_store_that_does_not_respond_is_not_healthy_although_its_process_runs() {
        let folder = TempDir::new().expect("the temporary folder is writable");
        let mut state = State {
            phase: Phase::Ready,
            supervisor: Identity::of(std::process::id()).expect("/proc is readable"),
            components: vec![component("gitcd", Condition::Ready), component("kube-apiserver", Condition::Ready)],
            ..State::default()
        };
        let report = health(&folder, &state).await;
        assert_eq!(report.state, Some(HealthState { word: "degraded".into(), is_good: false }));
        let branch = &report.branches[0];
        assert_eq!((branch.name.as_str(), branch.state.word.as_str()), ("gitcd", "not reachable"));
        assert_eq!(branch.problems[0].what, "its gitcd does not report its status");
        assert!(report.components.iter().all(|component| component.state.is_good), "{report:?}");

        state.components[0] = component("gitcd", Condition::BackingOff);
        let report = health(&folder, &state).await;
        assert_eq!(report.branches[0].state, HealthState { word: "restarting".into(), is_good: false });
        let problem = &report.problems[0].what;
        assert!(problem.starts_with("gitcd: ") && problem.contains("code 3"), "{problem}");

        let report = health(&folder, &State::default()).await;
        assert_eq!(report.state, Some(HealthState { word: "stopped".into(), is_good: false }));
    }

    #[tokio::test]
    async fn a_state_that_cannot_be_read_is_unknown() {
        let folder = TempDir::new().expect("the temporary folder is writable");
        let home = Home::at(folder.path());
        std::fs::write(home.state_file(), "{").expect("the folder is writable");
        let report = PlaneHealth::of(&home).report().await;
        assert_eq!((report.state, report.problems[0].what.as_str()), (None, "the state cannot be read"));
    }
}
