//! Commits pushed to the repository of a control plane with stock Git.

use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use trishanku_e2e::watch::{Watch, objects};
use trishanku_e2e::{Cluster, git, wait};

/// Clones the repository for edits.
fn clone(cluster: &Arc<Cluster>, name: &str) -> anyhow::Result<PathBuf> {
    let repository = cluster.home().repository();
    clone_of(cluster, repository.to_str().context("the path is not UTF-8")?, name)
}

fn clone_of(cluster: &Arc<Cluster>, url: &str, name: &str) -> anyhow::Result<PathBuf> {
    git::run(cluster.scratch(), &["clone", "--quiet", url, name])?;
    let clone = cluster.scratch().join(name);
    git::run(&clone, &["config", "user.name", "person"])?;
    git::run(&clone, &["config", "user.email", "person@localhost"])?;
    Ok(clone)
}

/// Commits everything and pushes it, retrying while the branch moves on.
fn push(clone: &Path) -> anyhow::Result<()> {
    git::run(clone, &["add", "--all"])?;
    git::run(clone, &["commit", "--quiet", "-m", "by hand"])?;
    wait::until_true("the push to be accepted", || {
        if git::run(clone, &["push", "--quiet", "origin", "main"]).is_ok() {
            return Ok(true);
        }
        git::run(clone, &["pull", "--quiet", "--rebase"])?;
        Ok(false)
    })
}

fn edit(file: &Path, from: &str, to: &str) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file)?;
    ensure!(text.contains(from), "{text}");
    Ok(std::fs::write(file, text.replace(from, to))?)
}

pub(crate) fn a_push_changes_a_live_object_and_a_broken_one_changes_nothing(
    cluster: &Arc<Cluster>,
) -> anyhow::Result<()> {
    cluster.namespace("people")?;
    cluster.kubectl("create configmap prices --from-literal=tea=3 --from-literal=cup=1 -n people".split(' '))?;
    let path = "configmaps/people/prices";
    wait::until("the creation to be committed", || cluster.committed(path))?;
    let watch = Watch::start(cluster, "/api/v1/namespaces/people/configmaps")?;
    let clone = clone(cluster, "people")?;
    edit(&clone.join(path), r#""tea": "3""#, r#""tea": "4""#)?;
    push(&clone)?;
    watch.wait("the event of the change", |seen| {
        seen.events.iter().any(|event| event.kind == "MODIFIED" && event.name == "prices")
    })?;
    let live = cluster.object("configmap prices -n people")?;
    ensure!(live["data"]["tea"] == "4" && live["data"]["cup"] == "1", "{live}");

    git::run(&clone, &["pull", "--quiet", "--rebase"])?;
    edit(&clone.join(path), r#""cup": "1""#, r#""cup": "#)?;
    push(&clone)?;
    wait::until_true("the old value to be restored", || {
        Ok(cluster.committed(path)?.is_some_and(|text| text.contains(r#""cup": "1""#)))
    })?;
    let live = cluster.object("configmap prices -n people")?;
    ensure!(live["data"]["cup"] == "1", "{live}");
    // The API keeps working.
    cluster.kubectl("label configmap prices -n people checked=yes".split(' '))?;
    Ok(())
}

pub(crate) fn a_kind_that_kube_apiserver_cannot_list_is_in_the_status_until_a_push_repairs_it(
    cluster: &Arc<Cluster>,
) -> anyhow::Result<()> {
    let status = || -> anyhow::Result<serde_json::Value> {
        let output = cluster.trishanku().args(["status", "--json"]).output()?;
        serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))
    };
    // No other scenario uses this kind.
    for name in ["a", "c"] {
        let manifest = serde_json::json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
            "metadata": {"name": name}, "handler": name});
        cluster.kubectl_with(["create", "--filename=-"], &manifest.to_string())?;
    }
    let is_listed = |status: &serde_json::Value| status["unlistable"].as_array().is_some_and(Vec::is_empty);
    ensure!(is_listed(&status()?), "{}", status()?);
    let output = cluster.etcdctl()?.args(["put", "/registry/runtimeclasses/b", "no object"]).output()?;
    ensure!(output.status.success(), "{output:?}");
    let found = wait::until("the kind to be reported", || {
        let status = status()?;
        Ok((!is_listed(&status)).then_some(status))
    })?;
    ensure!(found["health"] == "degraded", "{found}");
    let kinds = found["unlistable"].as_array().context("the status has no list of kinds")?;
    ensure!(kinds.len() == 1 && kinds[0]["resource"] == "runtimeclasses.node.k8s.io", "{found}");
    ensure!(kinds[0]["after"] == "a", "{found}");
    let shown = cluster.trishanku().arg("status").output()?;
    let text = String::from_utf8(shown.stdout)?;
    ensure!(!shown.status.success() && text.contains("cannot list runtimeclasses.node.k8s.io: "), "{text}");

    wait::until("the value to be committed", || cluster.committed("runtimeclasses/b"))?;
    let clone = clone(cluster, "repair")?;
    std::fs::remove_file(clone.join("runtimeclasses/b"))?;
    push(&clone)?;
    wait::until_true("the kind to be listed again", || Ok(is_listed(&status()?)))?;
    let names = cluster.kubectl(["get", "runtimeclasses", "--output=name"])?;
    ensure!(names.lines().count() == 2, "{names}");
    Ok(())
}

const SERVICE: &str = "\
# People come in here.
apiVersion: v1
kind: Service
metadata:
  name: door
spec:
  ports:
    - port: 80 # plain
";
const POD: &str = "\
apiVersion: v1
kind: Pod
metadata:
  name: keeper
spec:
  containers:
    - name: keeper
      image: keeper
";
const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: guests
spec:
  replicas: -1
  selector: {matchLabels: {app: guests}}
  template:
    metadata: {labels: {app: guests}}
    spec: {containers: [{name: guest, image: guest}]}
";

pub(crate) fn a_push_is_tried_at_the_kube_apiserver_before_it_enters(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    cluster.namespace("tried")?;
    let limits = serde_json::json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "usual", "namespace": "tried"},
        "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "7m"}}]}});
    cluster.kubectl_with(["create", "--filename=-"], &limits.to_string())?;
    wait::until("the limits to be committed", || cluster.committed("limitranges/tried/usual"))?;
    let clone = clone_of(cluster, &cluster.git_url()?, "tried")?;
    let write = |path: &str, text: &str| -> anyhow::Result<()> {
        let file = clone.join(path);
        std::fs::create_dir_all(file.parent().context("the file has no parent folder")?)?;
        Ok(std::fs::write(file, text)?)
    };
    let push = || -> anyhow::Result<String> {
        git::run(&clone, &["add", "--all"])?;
        git::run(&clone, &["commit", "--quiet", "-m", "by hand"])?;
        git::run(&clone, &["push", "--quiet", "origin", "HEAD:refs/for/main"])
    };

    write("services/specs/tried/door", SERVICE)?;
    write("pods/tried/keeper", POD)?;
    push()?;
    // Fields added by admission and defaulting.
    let service = cluster.object("service door -n tried")?;
    let address = service["spec"]["clusterIP"].as_str().unwrap_or_default();
    ensure!(address.starts_with("10."), "{service}");
    let pod = cluster.object("pod keeper -n tried")?;
    ensure!(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "7m", "{pod}");
    let file = wait::until("the Service to be committed", || cluster.committed("services/specs/tried/door"))?;
    for kept in ["# People come in here.\n", "port: 80 # plain\n", address] {
        ensure!(file.contains(kept), "{file}");
    }

    write("deployments/tried/guests", DEPLOYMENT)?;
    let Err(refused) = push() else { bail!("a Deployment with -1 replicas was accepted") };
    let words = "deployments/tried/guests: kube-apiserver rejects it: line 6: spec.replicas: Invalid value: -1";
    ensure!(refused.to_string().contains(words), "{refused}");
    // The corrected file is accepted, although the broken one is in its history.
    write("deployments/tried/guests", &DEPLOYMENT.replace("-1", "2"))?;
    push()?;
    ensure!(
        cluster.object("deployment guests -n tried")?["spec"]["replicas"] == 2,
        "the Deployment must have two replicas"
    );
    // Updates are validated as such: the selector of a Deployment is immutable.
    git::run(&clone, &["pull", "--quiet", "--rebase", "origin", "main"])?;
    let path = clone.join("deployments/tried/guests");
    let text = std::fs::read_to_string(&path)?.replace("app: guests", "app: hosts");
    std::fs::write(&path, text)?;
    let Err(refused) = push() else { bail!("a changed selector was accepted") };
    ensure!(refused.to_string().contains("field is immutable"), "{refused}");
    Ok(())
}

/// A running `kubectl get … -w`, killed on drop.
struct Following {
    kubectl: Child,
    printed: PathBuf,
}

impl Following {
    fn start(cluster: &Cluster, name: &str, arguments: &[&str]) -> anyhow::Result<Self> {
        let printed = cluster.scratch().join(name);
        let output = File::create(&printed)?;
        let mut kubectl = cluster.kubectl_command();
        kubectl.arg("get").args(arguments).arg("--watch").stdin(Stdio::null()).stdout(output);
        Ok(Self { kubectl: kubectl.spawn().context("cannot start kubectl")?, printed })
    }

    /// Waits until this is the last line.
    fn shows(&self, line: &str) -> anyhow::Result<()> {
        wait::until_true(&format!("kubectl to show {line}"), || {
            Ok(std::fs::read_to_string(&self.printed)?.lines().last() == Some(line))
        })
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // It may have exited by itself.
        let _ended = self.kubectl.kill();
        let _status = self.kubectl.wait();
    }
}

pub(crate) fn a_push_to_the_git_host_changes_a_live_object_and_a_broken_one_is_refused(
    cluster: &Arc<Cluster>,
) -> anyhow::Result<()> {
    cluster.namespace("hosted")?;
    cluster.kubectl("create configmap prices --from-literal=tea=3 --from-literal=cup=1 -n hosted".split(' '))?;
    let path = "configmaps/hosted/prices";
    wait::until("the creation to be committed", || cluster.committed(path))?;
    let shown = "-o=jsonpath={.data.tea} {.data.cup}{\"\\n\"}";
    let following = Following::start(cluster, "hosted.shown", &["configmap", "prices", "-n", "hosted", shown])?;
    following.shows("3 1")?;
    let clone = clone_of(cluster, &cluster.git_url()?, "hosted")?;
    edit(&clone.join(path), r#""tea": "3""#, r#""tea": "4""#)?;
    push(&clone)?;
    following.shows("4 1")?;

    // A concurrent change of another field through the API survives.
    edit(&clone.join(path), r#""tea": "4""#, r#""tea": "5""#)?;
    cluster.kubectl(["patch", "configmap", "prices", "-n", "hosted", "-p", r#"{"data":{"cup":"2"}}"#])?;
    git::run(&clone, &["commit", "--quiet", "--all", "-m", "by hand"])?;
    // For Git the two lines conflict, and the branch has moved on: the host merges.
    git::run(&clone, &["push", "--quiet", "origin", "HEAD:refs/for/main"])?;
    following.shows("5 2")?;

    git::run(&clone, &["fetch", "--quiet"])?;
    git::run(&clone, &["reset", "--quiet", "--hard", "origin/main"])?;
    edit(&clone.join(path), r#""cup": "2""#, r#""cup": "#)?;
    git::run(&clone, &["commit", "--quiet", "--all", "-m", "broken"])?;
    let refused = wait::until("a refusal other than for a stale branch", || {
        let Err(refused) = git::run(&clone, &["push", "--quiet", "origin", "main"]) else {
            bail!("a broken file was accepted");
        };
        let refused = refused.to_string();
        if refused.contains(path) {
            return Ok(Some(refused));
        }
        git::run(&clone, &["pull", "--quiet", "--rebase"])?;
        Ok(None)
    })?;
    ensure!(refused.contains("[remote rejected] main -> main"), "{refused}");
    ensure!(
        cluster.committed(path)?.is_some_and(|text| text.contains(r#""cup": "2""#)),
        "the committed file must be unchanged"
    );
    // The API and open watches keep working.
    cluster.kubectl(["patch", "configmap", "prices", "-n", "hosted", "-p", r#"{"data":{"cup":"3"}}"#])?;
    following.shows("5 3")?;
    Ok(())
}

pub(crate) fn informers_follow_merges_of_hundreds_of_keys(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    const MAPS: usize = 500;
    cluster.namespace("many")?;
    cluster.kubectl("create configmap first --from-literal=n=0 -n many".split(' '))?;
    wait::until("the creation to be committed", || cluster.committed("configmaps/many/first"))?;
    let path = "/api/v1/namespaces/many/configmaps";
    let watch = Watch::start(cluster, path)?;
    let unlucky = Unlucky::start(cluster, path)?;
    let clone = clone(cluster, "many")?;
    let folder = clone.join("configmaps/many");
    for number in 0..MAPS {
        let metadata = format!(r#"{{"name": "made{number}", "namespace": "many"}}"#);
        let text =
            format!(r#"{{"kind": "ConfigMap", "apiVersion": "v1", "metadata": {metadata}, "data": {{"n": "0"}}}}"#);
        std::fs::write(folder.join(format!("made{number}")), text)?;
    }
    push(&clone)?;
    let made = |cluster: &Cluster| -> anyhow::Result<Vec<(String, String, bool)>> {
        let list = cluster.object("configmaps -n many")?;
        let items = list["items"].as_array().context("the list has no items")?;
        let maps = items.iter().map(|item| {
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let has_identity = item["metadata"]["uid"].is_string() && item["metadata"]["creationTimestamp"].is_string();
            (text(&item["metadata"]["name"]), text(&item["data"]["n"]), has_identity)
        });
        Ok(maps.filter(|(name, ..)| name.starts_with("made")).collect())
    };
    wait::until_true("all objects to exist", || Ok(made(cluster)?.len() == MAPS))?;
    ensure!(made(cluster)?.iter().all(|(_, _, has_identity)| *has_identity), "all objects must have an identity");
    watch.wait("one event per object", |seen| {
        let added = seen.events.iter().filter(|event| event.kind == "ADDED" && event.name.starts_with("made"));
        added.count() == MAPS
    })?;
    // Half of the objects are changed and the others deleted, while the API server changes one of them.
    git::run(&clone, &["pull", "--quiet", "--rebase"])?;
    for number in 0..MAPS {
        let file = folder.join(format!("made{number}"));
        if number % 2 == 0 { edit(&file, r#""n": "0""#, r#""n": "1""#)? } else { std::fs::remove_file(&file)? }
    }
    cluster.kubectl("label configmap made0 -n many here=too".split(' '))?;
    push(&clone)?;
    wait::until_true("the changes to be merged", || {
        let made = made(cluster)?;
        Ok(made.len() == MAPS / 2 && made.iter().all(|(_, n, _)| n == "1"))
    })?;
    let live = cluster.object("configmap made0 -n many")?;
    ensure!(live["metadata"]["labels"]["here"] == "too", "{live}");
    watch.wait("all deletion events", |seen| {
        seen.events.iter().filter(|event| event.kind == "DELETED").count() == MAPS / 2
    })?;
    cluster.git(&["fsck", "--full"])?;
    // Clients that were disconnected meanwhile end with exactly the existing objects.
    let there = objects(&cluster.raw(path)?)?;
    let resumed = unlucky.end(|watch| {
        let seen = watch.wait("a disconnected client to catch up", |seen| seen.objects == there)?;
        Ok(seen.resumed)
    })?;
    // The number depends on how long the merges take.
    ensure!(resumed.iter().all(|resumed| *resumed > 0), "a client was never disconnected: {resumed:?}");
    Ok(())
}

/// Clients whose connections are cut repeatedly at random.
struct Unlucky {
    watches: Arc<Vec<Watch>>,
    cutter: Option<JoinHandle<()>>,
    stop: mpsc::Sender<()>,
}

impl Unlucky {
    fn start(cluster: &Arc<Cluster>, path: &str) -> anyhow::Result<Self> {
        let watches = (0..3).map(|_| Watch::start(cluster, path)).collect::<anyhow::Result<Vec<_>>>()?;
        let watches = Arc::new(watches);
        let (stop, stopped) = mpsc::channel();
        let cut = watches.clone();
        let cutter = std::thread::spawn(move || {
            let chance = RandomState::new();
            for number in 0_u64.. {
                let chance = chance.hash_one(number);
                let pause = Duration::from_millis(50 + chance % 200);
                if stopped.recv_timeout(pause) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
                cut[(chance >> 32) as usize % cut.len()].cut();
            }
        });
        Ok(Self { watches, cutter: Some(cutter), stop })
    }

    /// Stops the cuts and returns `look` at each client.
    fn end<T>(mut self, look: impl Fn(&Watch) -> anyhow::Result<T>) -> anyhow::Result<Vec<T>> {
        let _stopped = self.stop.send(());
        if let Some(cutter) = self.cutter.take() {
            ensure!(cutter.join().is_ok(), "the cutting thread panicked");
        }
        self.watches.iter().map(look).collect()
    }
}
