//! A headless cluster in pods, from manifests published with another implementation.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use crate::beside;
use crate::world::{Heaven, REPOSITORY, TOKEN, World, until};

const GIT_HOST: &str = include_str!("git-host.yaml");
/// Replaces a configuration that today's kube-scheduler no longer knows.
const SCHEDULER: &str = include_str!("../../../examples/published/scheduler.yaml");
/// The node that pods are bound to. It runs nothing.
pub(crate) const NODE: &str = "stand-in";
const IMAGE: &str = "registry.k8s.io/pause:3.10.1";
/// The heaven of kube-controller-manager.
pub(crate) const CONTROLLERS: &str = "sample-k8s-kcm";
/// The heaven of kube-scheduler.
pub(crate) const SCHEDULERS: &str = "sample-k8s-kube-scheduler";
/// The published heavens that are started. The others are for a cloud's machines.
const WANTED: [&str; 3] = ["sample-k8s", CONTROLLERS, SCHEDULERS];

/// A Deployment committed to the upstream branch gets its `ReplicaSet` and Pods from one heaven, and their nodes from the
/// other.
pub(crate) fn the_published_samples_become_a_cluster_whose_controllers_agree(world: &Arc<World>) -> anyhow::Result<()> {
    let begun = Instant::now();
    git_host(world)?;
    for manifest in published()? {
        world.cluster().apply(&manifest.to_string())?;
    }
    world.cluster().apply(SCHEDULER)?;
    for heaven in WANTED {
        world.until_condition(&format!("trishankuheaven {heaven}"), "Ready")?;
    }
    world.until_condition("automatedmerge sample-k8s-kcm", "Ready")?;
    eprintln!("from the manifests to a headless cluster: {:?}", begun.elapsed());

    let clone = world.file("clone");
    std::fs::create_dir(&clone)?;
    world.git(&clone, &["clone", "--quiet", "--branch=upstream/data", "REMOTE", "."])?;
    let begun = Instant::now();
    commit(
        world,
        &clone,
        &[(&format!("minions/{NODE}"), node()), ("deployments/default/hello", deployment("hello", 2))],
    )?;
    let mut kubelet = Kubelet::at(world)?;
    until("both pods to have a node", || kubelet.work(2, "1"))?;
    eprintln!("from a commit upstream to two bound pods: {:?}", begun.elapsed());

    // Each heaven did its own part, on its own branch.
    world.git(&clone, &["fetch", "--quiet", "REMOTE", "upstream/data"])?;
    let wrote = world.git(
        &clone,
        &["log", "--no-merges", "--format=%cn: %s", "FETCH_HEAD", "--", "pods/default", "replicasets/default"],
    )?;
    let has = |who: &str, what: &str| wrote.lines().any(|line| line.starts_with(who) && line.contains(what));
    ensure!(has(CONTROLLERS, "replicasets/default/hello"), "{wrote}");
    ensure!(has(CONTROLLERS, "create pods/default/hello") || has(CONTROLLERS, "pods"), "{wrote}");
    ensure!(has(SCHEDULERS, "update pods/default/hello") || has(SCHEDULERS, "pods"), "{wrote}");
    Ok(())
}

/// The manifests of this project, by the steps of the documentation, in a namespace that enforces the restricted standard.
pub(crate) fn a_headless_cluster_is_made_as_the_documentation_says(world: &Arc<World>) -> anyhow::Result<()> {
    let checkout = world.file("checkout");
    for samples in ["deploy/kustomize/samples", "deploy/kustomize/samples-without-github"] {
        std::fs::create_dir_all(checkout.join(samples))?;
        for entry in std::fs::read_dir(World::source(samples))? {
            let entry = entry?;
            std::fs::copy(entry.path(), checkout.join(samples).join(entry.file_name()))?;
        }
    }
    let given = [("https://YOURS", "https://10.96.0.80/other"), ("USER", "e2e"), ("TOKEN", TOKEN)];
    let typed = |command: &str| world.documented_with(command, &given, &checkout);
    let begun = Instant::now();
    // The file that the documentation asks to edit.
    let settings = checkout.join("deploy/kustomize/samples/settings.env");
    let text = std::fs::read_to_string(&settings)?;
    let edited = text.replace("https://git.example.org/", "https://10.96.0.80/other/");
    ensure!(edited != text, "{text}");
    std::fs::write(&settings, edited)?;
    typed("kubectl create namespace cluster")?;
    world.kubectl("label namespace cluster pod-security.kubernetes.io/enforce=restricted")?;
    typed(
        "kubectl create secret generic git-credentials --namespace cluster --from-literal=username=USER --from-literal=password=TOKEN --from-literal=url=https://YOURS",
    )?;
    world.trust_host("cluster", "git-credentials")?;
    typed("kubectl apply --namespace cluster --kustomize deploy/kustomize/samples-without-github")?;
    for object in
        ["trishankuheaven kube-controller-manager", "trishankuheaven kube-scheduler", "automatedmerge cluster"]
    {
        world.until_condition(&format!("{object} --namespace cluster"), "Ready")?;
    }
    eprintln!("from the documentation to a headless cluster: {:?}", begun.elapsed());
    let heaven = world.heaven("cluster", "kube-controller-manager", "cluster-admin")?;
    let took = beside::bound_there(&heaven)?;
    eprintln!("ten pods are created by one heaven and bound by the other in {took:?}");
    drop(heaven);
    world.kubectl("delete trishankuheavens,automatedmerges --all --namespace cluster --timeout=4m")?;
    world.kubectl("delete namespace cluster --timeout=2m")?;
    Ok(())
}

/// Common operations on a Deployment at one heaven; the other takes part through the branches.
pub(crate) fn a_deployment_is_scaled_updated_set_back_and_deleted(world: &Arc<World>) -> anyhow::Result<()> {
    let mut kubelet = Kubelet::at(world)?;
    kubelet.heaven.kubectl("scale deployment hello --replicas=4")?;
    until("four pods", || kubelet.work(4, "1"))?;
    kubelet.heaven.kubectl("set image deployment/hello app=registry.k8s.io/pause:next")?;
    until("four new pods", || kubelet.work(4, "2"))?;
    kubelet.heaven.kubectl("rollout undo deployment/hello")?;
    until("four pods of the previous revision", || kubelet.work(4, "3"))?;
    let image = "get deployment hello --output=jsonpath={.spec.template.spec.containers[0].image}";
    ensure!(kubelet.heaven.kubectl(image)? == IMAGE);
    kubelet.heaven.kubectl("delete deployment hello --wait=false")?;
    until("the Deployment's objects to be gone", || kubelet.gone())?;
    kubelet.heaven.kubectl(&format!("delete node {NODE}"))?;
    // The upstream branch must lose it, too.
    let clone = world.file("clone");
    until("the upstream branch to lose it", || {
        world.git(&clone, &["fetch", "--quiet", "REMOTE", "upstream/data"])?;
        let files = world.git(&clone, &["ls-tree", "-r", "--name-only", "FETCH_HEAD"])?;
        let left: Vec<_> = files.lines().filter(|file| file.contains("/default/hello")).collect();
        ensure!(left.is_empty(), "{left:?}");
        Ok(Some(()))
    })
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter(|found| found["type"] == "Ready").any(|found| found["status"] == "True")
}

/// Does a kubelet's work: reports the node and its pods as running, and removes deleted pods.
struct Kubelet<'w> {
    heaven: Heaven<'w>,
}

impl<'w> Kubelet<'w> {
    fn at(world: &'w World) -> anyhow::Result<Self> {
        Ok(Self { heaven: world.heaven("default", CONTROLLERS, "sample-k8s-admin")? })
    }

    /// Polls once: whether the Deployment is at this revision with so many pods, all of them bound.
    fn work(&mut self, wanted: usize, revision: &str) -> anyhow::Result<Option<()>> {
        let pods = self.look_after()?;
        let bound = pods.iter().filter(|pod| pod["spec"]["nodeName"] == NODE).count();
        ensure!(pods.len() == wanted && bound == wanted, "{} pods, {bound} of them bound", pods.len());
        let deployment = self.heaven.object("deployment hello")?;
        let status = &deployment["status"];
        let is_at = deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == revision;
        let all = ["replicas", "updatedReplicas", "readyReplicas"].iter().all(|field| status[field] == wanted);
        ensure!(is_at && all && status["observedGeneration"] == deployment["metadata"]["generation"], "{status}");
        Ok(Some(()))
    }

    fn gone(&mut self) -> anyhow::Result<Option<()>> {
        let pods = self.look_after()?;
        let left = self.heaven.kubectl("get deployments,replicasets --output=name")?;
        ensure!(pods.is_empty() && left.is_empty(), "{} pods, {left}", pods.len());
        Ok(Some(()))
    }

    /// Returns the pods that are not being deleted.
    fn look_after(&mut self) -> anyhow::Result<Vec<Value>> {
        self.patch(&format!("node {NODE}"), &json!({"status": node()["status"]}))?;
        let pods = self.heaven.object("pods --selector=app=hello")?;
        let (ends, stays): (Vec<_>, Vec<_>) = pods["items"]
            .as_array()
            .cloned()
            .unwrap_or_default()
            .into_iter()
            .partition(|pod| !pod["metadata"]["deletionTimestamp"].is_null());
        for pod in &ends {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            self.heaven
                .kubectl(&format!("delete pod {name} --force --grace-period=0 --ignore-not-found --wait=false"))?;
        }
        for pod in &stays {
            // Not once: on a busy machine, a late status of the node makes its pods unready.
            if pod["spec"]["nodeName"] == NODE && !is_ready(pod) {
                let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": now()});
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                self.patch(&format!("pod {name}"), &json!({"status": {"phase": "Running", "conditions": [ready]}}))?;
            }
        }
        Ok(stays)
    }

    fn patch(&self, what: &str, patch: &Value) -> anyhow::Result<()> {
        let words = format!("patch {what} --subresource=status --type=merge --patch-file=/dev/stdin");
        self.heaven.kubectl_with(&words, &patch.to_string()).map(drop)
    }
}

fn git_host(world: &World) -> anyhow::Result<()> {
    let tokens = format!(
        "- user: e2e\n  token: {TOKEN}\n  rights:\n  - {{repository: team/*, access: own}}\n  - {{repository: other/*, access: own}}\n"
    );
    let certificate = &world.host_certificate;
    let secrets = [
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "git-tokens"}, "stringData": {"tokens.yaml": tokens}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "git-cred"},
               "stringData": {"url": REPOSITORY, "username": "e2e", "password": TOKEN, "ca.crt": certificate.authority}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "git-tls"}, "type": "kubernetes.io/tls",
               "stringData": {"tls.crt": certificate.certificate, "tls.key": certificate.key}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "gar-cred"}, "type": "kubernetes.io/dockerconfigjson",
               "stringData": {".dockerconfigjson": r#"{"auths": {}}"#}}),
    ];
    for secret in secrets {
        world.cluster().apply(&secret.to_string())?;
    }
    world.cluster().apply(GIT_HOST)?;
    world.until_condition("deployment git", "Available")
}

/// The published manifests, with another repository and with available images and credentials.
fn published() -> anyhow::Result<Vec<Value>> {
    let folder = std::env::var_os("PUBLISHED_SAMPLES")
        .context("PUBLISHED_SAMPLES must name the folder with the published samples")?;
    let mut manifests = Vec::new();
    for kind in ["trishankuheaven", "automatedmerge"] {
        let file = Path::new(&folder).join(format!("controllers.trishanku.org_v1alpha1_{kind}.yaml"));
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        for mut manifest in serde_saphyr::from_multiple::<Value>(&text)? {
            let is_ours = manifest["kind"] == "AutomatedMerge"
                || manifest["kind"] == "TrishankuHeaven"
                    && WANTED.iter().any(|name| manifest["metadata"]["name"] == *name);
            if is_ours {
                replace(&mut manifest);
                manifests.push(manifest);
            }
        }
    }
    if manifests.len() != 4 {
        bail!("expected three heavens and a merge, but found {}", manifests.len());
    }
    Ok(manifests)
}

fn replace(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // There is no registry to pull an image from.
            if fields.get("imagePullPolicy").is_some_and(|policy| policy == "Always") {
                fields.insert("imagePullPolicy".to_owned(), "IfNotPresent".into());
            }
            fields.values_mut().for_each(replace);
        }
        Value::Array(values) => values.iter_mut().for_each(replace),
        Value::String(text) if text == "https://github.com/trishanku-org/sample-k8s" => REPOSITORY.clone_into(text),
        Value::String(text) if text.starts_with("registry.k8s.io/kube-") => {
            *text = text.replace(":v1.24.4", ":v1.36.3");
        }
        _ => {}
    }
}

/// Commits files, retrying the push while the branch moves on.
fn commit(world: &World, clone: &Path, files: &[(&str, Value)]) -> anyhow::Result<()> {
    for (path, content) in files {
        let file = clone.join(path);
        std::fs::create_dir_all(file.parent().context("the file has no parent folder")?)?;
        std::fs::write(&file, serde_json::to_string_pretty(content)?)?;
    }
    world.git(clone, &["add", "--all"])?;
    world.git(clone, &["commit", "--quiet", "--message=by hand"])?;
    until("the push", || {
        world.git(clone, &["pull", "--quiet", "--rebase", "REMOTE", "upstream/data"])?;
        world.git(clone, &["push", "--quiet", "REMOTE", "HEAD:upstream/data"]).map(Some)
    })?;
    Ok(())
}

/// The Node object with a fresh status.
pub(crate) fn node() -> Value {
    let room = json!({"cpu": "8", "memory": "16Gi", "pods": "110"});
    let now = now();
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}},
        "status": {"capacity": room, "allocatable": room, "conditions": [{
            "type": "Ready", "status": "True", "reason": "StandsIn", "message": "nothing runs here",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }]},
    })
}

fn now() -> String {
    let now = time::OffsetDateTime::now_utc();
    format!("{}T{:02}:{:02}:{:02}Z", now.date(), now.hour(), now.minute(), now.second())
}

pub(crate) fn deployment(name: &str, replicas: usize) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "app", "image": IMAGE}]},
            },
        },
    })
}
