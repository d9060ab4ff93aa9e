//! A headless cluster beside a central control plane: from `kubectl create deployment` to bound pods at the desk.

pub(crate) mod cost;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};
use trishanku::demo::{Kubectl, StandIn};
use trishanku::plane::state::Form;
use trishanku::plane::{Assets, Home, State};
use trishanku::{down, status};

use self::cost::Cost;
use crate::machine::Machine;

/// The amount of load.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Plan {
    /// Deployments, one after the other.
    pub(crate) tries: usize,
    /// Pods of each of these.
    pub(crate) replicas: usize,
    /// Deployments at once.
    pub(crate) deployments: usize,
    /// Pods of each of those.
    pub(crate) pods_each: usize,
    /// For how long the idle control plane is measured, in seconds; 0 for not at all.
    pub(crate) idle_seconds: u64,
}

/// The shape of a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Shape {
    /// One kube-apiserver on one branch.
    Central,
    /// Three kube-apiservers whose branches are merged in one repository.
    Star,
    /// Three kube-apiservers, each of whose branches pulls from the others.
    Mesh,
}

impl Shape {
    pub(crate) const ALL: [Self; 3] = [Self::Central, Self::Star, Self::Mesh];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Central => "central",
            Self::Star => "star",
            Self::Mesh => "mesh",
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Central => &["--central"],
            Self::Star => &["--topology=star"],
            Self::Mesh => &["--topology=mesh"],
        }
    }
}

/// Results of one control plane; times in seconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) shape: Shape,
    /// From an empty folder until ready.
    pub(crate) ready: f64,
    /// What it costs while nothing happens, by program.
    pub(crate) idle: Vec<Cost>,
    /// From the start of `kubectl create deployment` to the last bound pod, for each try.
    pub(crate) bound: Vec<f64>,
    /// All Deployments at once.
    pub(crate) burst: Option<Burst>,
}

/// Many Deployments at once.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Burst {
    /// From the start of `kubectl create` to the last bound pod.
    pub(crate) all_bound: f64,
    /// From then until no branch moved any more.
    pub(crate) settled: f64,
    /// Commits made meanwhile, without merges.
    pub(crate) commits: u64,
    /// Merge commits made meanwhile.
    pub(crate) merges: u64,
}

impl Outcome {
    /// The median of the tries; `None` without one.
    pub(crate) fn median(&self) -> Option<f64> {
        let mut sorted = self.bound.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }
}

/// The whole measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) command: String,
    pub(crate) date: String,
    pub(crate) machine: Machine,
    pub(crate) plan: Plan,
    pub(crate) outcomes: Vec<Outcome>,
}

/// Limit of each wait.
const PATIENCE: Duration = Duration::from_mins(10);
/// A branch that has not moved for this time has settled.
const QUIET: Duration = Duration::from_secs(2);
/// How long an idle control plane is left alone before it is measured: caches are filled, and garbage of the start is collected.
const STARTED: Duration = Duration::from_secs(30);
/// About the interval of a kubelet's heartbeat.
const BEAT: Duration = Duration::from_secs(10);

/// Measures one shape after the other.
pub(crate) fn run(trishanku: &Path, gitcd: &Path, folder: &Path, shapes: &[Shape], plan: Plan) -> Result<Vec<Outcome>> {
    shapes.iter().map(|&shape| one(trishanku, gitcd, folder, shape, plan)).collect()
}

fn one(trishanku: &Path, gitcd: &Path, folder: &Path, shape: Shape, plan: Plan) -> Result<Outcome> {
    let dir = tempfile::Builder::new().prefix(shape.name()).tempdir_in(folder)?;
    let plane = Plane { home: Home::at(&dir.path().join("plane")) };
    let since = Instant::now();
    let mut up = Command::new(trishanku);
    up.arg("--dir").arg(plane.home.dir()).args(["up", "--detach", "--gitcd"]).arg(gitcd).args(shape.arguments());
    let output = up.stdin(Stdio::null()).output().context("cannot start trishanku")?;
    ensure!(output.status.success(), "`trishanku up` failed: {}", String::from_utf8_lossy(&output.stdout));
    let ready = since.elapsed().as_secs_f64();
    eprintln!("{}: ready after {ready:.1} s", shape.name());
    let idle = plane.idle(plan.idle_seconds)?;
    let kubectl = Kubectl::new(Assets::find(None)?.program("kubectl"), plane.home.kubeconfig());
    let node = StandIn::ensure(&kubectl)?;
    let mut bound = Vec::new();
    for number in 0..plan.tries {
        node.beat(&kubectl)?;
        plane.settle()?;
        bound.push(deployment(&kubectl, &format!("try-{number}"), plan.replicas)?);
    }
    eprintln!("{}: {bound:.2?} s", shape.name());
    let burst = if plan.deployments > 0 { Some(plane.burst(&kubectl, &node, shape, plan)?) } else { None };
    Ok(Outcome { shape, ready, idle, bound, burst })
}

/// Measures one Deployment created with kubectl; it is deleted afterwards.
fn deployment(kubectl: &Kubectl, name: &str, replicas: usize) -> Result<f64> {
    let mut pods = kubectl.follow_pods(name)?;
    let replicas_flag = format!("--replicas={replicas}");
    let since = Instant::now();
    kubectl.run(&["create", "deployment", name, "--image=registry.k8s.io/pause:3.10", &replicas_flag])?;
    let found = pods.until_bound(replicas, PATIENCE);
    let took = since.elapsed().as_secs_f64();
    ensure!(found == replicas, "{found} of {replicas} pods of {name} have a node");
    kubectl.remove_deployment(name)?;
    Ok(took)
}

fn many(kubectl: &Kubectl, node: &StandIn, plan: Plan) -> Result<()> {
    let one = |number: usize| -> Value {
        let labels = json!({"app": "many", "one": format!("d{number}")});
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": format!("many-{number}")},
            "spec": {"replicas": plan.pods_each, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "pause", "image": "registry.k8s.io/pause:3.10"}]},
            }},
        })
    };
    let all: Vec<Value> = (0..plan.deployments).map(one).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": all}).to_string();
    let mut pods = kubectl.follow_pods("many")?;
    kubectl.run_with(&["create", "--filename=-"], &list)?;
    let (wanted, since) = (plan.deployments * plan.pods_each, Instant::now());
    loop {
        let found = pods.until_bound(wanted, BEAT);
        if found == wanted {
            return Ok(());
        }
        ensure!(since.elapsed() < PATIENCE, "{found} of {wanted} pods have a node");
        node.beat(kubectl)?;
    }
}

/// A running control plane, stopped on drop.
struct Plane {
    home: Home,
}

impl Plane {
    /// The repository and name of each branch.
    fn branches(&self) -> Result<Vec<(PathBuf, String)>> {
        let state = State::load(&self.home.state_file())?;
        if state.settings.form == Form::Central {
            return Ok(vec![(self.home.repository(), "refs/heads/main".to_owned())]);
        }
        Ok(state.heavens.into_iter().map(|heaven| (heaven.repository, heaven.branch)).collect())
    }

    /// Measures the control plane for this time, once its start is over.
    fn idle(&self, seconds: u64) -> Result<Vec<Cost>> {
        if seconds == 0 {
            return Ok(Vec::new());
        }
        self.settle()?;
        thread::sleep(STARTED);
        let supervisor = status::read(&self.home)?.supervisor_pid.context("the control plane has no supervisor")?;
        cost::idle(supervisor, Duration::from_secs(seconds))
    }

    /// Measures many Deployments at once.
    fn burst(&self, kubectl: &Kubectl, node: &StandIn, shape: Shape, plan: Plan) -> Result<Burst> {
        node.beat(kubectl)?;
        self.settle()?;
        let before = self.commits()?;
        let since = Instant::now();
        many(kubectl, node, plan)?;
        let all_bound = since.elapsed().as_secs_f64();
        self.settle()?;
        let settled = (since.elapsed().as_secs_f64() - all_bound - QUIET.as_secs_f64()).max(0.0);
        let after = self.commits()?;
        eprintln!("{}: all bound after {all_bound:.1} s", shape.name());
        Ok(Burst { all_bound, settled, commits: after.0 - before.0, merges: after.1 - before.1 })
    }

    fn heads(&self) -> Result<Vec<String>> {
        let head = |(repository, branch): &(PathBuf, String)| git(repository, &["rev-parse", branch]);
        self.branches()?.iter().map(head).collect()
    }

    /// Waits until no branch has moved for a while.
    fn settle(&self) -> Result<()> {
        let (since, mut heads, mut last) = (Instant::now(), self.heads()?, Instant::now());
        while last.elapsed() < QUIET {
            ensure!(since.elapsed() < PATIENCE, "the branches did not settle within {PATIENCE:?}");
            thread::sleep(Duration::from_millis(100));
            let now = self.heads()?;
            if now != heads {
                (heads, last) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// The number of commits and of merges on the first branch, which has everything by then.
    fn commits(&self) -> Result<(u64, u64)> {
        let (repository, branch) = self.branches()?.into_iter().next().context("the control plane has no branch")?;
        let count =
            |which: &str| -> Result<u64> { Ok(git(&repository, &["rev-list", "--count", which, &branch])?.parse()?) };
        Ok((count("--no-merges")?, count("--merges")?))
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if let Err(error) = down::down(&self.home) {
            eprintln!("cannot stop the control plane: {error}");
        }
        if status::read(&self.home).is_ok_and(|report| report.supervisor_pid.is_some()) {
            eprintln!("a supervisor is still running in {}", self.home.dir().display());
        }
    }
}

fn git(repository: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").arg("-C").arg(repository).args(arguments).output().context("cannot run git")?;
    ensure!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
