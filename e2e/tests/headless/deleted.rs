//! Objects deleted right after their creation, while controllers of other heavens work on them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use trishanku::demo::StandIn;
use trishanku_e2e::{Cluster, git, is_long, wait};

const NAMESPACE: &str = "deleted";

/// Kinds that are created here or by controllers: `apiVersion`, kind, plural.
const KINDS: [(&str, &str, &str); 10] = [
    ("apps/v1", "Deployment", "deployments"),
    ("apps/v1", "StatefulSet", "statefulsets"),
    ("batch/v1", "Job", "jobs"),
    ("v1", "Service", "services"),
    ("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ("v1", "Pod", "pods"),
    ("apps/v1", "ReplicaSet", "replicasets"),
    ("apps/v1", "ControllerRevision", "controllerrevisions"),
    ("v1", "Endpoints", "endpoints"),
    ("discovery.k8s.io/v1", "EndpointSlice", "endpointslices"),
];

/// The number of these kinds that are created here, in turn.
const CREATED: usize = 5;

/// Objects that belong together, and when they are deleted.
struct Plan {
    objects: Vec<Value>,
    after: Duration,
}

fn template(name: &str) -> Value {
    json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "nowhere/at-all"}]}})
}

fn objects(number: usize, name: &str) -> Vec<Value> {
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    let (api_version, kind, _) = KINDS[number % CREATED];
    let with = |spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
    let selector = json!({"matchLabels": {"app": name}});
    match kind {
        "Deployment" => vec![with(json!({"replicas": 2, "selector": selector, "template": template(name)}))],
        "StatefulSet" => vec![with(json!({"replicas": 2, "podManagementPolicy": "Parallel", "serviceName": name,
            "selector": selector, "template": template(name)}))],
        "Job" => {
            let mut template = template(name);
            template["spec"]["restartPolicy"] = "Never".into();
            vec![with(json!({"completions": 2, "parallelism": 2, "template": template}))]
        }
        "Service" => vec![with(json!({"selector": {"app": name}, "ports": [{"port": 80}]}))],
        // The scheduler chooses a node for a claim used by a pod.
        _ => {
            let claim = with(json!({"storageClassName": NAMESPACE, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Mi"}}}));
            let mut spec = template(name)["spec"].clone();
            spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": name}}]);
            vec![claim, json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})]
        }
    }
}

async fn client(kubeconfig: PathBuf) -> anyhow::Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    Ok(Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?)
}

fn api(client: &Client, api_version: &str, kind: &str) -> anyhow::Result<Api<DynamicObject>> {
    let found = KINDS.iter().find(|(version, name, _)| *version == api_version && *name == kind);
    let (_, _, plural) = found.with_context(|| format!("{api_version} {kind} is not in KINDS"))?;
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let resource = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        plural: (*plural).to_owned(),
    };
    Ok(Api::namespaced_with(client.clone(), NAMESPACE, &resource))
}

async fn create_and_delete(client: Client, plan: Plan) -> anyhow::Result<()> {
    let mut created = Vec::new();
    for object in &plan.objects {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let api = api(&client, text("apiVersion"), text("kind"))?;
        let object: DynamicObject = serde_json::from_value(object.clone())?;
        let name = object.metadata.name.clone().context("the object has no name")?;
        api.create(&PostParams::default(), &object).await?;
        created.push((api, name));
    }
    // The delay is varied; the outcome must not depend on it.
    tokio::time::sleep(plan.after).await;
    for (api, name) in created {
        api.delete(&name, &DeleteParams::background()).await?;
    }
    Ok(())
}

/// Deletes the pods that a kubelet would have stopped.
async fn kubelet(pods: Api<DynamicObject>) {
    loop {
        // Failed requests are retried.
        let listed = pods.list(&ListParams::default()).await;
        for pod in listed.into_iter().flat_map(|list| list.items) {
            let is_bound = pod.data["spec"]["nodeName"].is_string();
            if let (true, Some(_), Some(name)) = (is_bound, &pod.metadata.deletion_timestamp, &pod.metadata.name) {
                // It may already be gone.
                drop(pods.delete(name, &DeleteParams::default().grace_period(0)).await);
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The remaining objects at a heaven.
fn left(cluster: &Cluster, heaven: &str) -> anyhow::Result<Vec<String>> {
    let kinds = KINDS.map(|(_, _, plural)| plural).join(",");
    let listed = cluster.kubectl_at(heaven, ["get", &kinds, "--namespace", NAMESPACE, "--output=name"])?;
    Ok(listed.lines().map(|line| format!("{heaven}: {line}")).collect())
}

fn plans() -> Vec<Plan> {
    let seed = std::env::var("TRISHANKU_E2E_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand::random);
    eprintln!("TRISHANKU_E2E_SEED={seed}");
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let of_each = if is_long() { 40 } else { 6 };
    let mut plans: Vec<Plan> = (0..CREATED * of_each)
        .map(|number| Plan {
            objects: objects(number, &format!("random-{number}")),
            after: Duration::from_millis(random.random_range(0..1000)),
        })
        .collect();
    let delays: u64 = if is_long() { 20 } else { 0 };
    for delay in 0..delays {
        plans.extend((0..2 * CREATED).map(|number| Plan {
            objects: objects(number, &format!("fixed-{delay}-{number}")),
            after: Duration::from_millis(delay * 2000 / (delays - 1)),
        }));
    }
    plans
}

/// The number of concurrent plans.
const AT_ONCE: usize = 10;

async fn storm(client: Client) -> anyhow::Result<()> {
    let mut waiting = plans().into_iter();
    let mut running = tokio::task::JoinSet::new();
    loop {
        while running.len() < AT_ONCE
            && let Some(plan) = waiting.next()
        {
            running.spawn(create_and_delete(client.clone(), plan));
        }
        match running.join_next().await {
            Some(ended) => ended??,
            None => return Ok(()),
        }
    }
}

pub(crate) fn what_is_deleted_a_moment_after_it_was_created_stays_deleted(
    cluster: &Arc<Cluster>,
) -> anyhow::Result<()> {
    cluster.kubectl(["create", "namespace", NAMESPACE])?;
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": NAMESPACE},
        "provisioner": "example.org/none", "volumeBindingMode": "WaitForFirstConsumer"});
    cluster.kubectl_with(["create", "--filename=-"], &class.to_string())?;
    let kubectl = cluster.plain_kubectl();
    let node = StandIn::ensure(&kubectl)?;
    wait::until_true("the namespace to have its service account", || {
        cluster.kubectl(["get", "serviceaccount", "default", "--namespace", NAMESPACE]).map(|_| true)
    })?;

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let desk = runtime.block_on(client(cluster.home().kubeconfig()))?;
    let stopping = runtime.spawn(kubelet(api(&desk, "v1", "Pod")?));
    runtime.block_on(storm(desk))?;

    let with_apiserver = cluster.heavens()?.into_iter().filter(|heaven| heaven.kubeconfig.is_some());
    let heavens: Vec<String> = with_apiserver.map(|heaven| heaven.name).collect();
    let mut seen = Vec::new();
    let gone = wait::until_within("everything to be gone", 3 * wait::PATIENCE, || {
        node.beat(&kubectl)?;
        seen = heavens.iter().map(|heaven| left(cluster, heaven)).collect::<anyhow::Result<Vec<_>>>()?.concat();
        Ok(seen.is_empty().then_some(()))
    });
    ensure!(gone.is_ok(), "{gone:?}; {} objects remain: {:?}", seen.len(), &seen[..seen.len().min(20)]);
    // It must not come back with changes that the others have not pushed yet.
    cluster.wait_agreed()?;
    for heaven in &heavens {
        let found = left(cluster, heaven)?;
        ensure!(found.is_empty(), "{found:?}");
    }
    no_conflict_is_reported(cluster)?;
    stopping.abort();
    cluster.kubectl(["delete", "namespace", NAMESPACE, "--timeout=1m"])?;
    cluster.kubectl(["delete", "storageclass", NAMESPACE])?;
    node.remove_unless_used(&kubectl)?;
    cluster.wait_agreed()?;
    Ok(())
}

pub(crate) fn mesh_what_is_deleted_a_moment_after_it_was_created_stays_deleted(
    cluster: &Arc<Cluster>,
) -> anyhow::Result<()> {
    what_is_deleted_a_moment_after_it_was_created_stays_deleted(cluster)
}

/// No edit of a user is lost.
fn no_conflict_is_reported(cluster: &Cluster) -> anyhow::Result<()> {
    let of_here = format!("/{NAMESPACE}/");
    for heaven in cluster.heavens()? {
        let words = ["log", "--merges", "--grep=^Conflict:", "--format=%B", &heaven.branch];
        let log = git::run(&heaven.repository, &words)?;
        let is_of_here = |line: &&str| line.starts_with("Conflict:") && line.contains(&of_here);
        let found: Vec<&str> = log.lines().filter(is_of_here).collect();
        ensure!(found.is_empty(), "{}: {found:#?}", heaven.name);
    }
    Ok(())
}
