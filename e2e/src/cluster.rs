//! A control plane that belongs to one test binary.

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

/// Longer than the graces of all components together.
const STOP_WITHIN: Duration = Duration::from_mins(2);

/// What can be chosen about a control plane under test.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How kube-apiserver encodes what it stores; `None` is `trishanku up`'s default.
    pub storage_media_type: Option<&'static str>,
    /// What it consists of.
    pub shape: Shape,
    /// More arguments for `trishanku up`.
    pub arguments: Vec<String>,
    /// Whether its gitcd serves the repository to Git clients, too.
    pub git_host: bool,
    /// Whether its gitcd tries files that people push at the kube-apiserver.
    pub tries_pushes: bool,
}

/// What a control plane consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// One kube-apiserver on one branch.
    #[default]
    Central,
    /// A headless cluster with one repository in the middle.
    Star,
    /// A headless cluster in which everybody pulls from everybody.
    Mesh,
}

/// A running control plane in a temporary folder. Dropping it ends everything.
pub struct Cluster {
    home: Home,
    assets: Assets,
    programs: PathBuf,
    options: Options,
    git_host: Option<SocketAddr>,
    supervisor: Mutex<Option<Supervisor>>,
    dir: TempDir,
}

/// The `trishanku up` process. It ends everything when this lets go of its standard input.
struct Supervisor {
    process: Child,
    input: ChildStdin,
}

impl Cluster {
    /// Brings a control plane up, and returns when it is ready.
    ///
    /// # Errors
    /// If programs are missing or it does not get ready; the text has what `trishanku up` printed.
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

    /// Whether the objects are kept in Git (and not in the etcd that it is compared with).
    #[must_use]
    pub fn is_on_git() -> bool {
        std::env::var("TRISHANKU_E2E_STORE").as_deref() != Ok("etcd")
    }

    /// Brings the control plane up (again), and returns when it is ready.
    ///
    /// # Errors
    /// If it runs already or does not get ready.
    pub fn up(&self) -> anyhow::Result<()> {
        self.up_with(&self.options)
    }

    /// [`Self::up`] with other options for this time.
    ///
    /// # Errors
    /// As [`Self::up`].
    pub fn up_with(&self, options: &Options) -> anyhow::Result<()> {
        let mut supervisor = self.supervisor();
        ensure!(supervisor.is_none(), "the control plane runs already");
        let printed = self.dir.path().join("up.log");
        let output = File::create(&printed)?;
        let store = if Self::is_on_git() { "gitcd" } else { "etcd" };
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
        let input = process.stdin.take().context("it was started with a pipe")?;
        let started = supervisor.insert(Supervisor { process, input });
        loop {
            if status::read(&self.home)?.health == Health::Ready {
                return Ok(());
            }
            // `up` has its own time-outs, so this ends.
            if let Some(status) = started.process.try_wait()? {
                *supervisor = None;
                bail!("`trishanku up` ended with {status}:\n{}", std::fs::read_to_string(&printed)?);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends the control plane as Ctrl-C does; the data stays.
    ///
    /// # Errors
    /// If it does not run, or does not end properly.
    pub fn down(&self) -> anyhow::Result<()> {
        let supervisor = self.supervisor().take().context("it does not run")?;
        let process = i32::try_from(supervisor.process.id()).ok().and_then(Pid::from_raw);
        // It is not waited for yet, so its id cannot be recycled.
        kill_process(process.context("a process has an id")?, Signal::INT)?;
        let status = supervisor.wait()?;
        ensure!(status.success(), "`trishanku up` ended with {status}");
        Ok(())
    }

    /// Kills the supervisor, and nothing else. Returns when it is gone.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill_supervisor(&self) -> anyhow::Result<()> {
        let mut supervisor = self.supervisor().take().context("it does not run")?;
        supervisor.process.kill()?;
        supervisor.process.wait()?;
        Ok(())
    }

    /// Kills a component with SIGKILL, and returns when it is gone.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill(&self, component: &str) -> anyhow::Result<()> {
        let state = State::load(&self.home.state_file())?;
        let process = state
            .components
            .into_iter()
            .find(|c| c.name == component)
            .and_then(|component| component.process)
            .with_context(|| format!("{component} does not run"))?;
        process.signal(Signal::KILL)?;
        ensure!(process.wait_ended(wait::PATIENCE)?, "it outlives SIGKILL");
        Ok(())
    }

    /// Returns when every component is ready (again).
    ///
    /// # Errors
    /// If that takes longer than [`wait::PATIENCE`].
    pub fn wait_ready(&self) -> anyhow::Result<()> {
        wait::until_true("every component to be ready", || Ok(status::read(&self.home)?.health == Health::Ready))
    }

    /// The name of the store's component.
    #[must_use]
    pub fn store(&self) -> &'static str {
        let store = if Self::is_on_git() { Store::Gitcd } else { Store::Etcd };
        store.name()
    }

    /// `trishanku --dir <this control plane>`, for more arguments.
    #[must_use]
    pub fn trishanku(&self) -> Command {
        let mut command = Command::new(self.programs.join("trishanku"));
        command.arg("--dir").arg(self.home.dir());
        command
    }

    /// `etcdctl` on the store, as kube-apiserver's own client.
    ///
    /// # Errors
    /// If the state file cannot be read, or the store has no port.
    pub fn etcdctl(&self) -> anyhow::Result<Command> {
        let state = State::load(&self.home.state_file())?;
        let store = state.components.iter().find(|component| component.name == self.store());
        let port = store.and_then(|store| store.port).context("the store has a port")?;
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

    /// Where the repository is served to Git clients.
    ///
    /// # Errors
    /// If it is not to be.
    pub fn git_url(&self) -> anyhow::Result<String> {
        let address = self.git_host.context("the options ask for no Git host")?;
        let repository = self.home.repository();
        let name = repository.file_name().and_then(|name| name.to_str()).context("a repository has a name")?;
        Ok(format!("http://{address}/{name}"))
    }

    /// A folder for files of the tests.
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
        // A scenario that failed while holding it left nothing half done in it.
        self.supervisor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Supervisor {
    /// Lets go of its standard input, at which it ends everything.
    fn stop(self) -> anyhow::Result<ExitStatus> {
        let Self { process, input } = self;
        drop(input);
        wait_for(process)
    }

    /// Waits for its end, with its standard input still open.
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
            bail!("the supervisor did not end within {STOP_WITHIN:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let stopped = self.supervisor().take().map(Supervisor::stop);
        if let Some(Err(error)) = stopped {
            eprintln!("cannot end the control plane properly: {error:#}");
        }
        // What a killed supervisor left behind, by this test's intention or not.
        if let Err(error) = trishanku::down::down(&self.home) {
            eprintln!("cannot end the control plane: {error:#}");
        }
        if std::env::var_os("TRISHANKU_E2E_KEEP").is_some() {
            eprintln!("kept {}", self.dir.path().display());
        }
    }
}
