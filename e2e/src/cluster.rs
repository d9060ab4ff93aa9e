//! A control plane for one test binary.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use trishanku::plane::home::Home;
use trishanku::plane::state::{State, Store};
use trishanku::plane::{Assets, certs, log};
use trishanku::status::{self, Health};

use crate::{programs, wait};

/// Longer than the grace periods of all components together.
const STOP_WITHIN: Duration = Duration::from_mins(2);

/// Options of a control plane under test.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The storage media type of kube-apiserver; `None` is the default of `trishanku up`.
    pub storage_media_type: Option<&'static str>,
    /// The shape of the control plane.
    pub shape: Shape,
    /// The store of a central control plane; `None` for the one that the scenarios run on.
    pub store: Option<Store>,
    /// Additional arguments for `trishanku up`.
    pub arguments: Vec<String>,
    /// Whether its gitcd also serves the repository to Git clients.
    pub git_host: bool,
    /// Whether its gitcd dry-runs pushed files at the kube-apiserver.
    pub tries_pushes: bool,
}

/// The shape of a control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// One kube-apiserver on one branch.
    #[default]
    Central,
    /// A headless cluster with an upstream repository.
    Star,
    /// A headless cluster in which each heaven pulls from all others.
    Mesh,
}

/// A running control plane in a temporary folder, stopped on drop.
pub struct Cluster {
    home: Home,
    assets: Assets,
    programs: PathBuf,
    options: Options,
    git_host: Option<SocketAddr>,
    supervisor: Mutex<Option<Supervisor>>,
    dir: TempDir,
}

/// The `trishanku up` process, which stops everything when its standard input is closed.
struct Supervisor {
    process: Child,
    input: ChildStdin,
}

impl Cluster {
    /// Starts a control plane and waits until it is ready.
    ///
    /// # Errors
    /// If programs are missing or it does not become ready; the text has the output of `trishanku up`.
    pub fn start(options: Options) -> anyhow::Result<Self> {
        let assets = Assets::find(None)?;
        let programs = programs::folder()?;
        let mut dir = tempfile::Builder::new().prefix("trishanku-e2e-").tempdir()?;
        dir.disable_cleanup(std::env::var_os("TRISHANKU_E2E_KEEP").is_some());
        let free_port = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr();
        let cluster = Self {
            git_host: options.git_host.then(free_port).transpose()?,
            home: Home::at(&dir.path().join("plane")),
            assets,
            programs,
            options,
            supervisor: Mutex::new(None),
            dir,
        };
        cluster.up()?;
        Ok(cluster)
    }

    /// Whether the objects are stored in gitcd (and not in etcd, for comparison).
    #[must_use]
    pub fn is_on_git() -> bool {
        std::env::var("TRISHANKU_E2E_STORE").as_deref() != Ok("etcd")
    }

    /// Starts the control plane (again) and waits until it is ready.
    ///
    /// # Errors
    /// If it is already running or does not become ready.
    pub fn up(&self) -> anyhow::Result<()> {
        self.up_with(&self.options)
    }

    /// [`Self::up`] with other options for this run.
    ///
    /// # Errors
    /// Like [`Self::up`].
    pub fn up_with(&self, options: &Options) -> anyhow::Result<()> {
        let mut supervisor = self.supervisor();
        ensure!(supervisor.is_none(), "the control plane is already running");
        let printed = self.dir.path().join("up.log");
        let output = File::create(&printed)?;
        let store = self.store();
        let mut process = self
            .trishanku()
            .args(["up", "--until-stdin-closes"])
            .args(match options.shape {
                Shape::Central => vec!["--central", "--store", store],
                Shape::Star => vec!["--topology=star"],
                Shape::Mesh => vec!["--topology=mesh"],
            })
            .args(&options.arguments)
            .args(options.storage_media_type.map(|t| format!("--storage-media-type={t}")))
            .envs(self.git_host.map(|address| ("GITCD_HOST_LISTEN_URLS", format!("http://{address}"))))
            .envs(self.options.tries_pushes.then(|| ("GITCD_KUBECONFIGS", self.home.kubeconfig())))
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("cannot start trishanku")?;
        let input = process.stdin.take().context("the process has no pipe")?;
        let started = supervisor.insert(Supervisor { process, input });
        loop {
            if status::read(&self.home)?.health == Health::Ready {
                return Ok(());
            }
            // `up` has timeouts of its own, so this loop ends.
            if let Some(status) = started.process.try_wait()? {
                *supervisor = None;
                bail!("`trishanku up` exited with {status}:\n{}", std::fs::read_to_string(&printed)?);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Stops the control plane like Ctrl-C; the data remains.
    ///
    /// # Errors
    /// If it is not running, or does not exit successfully.
    pub fn down(&self) -> anyhow::Result<()> {
        let supervisor = self.supervisor().take().context("the control plane is not running")?;
        let process = i32::try_from(supervisor.process.id()).ok().and_then(Pid::from_raw);
        // Not reaped yet, so its process ID cannot be reused.
        kill_process(process.context("the process has no ID")?, Signal::INT)?;
        let status = supervisor.wait()?;
        ensure!(status.success(), "`trishanku up` exited with {status}");
        Ok(())
    }

    /// Kills only the supervisor, and waits until it is gone.
    ///
    /// # Errors
    /// If it is not running.
    pub fn kill_supervisor(&self) -> anyhow::Result<()> {
        let mut supervisor = self.supervisor().take().context("the control plane is not running")?;
        supervisor.process.kill()?;
        supervisor.process.wait()?;
        Ok(())
    }

    /// Kills a component with SIGKILL, and waits until it is gone.
    ///
    /// # Errors
    /// If it is not running.
    pub fn kill(&self, component: &str) -> anyhow::Result<()> {
        let state = State::load(&self.home.state_file())?;
        let process = state
            .components
            .into_iter()
            .find(|c| c.name == component)
            .and_then(|component| component.process)
            .with_context(|| format!("{component} is not running"))?;
        process.signal(Signal::KILL)?;
        ensure!(process.wait_ended(wait::PATIENCE)?, "it survived SIGKILL");
        Ok(())
    }

    /// Waits until every component is ready (again).
    ///
    /// # Errors
    /// If that takes longer than [`wait::PATIENCE`].
    pub fn wait_ready(&self) -> anyhow::Result<()> {
        wait::until_true("every component to be ready", || Ok(status::read(&self.home)?.health == Health::Ready))
    }

    /// The name of the store component.
    #[must_use]
    pub fn store(&self) -> &'static str {
        let usual = if Self::is_on_git() { Store::Gitcd } else { Store::Etcd };
        self.options.store.unwrap_or(usual).name()
    }

    /// The port of the store.
    ///
    /// # Errors
    /// If the state file cannot be read, or the store has no port.
    pub fn store_port(&self) -> anyhow::Result<u16> {
        let state = State::load(&self.home.state_file())?;
        let store = state.components.iter().find(|component| component.name == self.store());
        store.and_then(|store| store.port).context("the store has no port")
    }

    /// Returns the path of a program under test: `gitcd` or `trishanku`.
    #[must_use]
    pub fn program_under_test(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// `trishanku --dir FOLDER` for this control plane, to add arguments.
    #[must_use]
    pub fn trishanku(&self) -> Command {
        let mut command = Command::new(self.programs.join("trishanku"));
        command.arg("--dir").arg(self.home.dir());
        command
    }

    /// `etcdctl` on the store, with kube-apiserver's client certificate.
    ///
    /// # Errors
    /// If the state file cannot be read, or the store has no port.
    pub fn etcdctl(&self) -> anyhow::Result<Command> {
        let port = self.store_port()?;
        let keys = self.home.keys();
        let mut command = Command::new(self.program("etcdctl"));
        command.arg(format!("--endpoints=https://127.0.0.1:{port}"));
        command.arg("--cacert").arg(certs::certificate(&keys, "store-ca"));
        command.arg("--cert").arg(certs::certificate(&keys, "store-client"));
        command.arg("--key").arg(certs::private_key(&keys, "store-client"));
        Ok(command)
    }

    /// The control plane's folder.
    #[must_use]
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// The URL at which the repository is served to Git clients.
    ///
    /// # Errors
    /// If the options enable no Git host.
    pub fn git_url(&self) -> anyhow::Result<String> {
        let address = self.git_host.context("the options enable no Git host")?;
        let repository = self.home.repository();
        let name = repository.file_name().and_then(|name| name.to_str()).context("the repository has no name")?;
        Ok(format!("http://{address}/{name}"))
    }

    /// A folder for the tests' files.
    #[must_use]
    pub fn scratch(&self) -> &std::path::Path {
        self.dir.path()
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.assets.program(name)
    }

    /// The last lines of all logs, for the message of a failed scenario.
    #[must_use]
    pub fn last_words(&self) -> String {
        let logs = std::fs::read_dir(self.home.logs()).into_iter().flatten();
        let mut words = Vec::new();
        for path in logs.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.extension().is_some_and(|extension| extension == "log") {
                words.push(path.display().to_string());
                words.extend(log::tail(&path, 8).iter().map(|line| format!("  | {line}")));
            }
        }
        words.join("\n")
    }

    fn supervisor(&self) -> MutexGuard<'_, Option<Supervisor>> {
        // A scenario that failed while holding the lock left it consistent.
        self.supervisor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Supervisor {
    /// Closes its standard input, which stops everything.
    fn stop(self) -> anyhow::Result<ExitStatus> {
        let Self { process, input } = self;
        drop(input);
        wait_for(process)
    }

    /// Waits for its exit with its standard input open.
    fn wait(self) -> anyhow::Result<ExitStatus> {
        let Self { process, input } = self;
        let status = wait_for(process);
        drop(input);
        status
    }
}

fn wait_for(mut process: Child) -> anyhow::Result<ExitStatus> {
    let deadline = Instant::now() + STOP_WITHIN;
    loop {
        if let Some(status) = process.try_wait()? {
            return Ok(status);
        }
        if Instant::now() >= deadline {
            process.kill()?;
            process.wait()?;
            bail!("the supervisor did not exit within {STOP_WITHIN:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let stopped = self.supervisor().take().map(Supervisor::stop);
        if let Some(Err(error)) = stopped {
            eprintln!("cannot stop the control plane gracefully: {error:#}");
        }
        // Processes left by a killed supervisor.
        if let Err(error) = trishanku::down::down(&self.home) {
            eprintln!("cannot stop the control plane: {error:#}");
        }
        if std::env::var_os("TRISHANKU_E2E_KEEP").is_some() {
            eprintln!("kept {}", self.dir.path().display());
        }
    }
}
