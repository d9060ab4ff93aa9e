//! A machine that runs a plan.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use time::OffsetDateTime;
use trishanku::plane::Assets;
use trishanku_api::TrishankuHeavenSpec;
use trishanku_e2e::programs;
use trishanku_heaven::certificates::{Data, RenewalCriteria, User, issue};
use trishanku_heaven_plan::plan::{
    Content, EntryPoints, Images, Look, Place, Plan, Ports, Run, Step, Trust, heaven, merge,
};
use trishanku_heaven_plan::{HeavenParts, names};

const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) struct Machine {
    folder: TempDir,
    /// The folder of gitcd.
    programs: PathBuf,
    /// The folder of Kubernetes' programs and etcd.
    assets: PathBuf,
    place: Place,
    secrets: BTreeMap<String, Data>,
    running: Vec<(String, Child)>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("trishanku-heaven-").tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        // Bound together, so that all ports are different.
        let listeners = [(); 4].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [gitcd, events, events_peers, apiserver] = listeners.map(|listener| listener.local_addr().unwrap().port());
        let place = Place {
            home: path("home"),
            secrets: path("secrets"),
            entry_points: path("entrypoints"),
            state: path("state"),
            address: "127.0.0.1".to_owned(),
            ports: Ports { gitcd, events, events_peers, apiserver },
            trust: Trust::Created(path("store")),
            replica: None,
        };
        let assets = Assets::find(None).unwrap().program("kube-apiserver");
        Self {
            programs: programs::folder().unwrap(),
            assets: assets.parent().unwrap().to_owned(),
            place,
            secrets: BTreeMap::new(),
            running: Vec::new(),
            folder,
        }
    }

    /// Runs a heaven named `a`, and waits until its last server is ready.
    pub(crate) fn start(&mut self, spec: &Value, entry_points: &EntryPoints) {
        let spec: TrishankuHeavenSpec = serde_json::from_value(spec.clone()).unwrap();
        let certificates = names::Certificates::of("a", &spec);
        let controller = spec.certificates.as_ref().and_then(|given| given.controller.clone()).unwrap();
        let user = User { name: controller.user_name, group: controller.group_name };
        if self.secrets.is_empty() {
            let terms = RenewalCriteria { now: OffsetDateTime::now_utc(), reissue_before: None };
            let issued = issue(&certificates, Some(&user), &BTreeMap::new(), &terms).unwrap();
            self.secrets = issued.secrets.into_iter().map(|wanted| (wanted.name, wanted.data)).collect();
            // For users, who are not part of the plan.
            for (name, data) in &self.secrets {
                write_all(&self.folder.path().join("mine").join(name), data);
            }
        }
        let plan = heaven(&HeavenParts::of_spec("a", &spec), &Images::default(), &self.place, entry_points).unwrap();
        self.run(&plan);
    }

    /// Runs an `AutomatedMerge`.
    pub(crate) fn start_merge(&mut self, spec: &Value, entry_points: &EntryPoints) {
        let spec = serde_json::from_value(spec.clone()).unwrap();
        let plan = merge("a", &spec, &Images::default(), &self.place, entry_points).unwrap();
        self.run(&plan);
    }

    fn run(&mut self, plan: &Plan) {
        for step in &plan.steps {
            self.mount(plan, step);
            let mut command = self.command(&step.program);
            command.args(&step.arguments).envs(&step.environment);
            match &step.run {
                Run::Once => {
                    let output = command.output().unwrap();
                    assert!(output.status.success(), "{}: {output:?}", step.name);
                }
                Run::Server(probes) => {
                    self.spawn(step, command);
                    let look = probes.started.look.clone();
                    self.until(&format!("{} to be ready", step.name), |machine| machine.look(&look));
                    for probe in [&probes.alive, &probes.ready].into_iter().flatten() {
                        self.look(&probe.look).unwrap();
                    }
                }
                Run::Alone { .. } => self.spawn(step, command),
            }
        }
    }

    fn spawn(&mut self, step: &Step, mut command: Command) {
        let log = fs::File::create(self.folder.path().join(format!("{}.log", step.name))).unwrap();
        let child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        self.running.push((step.name.clone(), child));
    }

    /// Puts the files of a step where it expects them.
    fn mount(&self, plan: &Plan, step: &Step) {
        for mount in &step.mounts {
            let folder = plan.folders.iter().find(|folder| folder.name == mount.folder).unwrap();
            match &folder.content {
                Content::Secret { name, items } => {
                    let data = &self.secrets[name];
                    let named = items.iter().map(|(key, path)| ((*path).to_owned(), data[*key].clone()));
                    let files = if items.is_empty() { data.clone() } else { named.collect() };
                    write_all(Path::new(&mount.path), &files);
                }
                Content::Empty { .. } | Content::Memory | Content::Kept { .. } | Content::KeptByReplica => {
                    fs::create_dir_all(&mount.path).unwrap();
                }
                Content::EntryPoints { .. } => assert!(Path::new(&mount.path).is_dir(), "{}", mount.path),
            }
        }
    }

    /// A program with a clean environment.
    fn command(&self, program: &str) -> Command {
        let own = [&self.programs, &self.assets].into_iter().map(|folder| folder.join(program));
        let found = own.into_iter().find(|path| path.is_file()).unwrap_or_else(|| program.into());
        let mut command = Command::new(found);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
    }

    fn look(&self, look: &Look) -> Result<(), String> {
        let output = match look {
            Look::Run(words) => self.command(&words[0]).args(&words[1..]).output().unwrap(),
            Look::Https { path } => self.asking("a-admin").args(["get", "--raw", path]).output().unwrap(),
        };
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    }

    /// kubectl with the kubeconfig of a Secret. Its port is the published one, which is not available here.
    fn asking(&self, secret: &str) -> Command {
        let kubeconfig = self.folder.path().join("mine").join(secret).join("kubeconfig");
        let mut command = self.command("kubectl");
        command.env("HOME", self.folder.path()).arg(format!("--kubeconfig={}", kubeconfig.display()));
        command.arg(format!("--server=https://localhost:{}", self.place.ports.apiserver));
        command
    }

    pub(crate) fn kubectl(&self, secret: &str, arguments: &[&str]) -> String {
        let output = self.asking(secret).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Trusts the public CAs, and authenticates by a token alone.
    pub(crate) fn kubectl_with_token(&self, token: &str, arguments: &[&str]) -> String {
        let authority = self.folder.path().join("mine/a-admin/ca.crt");
        let mut command = self.command("kubectl");
        command.env("HOME", self.folder.path()).env("KUBECONFIG", "/dev/null").args([
            format!("--server=https://localhost:{}", self.place.ports.apiserver),
            format!("--certificate-authority={}", authority.display()),
            format!("--token={token}"),
        ]);
        let output = command.args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Lists the keys of gitcd and of the etcd for events with the certificate and key in a folder: `mine/SECRET` has those
    /// that the user's containers can have, `store` those of kube-apiserver.
    pub(crate) fn keys(&self, pair: Option<(&str, &str)>) -> [Result<String, String>; 2] {
        let Ports { gitcd, events, .. } = self.place.ports;
        [gitcd, events].map(|port| {
            let mut command = self.command("etcdctl");
            command.args([&format!("--endpoints=https://127.0.0.1:{port}"), "--insecure-skip-tls-verify"]);
            if let Some((folder, name)) = pair {
                let file =
                    |kind: &str| self.folder.path().join(folder).join(format!("{name}.{kind}")).display().to_string();
                command.args([format!("--cert={}", file("crt")), format!("--key={}", file("key"))]);
            }
            let output =
                command.args(["--command-timeout=5s", "get", "/", "--prefix", "--keys-only"]).output().unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
        })
    }

    pub(crate) fn apply(&self, secret: &str, manifest: &str) {
        let mut command = self.asking(secret);
        let mut child =
            command.args(["create", "--filename=-"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(manifest.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{manifest}");
    }

    pub(crate) fn bare_repository(&self, name: &str) -> String {
        let path = self.folder.path().join(name).display().to_string();
        let made =
            self.command("git").args(["init", "--quiet", "--bare", "--initial-branch=main", &path]).status().unwrap();
        assert!(made.success());
        path
    }

    pub(crate) fn git(&self, repository: &str, arguments: &[&str]) -> Result<String, String> {
        let output = self.command("git").args(["-C", repository]).args(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Commits one file to a new branch.
    pub(crate) fn commit(&self, repository: &str, branch: &str, file: &str, content: &str) {
        let clone = self.folder.path().join("clone");
        let path = clone.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        let clone = clone.display().to_string();
        for arguments in [
            &["init", "--quiet", "--initial-branch=work"][..],
            &["add", "."],
            &["-c", "user.name=me", "-c", "user.email=me@here", "commit", "--quiet", "--message=made by hand"],
            &["push", "--quiet", repository, &format!("work:refs/heads/{branch}")],
        ] {
            self.git(&clone, arguments).unwrap();
        }
    }

    /// Installs a script of the user.
    pub(crate) fn entry_point(&self, name: &str, text: &str) {
        let path = Path::new(&self.place.entry_points).join(name);
        fs::create_dir_all(&self.place.entry_points).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.folder.path().join(path)).unwrap()
    }

    pub(crate) fn until(&mut self, what: &str, look: impl Fn(&Self) -> Result<(), String>) {
        let start = Instant::now();
        loop {
            match look(self) {
                Ok(()) => return,
                Err(instead) if start.elapsed() > PATIENCE => {
                    panic!("timed out waiting for {what}: {instead}{}", self.logs())
                }
                Err(_) => {}
            }
            for (name, child) in &mut self.running {
                if let Some(status) = child.try_wait().unwrap() {
                    let name = name.clone();
                    panic!("waiting for {what}: {name} exited: {status}{}", self.logs());
                }
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn logs(&self) -> String {
        let last = |name: &str| {
            let text = self.read(&format!("{name}.log"));
            let lines: Vec<_> = text.lines().rev().take(15).collect();
            format!("\n--- {name}\n{}", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
        };
        self.running.iter().map(|(name, _)| last(name)).collect()
    }

    /// Stops everything in reverse order, as kubelet does.
    pub(crate) fn stop(&mut self) {
        while let Some((_, mut child)) = self.running.pop() {
            // Not reaped yet, so its process ID cannot be reused.
            let _gone = kill_process(Pid::from_child(&child), Signal::TERM);
            child.wait().unwrap();
        }
    }

    /// Removes what is deleted with a pod.
    pub(crate) fn forget(&self) {
        for folder in [&self.place.home, &self.place.state, &self.place.secrets] {
            fs::remove_dir_all(folder).unwrap();
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for (_, child) in self.running.iter_mut().rev() {
            let _killed = child.kill();
            let _waited = child.wait();
        }
    }
}

fn write_all(folder: &Path, files: &Data) {
    fs::create_dir_all(folder).unwrap();
    for (name, content) in files {
        fs::write(folder.join(name), content).unwrap();
    }
}
