//! The controllers with the rights that `deploy` gives them, and no others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::rbac::v1::Role;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use trishanku_framework::cache::Scope;
use trishanku_framework::crd::Definitions;
use trishanku_framework::{Manager, lease};
use trishanku_heaven::{Settings, heavens};
use trishanku_testkit::audit::Entry;
use trishanku_testkit::{TestCluster, wait};

use crate::daemon_set::DaemonSetHeaven;
use crate::job::JobHeaven;
use crate::stateful_set::StatefulSetHeaven;

const ACCOUNT: &str = "system:serviceaccount:workload-heavens:workload-heavens";
const HEAVENS: &str = "workloads";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

fn kubectl(cluster: &TestCluster, arguments: &[&str]) -> Output {
    let assets = ["KUBEBUILDER_ASSETS", "TRISHANKU_ASSETS"].iter().find_map(std::env::var_os);
    let program = assets.map_or_else(|| PathBuf::from("kubectl"), |folder| PathBuf::from(folder).join("kubectl"));
    Command::new(program).env("KUBECONFIG", cluster.kubeconfig(None)).args(arguments).output().unwrap()
}

/// Applies what the page says, with kubectl.
fn deploy(cluster: &TestCluster) {
    let folder = folder().display().to_string();
    let applied = kubectl(cluster, &["apply", "--server-side", "--kustomize", &folder]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
}

#[test]
fn the_definitions_that_are_deployed_are_those_of_the_types() {
    let definitions = Definitions::of::<StatefulSetHeaven>().and::<DaemonSetHeaven>().and::<JobHeaven>();
    let deployed = std::fs::read_to_string(folder().join("crd.yaml")).unwrap();
    assert_eq!(definitions.to_string(), deployed, "run `workload-heavens crd > examples/heavens/deploy/crd.yaml`");
}

/// Applies a heaven as a user would.
async fn apply<K>(client: &Client, name: &str, spec: Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let object =
        json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {"name": name}, "spec": spec});
    let heavens: Api<K> = Api::namespaced(client.clone(), HEAVENS);
    heavens.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(object)).await.unwrap();
}

/// Waits until a workload exists; returns its uid.
async fn exists<W>(client: &Client, name: &str, but: Option<&str>) -> String
where
    W: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + DeserializeOwned,
{
    let api: Api<W> = Api::namespaced(client.clone(), HEAVENS);
    let is_new = |found: &W| found.meta().uid.as_deref() != but;
    wait::until_object(&api, name, "it exists", is_new).await.unwrap().meta().uid.clone().unwrap()
}

/// Copies an object of a heaven, as a former version of the controllers that chose other names would have left it. Returns the name of
/// the copy.
async fn leave_former<W>(api: &Api<W>) -> String
where
    W: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + DeserializeOwned,
{
    let is_owned = |found: &&W| found.meta().owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
    let present = api.list(&ListParams::default()).await.unwrap();
    let mut former = present.iter().find(is_owned).expect("a heaven has such an object").clone();
    let ObjectMeta { name, labels, owner_references, .. } = std::mem::take(former.meta_mut());
    let name = format!("former-{}", name.unwrap());
    *former.meta_mut() = ObjectMeta { name: Some(name.clone()), labels, owner_references, ..ObjectMeta::default() };
    api.create(&PostParams::default(), &former).await.unwrap();
    name
}

/// Leaves objects as a former version of the controllers would, and waits until they are deleted. `agents` is the spec of the heaven.
async fn deletes_what_is_left(client: &Client, agents: &Value) {
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), HEAVENS);
    wait::until_gone(&sets, &leave_former(&sets).await).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), HEAVENS);
    wait::until_gone(&maps, &leave_former(&maps).await).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), HEAVENS);
    // Secrets are released once in each generation of their heaven, in which the watch may be behind.
    let former = leave_former(&secrets).await;
    let mut replicas = 2;
    let released = wait::until("the release of a Secret", async || {
        replicas += 1;
        let mut scaled = agents.clone();
        scaled["replicas"] = replicas.into();
        apply::<StatefulSetHeaven>(client, "agents", spec("", &scaled)).await;
        match secrets.get_metadata_opt(&former).await {
            Ok(None) => Ok(()),
            found => Err(format!("{found:?}")),
        }
    });
    released.await.unwrap();
}

fn spec(branch: &str, more: &Value) -> Value {
    let mut spec = json!({
        "userName": "agents", "kubeconfigMountPath": "/kubeconfig", "gitcd": {"git": {"branches": {"data": branch}}},
        "podTemplate": {"spec": {"containers": [{"name": "app", "image": "app:1"}]}},
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

#[tokio::test]
async fn the_controllers_need_all_rights_that_are_deployed_and_no_others() {
    let cluster = TestCluster::shared().await;
    let client = cluster.client();
    trishanku_api::definitions().apply(&client, "trishanku-manager").await.unwrap();
    deploy(cluster);
    let definitions = folder().join("crd.yaml").display().to_string();
    let served = kubectl(cluster, &["wait", "--for=condition=Established", "--filename", &definitions]);
    assert!(served.status.success(), "{}", String::from_utf8_lossy(&served.stderr));
    // As the program does with the variables of the Deployment.
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "workload-heavens");
    let pod = deployments.get("workload-heavens").await.unwrap().spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.service_account_name.as_deref(), Some("workload-heavens"));
    let variable = |name: &str| pod.containers[0].env.iter().flatten().find(|found| found.name == name).cloned();
    let watched = variable("WATCH_NAMESPACES").and_then(|found| found.value).unwrap();
    assert!(variable("POD_NAMESPACE").is_some_and(|found| found.value_from.is_some()));
    let mut config = cluster.config();
    config.auth_info.impersonate = Some(ACCOUNT.to_owned());
    let (stop, stopped) = oneshot::channel::<()>();
    let manager = Manager::with_scope(config, Scope::namespaces(watched.split(',')))
        .leader_election(lease::Settings::new("workload-heavens", "workload-heavens"))
        .controller(heavens::<StatefulSetHeaven>("stateful-set-heaven", Settings::default()))
        .controller(heavens::<DaemonSetHeaven>("daemon-set-heaven", Settings::default()))
        .controller(heavens::<JobHeaven>("job-heaven", Settings::default()));
    let running = tokio::spawn(manager.run(async { drop(stopped.await) }));

    let remote = json!({"metadata": {"name": "remote"}, "stringData": {"username": "u", "password": "p"}});
    let secrets: Api<Secret> = Api::namespaced(client.clone(), HEAVENS);
    secrets.create(&PostParams::default(), &serde_json::from_value(remote).unwrap()).await.unwrap();

    // Everything that heavens have: claims, a Service, entry points, Secrets of their own and those of users.
    let remote = json!([{"repo": "https://git.team.svc/cluster", "branches": {"data": "main"}}]);
    let stored = |size: &str| {
        let git = json!({"branches": {"data": "agents/$(REPLICA)"}, "remotes": remote});
        json!({"replicas": 2, "gitcd": {"git": git, "credentialsSecretName": "remote", "storage": {"volumeClaim": {"size": size}}}})
    };
    apply::<StatefulSetHeaven>(&client, "agents", spec("", &stored("1Gi"))).await;
    let first = exists::<StatefulSet>(&client, "agents-heaven", None).await;
    apply::<DaemonSetHeaven>(&client, "nodes", spec("nodes/$(REPLICA)", &json!({}))).await;
    let nodes = exists::<DaemonSet>(&client, "nodes-heaven", None).await;
    let mut import = spec("import", &json!({"certificatesOf": "agents"}));
    import.as_object_mut().unwrap().remove("userName");
    import["podTemplate"]["spec"]["restartPolicy"] = "Never".into();
    let served = json!({"tokensSecretName": "tokens", "tlsSecretName": "tls"});
    import["gitcd"]["storage"] = json!({"volumeClaim": {"size": "1Gi"}});
    import["gitcd"]["host"] = served;
    apply::<JobHeaven>(&client, "import", import.clone()).await;
    let job = exists::<Job>(&client, "import-heaven", None).await;
    // Changes that replace or remove objects.
    apply::<StatefulSetHeaven>(&client, "agents", spec("", &stored("2Gi"))).await;
    exists::<StatefulSet>(&client, "agents-heaven", Some(&first)).await;
    import["gitcd"].as_object_mut().unwrap().remove("host");
    import["podTemplate"]["spec"]["containers"][0]["image"] = "app:2".into();
    apply::<JobHeaven>(&client, "import", import).await;
    exists::<Job>(&client, "import-heaven", Some(&job)).await;
    let services: Api<Service> = Api::namespaced(client.clone(), HEAVENS);
    wait::until_gone(&services, "import-git").await.unwrap();
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), HEAVENS);
    apply::<DaemonSetHeaven>(&client, "nodes", spec("nodes/$(REPLICA)", &json!({"suspend": true}))).await;
    let stopped_pods = |set: &DaemonSet| {
        let pod = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        set.metadata.uid.as_deref() == Some(&nodes) && pod.is_some_and(|pod| pod.node_selector.is_some())
    };
    wait::until_object(&sets, "nodes-heaven", "it runs nowhere", stopped_pods).await.unwrap();
    deletes_what_is_left(&client, &stored("2Gi")).await;
    let deleted = DeleteParams::default();
    Api::<StatefulSetHeaven>::namespaced(client.clone(), HEAVENS).delete("agents", &deleted).await.unwrap();
    Api::<DaemonSetHeaven>::namespaced(client.clone(), HEAVENS).delete("nodes", &deleted).await.unwrap();
    Api::<JobHeaven>::namespaced(client.clone(), HEAVENS).delete("import", &deleted).await.unwrap();
    wait::until_gone(&Api::<StatefulSetHeaven>::namespaced(client.clone(), HEAVENS), "agents").await.unwrap();
    wait::until_gone(&Api::<DaemonSetHeaven>::namespaced(client.clone(), HEAVENS), "nodes").await.unwrap();
    wait::until_gone(&Api::<JobHeaven>::namespaced(client.clone(), HEAVENS), "import").await.unwrap();
    assert!(secrets.get("agents-controller").await.is_ok(), "garbage collection does not run here");
    drop(stop);
    running.await.unwrap().unwrap();

    let entries: Vec<_> = cluster.audit().into_iter().filter(|entry| entry.user() == ACCOUNT).collect();
    let refused: BTreeSet<_> = entries
        .iter()
        .filter(|entry| entry.code() == 403)
        .map(|entry| format!("{} {}", entry.verb, entry.uri))
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
    // Server-side apply is a patch that needs the right to create, too.
    let verbs = |entry: &Entry| [(entry.code() == 201).then(|| "create".to_owned()), Some(entry.verb.clone())];
    let used: BTreeSet<(String, String)> = entries
        .iter()
        .flat_map(|entry| verbs(entry).into_iter().flatten().map(|verb| (entry.resource(), verb)))
        .collect();
    let is_rare = |(resource, verb): &(String, String)| match (resource.as_str(), verb.as_str()) {
        // Where the API server does not stream lists as watches.
        (_, "list") => used.contains(&(resource.clone(), "watch".to_owned())),
        // A renewal of certificates, and a repeated event.
        ("secrets" | "events", "patch") => true,
        // It is checked by a plugin that does not run here.
        _ => resource.ends_with("/finalizers"),
    };
    let granted = granted(&client).await;
    let unused: Vec<_> = granted.iter().filter(|right| !used.contains(*right) && !is_rare(right)).collect();
    assert!(unused.is_empty(), "rights that nothing needs: {unused:?}");
}

/// The rights in the namespace of the heavens: resources and verbs.
async fn granted(client: &Client) -> Vec<(String, String)> {
    let roles: Api<Role> = Api::namespaced(client.clone(), HEAVENS);
    let granted = roles.get("workload-heavens").await.unwrap().rules.unwrap();
    let each = |rule: k8s_openapi::api::rbac::v1::PolicyRule| {
        let (resources, verbs) = (rule.resources.unwrap_or_default(), rule.verbs);
        resources
            .into_iter()
            .flat_map(move |resource| verbs.clone().into_iter().map(move |verb| (resource.clone(), verb)))
    };
    granted.into_iter().flat_map(each).collect()
}

#[tokio::test]
async fn the_service_account_reads_no_secret_elsewhere_and_changes_nothing_else() {
    let cluster = TestCluster::shared().await;
    deploy(cluster);
    let can = |verb: &str, what: &str, namespace: &str| {
        let account = format!("--as={ACCOUNT}");
        let group = "--as-group=system:serviceaccounts";
        let place =
            if namespace.is_empty() { "--all-namespaces".to_owned() } else { format!("--namespace={namespace}") };
        let answer = kubectl(cluster, &["auth", "can-i", verb, what, &place, &account, group]);
        match String::from_utf8_lossy(&answer.stdout).trim() {
            "yes" => true,
            "no" => false,
            other => panic!("{verb} {what}: {other} {}", String::from_utf8_lossy(&answer.stderr)),
        }
    };
    for (verb, what, namespace) in [
        ("get", "secrets", HEAVENS),
        ("patch", "statefulsets.apps", HEAVENS),
        ("update", "leases.coordination.k8s.io/workload-heavens", "workload-heavens"),
    ] {
        assert!(can(verb, what, namespace), "{verb} {what} in {namespace}");
    }
    for (verb, what, namespace) in [
        ("get", "secrets", "workload-heavens"),
        ("get", "secrets", "default"),
        ("get", "secrets", "kube-system"),
        ("list", "secrets", ""),
        ("watch", "secrets", ""),
        ("update", "leases.coordination.k8s.io/other", "workload-heavens"),
        ("create", "pods", HEAVENS),
        ("create", "pods/exec", HEAVENS),
        ("get", "pods/log", HEAVENS),
        ("create", "serviceaccounts/token", HEAVENS),
        ("delete", "persistentvolumeclaims", HEAVENS),
        ("create", "statefulsetheavens.heavens.example.org", HEAVENS),
        ("patch", "githubrepositories.controllers.trishanku.org.trishanku.org", HEAVENS),
        ("create", "rolebindings.rbac.authorization.k8s.io", HEAVENS),
        ("patch", "customresourcedefinitions.apiextensions.k8s.io", ""),
    ] {
        assert!(!can(verb, what, namespace), "{verb} {what} in {namespace}");
    }
}
