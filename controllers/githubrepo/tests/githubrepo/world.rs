//! A namespace with a manager that reconciles repositories on a fake GitHub.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use trishanku_api::{GROUP, GitHubRepository, VERSION, definitions};
use trishanku_framework::Manager;
use trishanku_framework::cache::Scope;
use trishanku_githubrepo::{GitHubSettings, Servers, controller};
use trishanku_testkit::{TestCluster, wait};

use crate::fake::{Fake, TOKEN};
use crate::shown;

pub(crate) struct World {
    pub(crate) cluster: &'static TestCluster,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// The API URL in objects.
    pub(crate) url: String,
    pub(crate) fake: Fake,
    running: Option<(oneshot::Sender<()>, tokio::task::JoinHandle<()>)>,
}

/// Short intervals for tests.
pub(crate) fn settings() -> GitHubSettings {
    GitHubSettings {
        servers: servers(&["127.0.0.1", "localhost"]),
        patience: Duration::from_secs(2),
        resync: Duration::from_millis(300),
        backoff: (Duration::from_millis(100), Duration::from_secs(2)),
        between_writes: Duration::ZERO,
        secondary: Duration::from_secs(2),
        ..GitHubSettings::default()
    }
}

/// The hosts that the operator allows.
pub(crate) fn servers(named: &[&str]) -> Servers {
    Servers { named: named.iter().map(|host| host.parse().unwrap()).collect(), in_the_clear: false }
}

impl World {
    pub(crate) async fn new(settings: GitHubSettings) -> Self {
        let fake = Fake::start().await;
        let url = fake.url.clone();
        Self::at(fake, url, settings).await
    }

    /// Starts with a server between the manager and the fake.
    pub(crate) async fn at(fake: Fake, url: String, settings: GitHubSettings) -> Self {
        shown::record();
        let cluster = TestCluster::shared().await;
        let client = cluster.client();
        definitions().apply(&client, "trishanku-manager").await.unwrap();
        let namespace = cluster.namespace("github").await;
        let mut world = Self { cluster, client, namespace, url, fake, running: None };
        world.token(TOKEN).await;
        world.start(settings);
        world
    }

    pub(crate) fn start(&mut self, settings: GitHubSettings) {
        let manager = Manager::with_scope(self.cluster.config(), Scope::namespaces([self.namespace.clone()]));
        let (stop, stopped) = oneshot::channel::<()>();
        let run = manager.controller(controller(settings)).run(async { drop(stopped.await) });
        self.running = Some((stop, tokio::spawn(async { run.await.unwrap() })));
    }

    /// Stops the manager, and checks that no token was shown.
    pub(crate) async fn stop(&mut self) {
        let (stop, task) = self.running.take().unwrap();
        drop(stop);
        task.await.unwrap();
        shown::nothing_secret(self).await;
    }

    /// Puts a token into the Secret.
    pub(crate) async fn token(&self, token: &str) {
        self.secret(&[("password", token)]).await;
    }

    pub(crate) async fn secret(&self, values: &[(&str, &str)]) {
        let value = |value: &str| ByteString(value.as_bytes().to_vec());
        let values: BTreeMap<_, _> = values.iter().map(|(key, text)| (*key, value(text))).collect();
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "git-cred"}, "data": values});
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        secrets.patch("git-cred", &PatchParams::apply("user").force(), &Patch::Apply(secret)).await.unwrap();
    }

    pub(crate) fn objects(&self) -> Api<GitHubRepository> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Applies an object with these fields besides the required ones.
    pub(crate) async fn apply(&self, name: &str, fields: Value) {
        let mut spec =
            json!({"credentialsSecretName": "git-cred", "credentialsSecretTokenKey": "password", "apiUrl": self.url});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let object = json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": "GitHubRepository", "metadata": {"name": name}, "spec": spec});
        self.objects().patch(name, &PatchParams::apply("user").force(), &Patch::Apply(object)).await.unwrap();
    }

    /// Waits for a condition of the present generation.
    pub(crate) async fn is(&self, name: &str, of: &str, status: &str, reason: &str) -> Condition {
        let look = async || {
            let object = self.objects().get(name).await.map_err(|error| error.to_string())?;
            let conditions = object.status.iter().flat_map(|status| &status.conditions);
            let mut found = conditions.filter(|found| {
                found.type_ == of
                    && (found.status.as_str(), found.reason.as_str()) == (status, reason)
                    && found.observed_generation == object.metadata.generation
            });
            found.next().cloned().ok_or_else(|| format!("{:?}", object.status))
        };
        wait::until(format!("{of}={status} {reason} of {name}"), look).await.unwrap()
    }

    pub(crate) async fn is_ready(&self, name: &str) -> GitHubRepository {
        self.is(name, "Ready", "True", "Succeeded").await;
        self.objects().get(name).await.unwrap()
    }

    /// Waits until the fake is in a state.
    pub(crate) async fn until(&self, what: &str, is: impl Fn(&Fake) -> bool) {
        let look = async || if is(&self.fake) { Ok(()) } else { Err(format!("{:?}", self.fake.calls())) };
        wait::until(what.to_owned(), look).await.unwrap();
    }
}
