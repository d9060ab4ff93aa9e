//! A machine that runs manifests.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;
use trishanku::demo::Kubectl;
use trishanku::plane::{Assets, Home, State};
use trishanku::status::{self, ComponentReport, Health};
use trishanku_e2e::programs;

pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Machine {
    folder: TempDir,
    home: Home,
    running: Option<(Child, ChildStdin)>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("trishanku-run-").tempdir().unwrap();
        let home = Home::at(&folder.path().join("plane"));
        Self { folder, home, running: None }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file; `@KUBECTL@` in it is replaced by the path of kubectl, which differs from that in a pod.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let link = self.path("kubectl");
        let _there = std::os::unix::fs::symlink(Assets::find(None).unwrap().program("kubectl"), &link);
        let kubectl = link.display().to_string();
        fs::write(self.path(name), text.replace("@KUBECTL@", &kubectl)).unwrap();
        self.path(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn command(&self, files: &[PathBuf], arguments: &[&str]) -> Command {
        let output = File::create(self.path("printed")).unwrap();
        let mut command = Command::new(programs::folder().unwrap().join("trishanku"));
        command.arg("--dir").arg(self.home.dir()).args(["run", "--until-stdin-closes"]).args(arguments);
        for file in files {
            command.arg("--filename").arg(file);
        }
        command.stdin(Stdio::piped()).stdout(output.try_clone().unwrap()).stderr(output);
        command
    }

    /// Runs manifests and waits until everything is ready.
    pub(crate) fn start(&mut self, files: &[PathBuf], arguments: &[&str]) {
        self.start_until(files, arguments, Health::Ready);
    }

    /// Runs manifests and waits for this health.
    pub(crate) fn start_until(&mut self, files: &[PathBuf], arguments: &[&str], wanted: Health) {
        let mut child = self.command(files, arguments).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let (child, _) = self.running.insert((child, input));
        let since = Instant::now();
        while status::read(&self.home).unwrap().health != wanted {
            let ended = child.try_wait().unwrap();
            let printed = fs::read_to_string(self.folder.path().join("printed")).unwrap();
            assert!(ended.is_none() && since.elapsed() < PATIENCE * 2, "{ended:?}: {printed}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn health(&self) -> Health {
        status::read(&self.home).unwrap().health
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// Kills everything, like a power failure.
    pub(crate) fn kill(&mut self) {
        let (mut supervisor, _input) = self.running.take().unwrap();
        // The supervisor first, as it would restart the others.
        supervisor.kill().unwrap();
        supervisor.wait().unwrap();
        let processes = State::load(&self.home.state_file()).unwrap().components;
        let processes: Vec<_> = processes.into_iter().filter_map(|component| component.process).collect();
        for process in &processes {
            process.signal(Signal::KILL).unwrap();
        }
        assert!(processes.iter().all(|process| process.wait_ended(PATIENCE).unwrap()));
    }

    /// Runs invalid manifests; returns the output.
    pub(crate) fn fail(&mut self, files: &[PathBuf], arguments: &[&str]) -> String {
        let mut child = self.command(files, arguments).spawn().unwrap();
        // Its standard input stays open meanwhile.
        let input = child.stdin.take();
        let status = child.wait().unwrap();
        drop(input);
        assert_eq!(status.code(), Some(1), "{}", self.printed());
        self.printed()
    }

    pub(crate) fn printed(&self) -> String {
        self.read("printed")
    }

    /// kubectl at a heaven, or at the first one.
    pub(crate) fn kubectl(&self, heaven: Option<&str>) -> Kubectl {
        let kubeconfig = match heaven {
            None => self.home.kubeconfig(),
            Some(name) => self.home.heavens().join(name).join("kubeconfig"),
        };
        Kubectl::new(Assets::find(None).unwrap().program("kubectl"), kubeconfig)
    }

    /// Runs Git in a heaven's repository on its branch.
    pub(crate) fn git(&self, heaven: &str, arguments: &[&str]) -> String {
        let state = State::load(&self.home.state_file()).unwrap();
        let found = state.heavens.into_iter().find(|one| one.name == heaven).unwrap();
        let (verb, rest) = arguments.split_first().unwrap();
        // The branch precedes the paths.
        let at = rest.iter().position(|word| *word == "--").unwrap_or(rest.len());
        let all = [&[*verb], &rest[..at], &[&found.branch], &rest[at..]].concat();
        trishanku_e2e::git::run(&found.repository, &all).unwrap()
    }

    /// The loopback port of a server, such as `mine/gitcd`.
    pub(crate) fn port(&self, server: &str) -> u16 {
        State::load(&self.home.state_file()).unwrap().allotted[server]
    }

    pub(crate) fn component(&self, name: &str) -> Option<ComponentReport> {
        status::read(&self.home).unwrap().components.into_iter().find(|component| component.name == name)
    }

    pub(crate) fn until(&self, what: &str, look: impl Fn() -> bool) {
        let since = Instant::now();
        while !look() {
            assert!(since.elapsed() < PATIENCE, "timed out waiting for {what}: {}", self.printed());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Stops everything, and asserts that no process is left.
    pub(crate) fn stop(&mut self) {
        let (mut child, input) = self.running.take().unwrap();
        drop(input);
        assert!(child.wait().unwrap().success(), "{}", self.printed());
        assert_eq!(status::read(&self.home).unwrap().health, Health::Stopped);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some((mut child, input)) = self.running.take() {
            drop(input);
            let _ended = child.wait();
        }
    }
}

pub(crate) fn executable(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
