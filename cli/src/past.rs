//! A kube-apiserver on the past of a branch: on a fork of it, for reading only, as long as a command runs.
//!
//! The fork is a repository of its own in a folder of its own, which is removed at the end. The kube-apiserver can write to it,
//! as it does at each start; its users cannot (`--authorization-mode=ABAC` with a policy for reads).

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::{mpsc, oneshot};

use crate::complaint;
use crate::plane::assets::Assets;
use crate::plane::certs::{self, CertsError};
use crate::plane::components::Blueprint;
use crate::plane::home::{Home, HomeError};
use crate::plane::kubeconfig;
use crate::plane::leftovers::{self, LeftoverError};
use crate::plane::ports::{Allotted, Ports};
use crate::plane::process::Identity;
use crate::plane::state::{Settings, State, StateError};
use crate::plane::supervisor::{Notice, StartError, Stop, Supervisor};

/// The user as whom the administrator reads. The name is in kube-apiserver's refusals.
const READER: &str = "reader-of-the-past";

/// Reads of everything, the readiness probe, and the questions that clients ask about their own rights. Source: Kubernetes,
/// `pkg/apis/abac/v1beta1`; `readonly` allows get, list and watch.
const POLICY: &str = r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"*","apiGroup":"*","namespace":"*","resource":"*","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"*","nonResourcePath":"*","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"system:unauthenticated","nonResourcePath":"/readyz","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"*","apiGroup":"authorization.k8s.io","namespace":"*","resource":"*"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"*","apiGroup":"authentication.k8s.io","namespace":"*","resource":"selfsubjectreviews"}}
"#;

/// What a kube-apiserver on the past runs with.
#[derive(Clone, Debug)]
pub struct Past<'a> {
    /// The folder in which it gets a folder of its own.
    pub folder: &'a Path,
    /// The Kubernetes programs.
    pub assets: &'a Assets,
    /// The gitcd program.
    pub gitcd: &'a Path,
    /// How long each server may take to become ready.
    pub ready_within: Duration,
}

/// The fork on which it runs.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub struct Forked {
    /// Its revision.
    pub revision: i64,
    /// Its data commit.
    pub commit: String,
    /// When that was committed, in seconds since 1970.
    pub time: i64,
}

/// Why there is no kube-apiserver on the past.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PastError {
    /// The folder cannot be created or removed.
    #[error("cannot {action} {path:?}")]
    Folder {
        /// The failed operation.
        action: &'static str,
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// gitcd cannot be started.
    #[error("cannot start {program:?}")]
    Start {
        /// The program.
        program: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// gitcd does not fork the branch.
    #[error("{0}")]
    Fork(String),
    /// There is no free port.
    #[error("cannot choose loopback ports")]
    Ports(#[source] io::Error),
    /// This process cannot be identified.
    #[error("cannot identify this process")]
    Identity(#[source] io::Error),
    /// It was interrupted before the servers were ready.
    #[error("interrupted")]
    Interrupted,
    /// See [`HomeError`].
    #[error(transparent)]
    Home(#[from] HomeError),
    /// See [`CertsError`].
    #[error(transparent)]
    Certs(#[from] CertsError),
    /// See [`StateError`].
    #[error(transparent)]
    State(#[from] StateError),
    /// See [`StartError`].
    #[error(transparent)]
    Servers(#[from] StartError),
    /// See [`LeftoverError`].
    #[error(transparent)]
    Leftover(#[from] LeftoverError),
}

impl Past<'_> {
    /// Forks a branch, starts a kube-apiserver on the fork, and passes its kubeconfig to `work`. When that is done, stops the
    /// servers and removes the fork. `fork` is the command `gitcd fork` with the flags of the branch and the moment; `interrupted`
    /// ends the start early.
    ///
    /// # Errors
    /// [`PastError`]; no process is left.
    pub async fn serve<T>(
        &self,
        fork: Command,
        interrupted: impl Future<Output = ()>,
        work: impl AsyncFnOnce(&Path, &Forked) -> T,
    ) -> Result<T, PastError> {
        let folder = self.new_folder()?;
        let home = Home::at(folder.path());
        home.create()?;
        let supervisor = Identity::of(std::process::id()).map_err(PastError::Identity)?;
        let mut state = State { supervisor, ..State::default() };
        // Without it, a later command could not find what a killed one left behind.
        state.save(&home.state_file())?;
        let forked = forked(fork, &home)?;
        let Allotted { ports, reservations: _reservations, .. } = Ports::choose(None).map_err(PastError::Ports)?;
        certs::ensure(&home.keys(), OffsetDateTime::now_utc())?;
        kubeconfig::write_impersonating(&home.kubeconfig(), &home.keys(), ("admin", READER), ports.apiserver)?;
        let policy = home.dir().join("policy.jsonl");
        std::fs::write(&policy, POLICY).map_err(failed("write", &policy))?;
        let settings = Settings::default();
        let blueprint = Blueprint { home: &home, assets: self.assets, store: self.gitcd, ports, settings: &settings };
        let components = blueprint.read_only(&policy);
        state.ports = Some(ports);

        let (ready, is_ready) = oneshot::channel();
        let mut ready = Some(ready);
        let mut notify = |notice: Notice| {
            if let Notice::AllReady { .. } = notice
                && let Some(ready) = ready.take()
            {
                let _gone = ready.send(());
            }
        };
        let (stop, mut stops) = mpsc::channel(1);
        let supervisor = Supervisor::new(components, state, home.state_file(), &mut notify)?;
        let mut serving = std::pin::pin!(supervisor.run(&mut stops, self.ready_within));
        let kubeconfig = home.kubeconfig();
        let started = tokio::select! {
            ended = &mut serving => return Err(ended.err().map_or(PastError::Interrupted, PastError::Servers)),
            Ok(()) = is_ready => true,
            () = interrupted => false,
        };
        let outcome = if started {
            tokio::select! {
                ended = &mut serving => return Err(ended.err().map_or(PastError::Interrupted, PastError::Servers)),
                done = work(&kubeconfig, &forked) => Ok(done),
            }
        } else {
            Err(PastError::Interrupted)
        };
        let _gone = stop.send(Stop).await;
        serving.await?;
        let path = folder.path().to_owned();
        folder.close().map_err(failed("remove", &path))?;
        outcome
    }

    /// Creates the folder. Before that, removes those whose command was killed, with their processes.
    fn new_folder(&self) -> Result<tempfile::TempDir, PastError> {
        std::fs::create_dir_all(self.folder).map_err(failed("create", self.folder))?;
        for entry in std::fs::read_dir(self.folder).map_err(failed("read", self.folder))? {
            let path = entry.map_err(failed("read", self.folder))?.path();
            let state = Home::at(&path).state_file();
            if !state.is_file() {
                continue;
            }
            // A damaged one cannot be cleared up here, and must not stand in the way.
            let Ok(state) = State::load(&state) else { continue };
            if !state.is_supervised() {
                leftovers::end(&state)?;
                std::fs::remove_dir_all(&path).map_err(failed("remove", &path))?;
            }
        }
        tempfile::TempDir::new_in(self.folder).map_err(failed("create a folder in", self.folder))
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PastError {
    let path = path.to_owned();
    move |source| PastError::Folder { action, path, source }
}

/// Runs `gitcd fork` into the repository of a control plane.
fn forked(mut fork: Command, home: &Home) -> Result<Forked, PastError> {
    fork.args(["--json", "--shared"]).arg(home.repository());
    let output = fork.output().map_err(|source| PastError::Start { program: fork.get_program().into(), source })?;
    if !output.status.success() {
        let said = complaint::of(&output.stderr);
        return Err(PastError::Fork(if said.is_empty() { format!("gitcd fork: {}", output.status) } else { said }));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| PastError::Fork(format!("gitcd printed other JSON: {error}")))
}
