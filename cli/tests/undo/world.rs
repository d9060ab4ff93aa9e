//! The cluster of the scenarios, and a user of it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use gitcd::git::branch::Config;
use gitcd::history::History;
use gitcd::keyspace::KeySpace;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use trishanku_testkit::TestCluster;

use crate::controllers::Controllers;

/// How long a condition may take on a busy machine.
const WITHIN: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);

struct Shared {
    cluster: &'static TestCluster,
    kubeconfig: PathBuf,
    _controllers: Option<Controllers>,
}

static SHARED: OnceCell<Shared> = OnceCell::const_new();

async fn shared() -> &'static Shared {
    let start = async || {
        let cluster = TestCluster::shared().await;
        let kubeconfig = cluster.kubeconfig(None);
        let controllers = Controllers::start(&kubeconfig, cluster.folder());
        Shared { cluster, kubeconfig, _controllers: Some(controllers) }
    };
    SHARED.get_or_init(start).await
}

/// A namespace of the shared cluster, and a user with kubectl's and trishanku's rights in it.
pub(crate) struct World {
    shared: &'static Shared,
    client: Client,
    /// The namespace of the scenario.
    pub(crate) namespace: String,
}

/// The outcome of a `trishanku` command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Requires success.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{}\n{}", self.stdout, self.stderr);
        self
    }

    /// Requires exit code 1, and this text in the output.
    #[track_caller]
    pub(crate) fn fails_with(self, text: &str) -> Self {
        assert_eq!(self.code, Some(1), "{}\n{}", self.stdout, self.stderr);
        assert!(self.stdout.contains(text) || self.stderr.contains(text), "{text:?}: {}\n{}", self.stdout, self.stderr);
        self
    }

    /// Requires this text on standard output.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.stdout.contains(text), "{text:?}: {}", self.stdout);
        self
    }

    /// Returns the JSON on standard output.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.stderr))
    }
}

impl World {
    pub(crate) async fn new(name: &str) -> Self {
        let shared = shared().await;
        // Controllers create these in each namespace: a scenario starts when they exist.
        let world = Self { shared, client: shared.cluster.client(), namespace: shared.cluster.namespace(name).await };
        world.until("serviceaccounts/default", "it exists", |account| !account.is_null()).await;
        world
    }

    /// Starts a cluster without controllers, for what would disturb the other scenarios. It ends with the process.
    pub(crate) async fn alone(name: &str) -> Self {
        let cluster: &'static TestCluster = Box::leak(Box::new(TestCluster::start().await.expect("it starts")));
        let shared = Shared { cluster, kubeconfig: cluster.kubeconfig(None), _controllers: None };
        let namespace = cluster.namespace(name).await;
        Self { shared: Box::leak(Box::new(shared)), client: cluster.client(), namespace }
    }

    fn path(&self, object: &str) -> String {
        let (resource, name) = object.split_once('/').unwrap_or((object, ""));
        let (root, is_namespaced) = match resource {
            "namespaces" | "persistentvolumes" | "nodes" => ("/api/v1", false),
            "configmaps"
            | "secrets"
            | "services"
            | "serviceaccounts"
            | "persistentvolumeclaims"
            | "resourcequotas"
            | "pods"
            | "limitranges"
            | "events" => ("/api/v1", true),
            "deployments" | "statefulsets" | "replicasets" => ("/apis/apps/v1", true),
            "jobs" => ("/apis/batch/v1", true),
            "roles" | "rolebindings" => ("/apis/rbac.authorization.k8s.io/v1", true),
            "clusterroles" | "clusterrolebindings" => ("/apis/rbac.authorization.k8s.io/v1", false),
            "customresourcedefinitions" => ("/apis/apiextensions.k8s.io/v1", false),
            "validatingwebhookconfigurations" => ("/apis/admissionregistration.k8s.io/v1", false),
            "apiservices" => ("/apis/apiregistration.k8s.io/v1", false),
            "networkpolicies" => ("/apis/networking.k8s.io/v1", true),
            "poddisruptionbudgets" => ("/apis/policy/v1", true),
            "priorityclasses" => ("/apis/scheduling.k8s.io/v1", false),
            custom => return format!("/apis/{custom}.example.org/v1/namespaces/{}/{custom}/{name}", self.namespace),
        };
        let within = if is_namespaced { format!("/namespaces/{}", self.namespace) } else { String::new() };
        format!("{root}{within}/{resource}/{name}").trim_end_matches('/').to_owned()
    }

    async fn send(&self, method: &str, path: &str, content: &str, body: &Value) -> kube::Result<Value> {
        let request = http::Request::builder().method(method).uri(path);
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = request.header("Content-Type", content).body(body).expect("the path is valid");
        self.client.request(request).await
    }

    /// Returns an object such as `configmaps/a`; null if it does not exist.
    pub(crate) async fn get(&self, object: &str) -> Value {
        match self.send("GET", &self.path(object), "application/json", &Value::Null).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Value::Null,
            found => found.unwrap_or_else(|error| panic!("{object}: {error}")),
        }
    }

    /// Creates an object in a collection such as `configmaps`. Waits while admission is not ready for it.
    pub(crate) async fn create(&self, collection: &str, value: Value) -> Value {
        let path = format!("{}?fieldManager=ann", self.path(collection).trim_end_matches('/'));
        let made = self.send("POST", &path, "application/json", &value).await;
        made.unwrap_or_else(|error| panic!("{collection}: {error}: {value}"))
    }

    /// Merges fields into an object, as `kubectl patch` does.
    pub(crate) async fn patch(&self, object: &str, patch: Value) -> Value {
        self.patch_as("ann", object, patch).await
    }

    /// Does the same as a field manager.
    pub(crate) async fn patch_as(&self, manager: &str, object: &str, fields: Value) -> Value {
        let path = format!("{}?fieldManager={manager}", self.path(object));
        let patched = self.send("PATCH", &path, "application/merge-patch+json", &fields).await;
        patched.unwrap_or_else(|error| panic!("{object}: {error}"))
    }

    /// Merges fields into an object, as a dry run.
    pub(crate) async fn patch_dry(&self, object: &str, fields: Value) -> kube::Result<Value> {
        let path = format!("{}?dryRun=All", self.path(object));
        self.send("PATCH", &path, "application/merge-patch+json", &fields).await
    }

    /// Waits until the creation of an object is rejected.
    pub(crate) async fn until_rejected(&self, collection: &str, value: Value) {
        let path = format!("{}?dryRun=All", self.path(collection).trim_end_matches('/'));
        let deadline = Instant::now() + WITHIN;
        while self.send("POST", &path, "application/json", &value).await.is_ok() {
            assert!(Instant::now() < deadline, "{collection}: not rejected within {WITHIN:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until the deletion of an object is rejected.
    pub(crate) async fn until_deletion_rejected(&self, object: &str) {
        let path = format!("{}?dryRun=All", self.path(object));
        let deadline = Instant::now() + WITHIN;
        while self.send("DELETE", &path, "application/json", &Value::Null).await.is_ok() {
            assert!(Instant::now() < deadline, "{object}: not rejected within {WITHIN:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits for a condition.
    pub(crate) async fn until_so(&self, what: &str, mut is_met: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + WITHIN;
        while !is_met().await {
            assert!(Instant::now() < deadline, "not within {WITHIN:?}: {what}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Returns whether a request for a path is answered with a code.
    pub(crate) async fn is_answered(&self, path: &str, code: u16) -> bool {
        let answer = self.send("GET", path, "application/json", &Value::Null).await;
        matches!(answer, Err(kube::Error::Api(status)) if status.code == code)
    }

    /// Returns whether the branch has a commit.
    pub(crate) async fn has_commit(&self, commit: &str) -> bool {
        self.history().await.find_commit(commit).is_ok()
    }

    /// Runs a command with `--yes` until it succeeds, as a user does when kube-apiserver has not noticed a deletion yet.
    pub(crate) async fn run_until_ok(&self, line: &str) -> Ran {
        let deadline = Instant::now() + WITHIN;
        loop {
            let ran = self.run(line).await;
            if ran.code == Some(0) || Instant::now() > deadline {
                return ran.ok();
            }
        }
    }

    /// Deletes an object, and waits until it is gone.
    pub(crate) async fn delete(&self, object: &str) {
        self.request_deletion(object).await;
        self.until(object, "it is gone", Value::is_null).await;
    }

    /// Deletes an object, which may remain until its finalizers are removed.
    pub(crate) async fn request_deletion(&self, object: &str) {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
        let deleted = self.send("DELETE", &self.path(object), "application/json", &options).await;
        deleted.unwrap_or_else(|error| panic!("{object}: {error}"));
    }

    /// Waits until an object, null if there is none, meets a condition. Returns it.
    pub(crate) async fn until(&self, object: &str, what: &str, is_met: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + WITHIN;
        loop {
            let now = self.get(object).await;
            if is_met(&now) {
                return now;
            }
            assert!(Instant::now() < deadline, "{object}: not within {WITHIN:?}: {what}: {now:#}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Returns the current revision of the store.
    pub(crate) async fn revision(&self) -> String {
        let list = self.send("GET", "/api/v1/namespaces", "application/json", &Value::Null).await;
        let list = list.expect("namespaces can be listed");
        list["metadata"]["resourceVersion"].as_str().expect("it has a resource version").to_owned()
    }

    /// Lets a user do something in the namespace, such as `get` objects of a resource of the core group.
    pub(crate) async fn grant(&self, user: &str, verbs: &[&str], resources: &[&str]) {
        let role = json!({
            "metadata": {"name": user}, "rules": [{"apiGroups": [""], "resources": resources, "verbs": verbs}],
        });
        let binding = json!({
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        });
        self.create("roles", role).await;
        self.create("rolebindings", binding).await;
    }

    /// Returns the kubeconfig of a user, and the repository.
    pub(crate) fn places(&self, user: Option<&str>) -> [PathBuf; 2] {
        let kubeconfig = match user {
            Some(user) => self.shared.cluster.kubeconfig(Some(user)),
            None => self.shared.kubeconfig.clone(),
        };
        [kubeconfig, self.shared.cluster.folder().join("repo.git")]
    }

    /// Starts a command of trishanku, such as `undo --since=7 -n NS`, where NS is the namespace of the scenario.
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trishanku"));
        command.args(line.split_whitespace().map(|word| word.replace("NS", &self.namespace)));
        if !line.contains("--repo=") {
            command.arg("--repo").arg(self.repository());
        }
        command.arg("--kubeconfig").arg(&self.shared.kubeconfig);
        command.stdin(Stdio::null()).env_remove("GITCD_REPO").env_remove("TRISHANKU_DIR");
        command
    }

    /// Returns where the repository of the cluster is.
    pub(crate) fn repository(&self) -> PathBuf {
        self.shared.cluster.folder().join("repo.git")
    }

    /// Runs a command without `--yes`.
    pub(crate) async fn ask(&self, line: &str) -> Ran {
        let mut command = self.command(line);
        let output = tokio::task::spawn_blocking(move || command.output());
        let Output { status, stdout, stderr } = output.await.expect("no panic").expect("the binary was built");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the output is UTF-8");
        Ran { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// Runs a command with `--yes`.
    pub(crate) async fn run(&self, line: &str) -> Ran {
        self.ask(&format!("{line} --yes")).await
    }

    /// Runs a command with `--yes --json`, requires success, and returns the commits that it made.
    pub(crate) async fn commits(&self, line: &str) -> Vec<String> {
        let json = self.run(&format!("{line} --json")).await.ok().json();
        let commits = json["commits"].as_array().expect("a list").iter();
        commits.map(|id| id.as_str().expect("an ID").to_owned()).collect()
    }

    /// Opens the history when it has everything that was written.
    async fn history(&self) -> History {
        let revision: i64 = self.revision().await.parse().expect("a number");
        let deadline = Instant::now() + WITHIN;
        loop {
            let keys = KeySpace::new("/registry", [""; 0]);
            let history = History::open(Config { keys, ..Config::named(self.repository(), "default") }, false);
            let history = history.expect("the branch can be read");
            if history.revision() >= revision {
                return history;
            }
            assert!(Instant::now() < deadline, "revision {revision} is not committed within {WITHIN:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn versions(&self, key: &str) -> Vec<String> {
        let key = format!("/registry/{}", key.replace("NS", &self.namespace));
        let versions = self.history().await.versions(key.as_bytes(), 100, None).expect("the history can be read");
        assert!(!versions.is_empty(), "{key} has no versions");
        versions.iter().map(|version| version.commit.oid.to_string()).collect()
    }

    /// Returns the commit of the last change of an object, given its key; NS is the namespace.
    pub(crate) async fn last_commit(&self, key: &str) -> String {
        self.versions(key).await.swap_remove(0)
    }

    /// Returns the commit that created an object, given its key.
    pub(crate) async fn first_commit(&self, key: &str) -> String {
        self.versions(key).await.pop().expect("there is one")
    }

    /// Returns the first revision of a commit.
    pub(crate) async fn revision_of(&self, commit: &str) -> i64 {
        let found = self.history().await.find_commit(commit).expect("the branch has it");
        found.revisions.expect("the store made it").first
    }

    /// Installs a kind in a group of its own, such as `gauges` of `NAMESPACE.example.org`, and waits until it is served.
    pub(crate) async fn install(&self, plural: &str, kind: &str) -> String {
        let group = format!("{plural}.example.org");
        let name = format!("{plural}.{group}");
        self.create("customresourcedefinitions", definition(plural, kind, &group)).await;
        self.until_served(plural).await;
        name
    }

    /// Waits until a custom kind is served.
    pub(crate) async fn until_served(&self, plural: &str) {
        let path = self.path(plural);
        let deadline = Instant::now() + WITHIN;
        while let Err(error) = self.send("GET", path.trim_end_matches('/'), "application/json", &Value::Null).await {
            assert!(Instant::now() < deadline, "{plural} is not served within {WITHIN:?}: {error}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn definition(plural: &str, kind: &str, group: &str) -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// A `ConfigMap` with one entry.
pub(crate) fn map(name: &str, tea: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"tea": tea}})
}

/// A Deployment of an image.
pub(crate) fn deployment(name: &str, image: &str) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": image}]}},
        },
    })
}
