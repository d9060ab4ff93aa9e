//! A cluster for one test or for all tests of a binary.

mod builder;
mod existing;
mod started;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::wait::Condition;
use kube::runtime::wait::conditions::is_crd_established;
use kube::{Api, Client, Config, ResourceExt};
use tokio::sync::OnceCell;

pub use self::builder::TestClusterBuilder;
use self::existing::Existing;
use self::started::Started;
use crate::error::StartError;
use crate::{audit, environment, wait};

/// A kube-apiserver on a store of its own, or a cluster that exists.
///
/// Dropping it stops what it started and removes the files; so does the end of the process. Of an [existing](Self::existing)
/// cluster, it then deletes the namespaces that it created.
#[derive(Debug)]
pub struct TestCluster {
    origin: Origin,
    namespaces: AtomicU32,
    kubeconfigs: AtomicU32,
}

#[derive(Debug)]
enum Origin {
    Started(Box<Started>),
    Existing(Box<Existing>),
}

static SHARED: OnceCell<TestCluster> = OnceCell::const_new();

impl TestCluster {
    /// Starts a cluster with default settings, in some seconds, most of which kube-apiserver needs.
    ///
    /// # Errors
    /// [`StartError`], with the last lines of the log of the program that failed.
    pub async fn start() -> Result<Self, StartError> {
        Self::builder().start().await
    }

    /// Returns the settings of a cluster, to change and [start](TestClusterBuilder::start).
    pub fn builder() -> TestClusterBuilder {
        TestClusterBuilder::default()
    }

    /// Starts a cluster with more flags for kube-apiserver, such as `--feature-gates=…`; they override the testkit's.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn with_flags(flags: impl IntoIterator<Item = String>) -> Result<Self, StartError> {
        Self::builder().flags(flags).start().await
    }

    /// Starts a cluster whose kube-apiserver and gitcd export spans to `collector`: those of requests that are already in a
    /// trace and come from a cluster administrator (as all clients from here are).
    ///
    /// gitcd exports every five seconds, and when the cluster is dropped, which waits for the collector: drop it where that
    /// does not block the collector (`spawn_blocking`). Its journal and commits have threads of their own, and export
    /// nothing.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn traced(collector: SocketAddr) -> Result<Self, StartError> {
        Self::builder().traces_to(collector).start().await
    }

    /// Uses a cluster that exists, such as one of kind, by a kubeconfig and one of its contexts (or the current one). Its user
    /// must be a cluster administrator.
    ///
    /// Each namespace has a name that is unique across runs. kubectl, which must be installed, deletes them when this is
    /// dropped or the process ends. Kinds stay installed. What requires a process of the test or its files is not available:
    /// crashes, garbage collection on request (the cluster has its own), the audit log and the store.
    ///
    /// # Errors
    /// [`StartError::Kubeconfig`] if it cannot be read or lacks the context; [`StartError::Unreachable`] if the cluster does
    /// not answer; [`StartError::Programs`] without kubectl.
    pub async fn existing(kubeconfig: impl AsRef<Path>, context: Option<&str>) -> Result<Self, StartError> {
        let existing = Existing::connect(kubeconfig.as_ref(), context).await?;
        Ok(Self::of(Origin::Existing(Box::new(existing))))
    }

    /// Starts or uses the cluster that the environment selects, so that one test suite can run on all of them.
    ///
    /// | variable | selects |
    /// |---|---|
    /// | `TRISHANKU_TESTKIT_KUBECONFIG` | an [existing](Self::existing) cluster, by the path of a kubeconfig |
    /// | `TRISHANKU_TESTKIT_CONTEXT` | the context in it, if not the current one |
    /// | `TRISHANKU_TESTKIT_STORAGE` | `gitcd` or `etcd` below a kube-apiserver that is started |
    ///
    /// Without them, this is [`start`](Self::start).
    ///
    /// # Errors
    /// As [`start`](Self::start) or [`existing`](Self::existing); [`StartError::Variable`] if a variable is invalid.
    pub async fn from_env() -> Result<Self, StartError> {
        match environment::selected(|name| std::env::var_os(name))? {
            environment::Selected::Existing { kubeconfig, context } => {
                Self::existing(kubeconfig, context.as_deref()).await
            }
            environment::Selected::Start(storage) => Self::builder().storage(storage).start().await,
        }
    }

    fn started(started: Started) -> Self {
        Self::of(Origin::Started(Box::new(started)))
    }

    fn of(origin: Origin) -> Self {
        Self { origin, namespaces: AtomicU32::new(0), kubeconfigs: AtomicU32::new(0) }
    }

    /// Returns the cluster that all tests of this binary share: the first one starts it [as the environment
    /// selects](Self::from_env), and it stops with the process. Use a [`namespace`](Self::namespace) of your own.
    ///
    /// # Panics
    /// If it cannot be started, with the reason.
    pub async fn shared() -> &'static Self {
        let started = SHARED.get_or_try_init(Self::from_env).await;
        started.unwrap_or_else(|error| panic!("no test cluster: {}", chain(&error)))
    }

    /// Returns a client that is a cluster administrator, for the runtime in which this is called. It does not retry.
    ///
    /// # Panics
    /// If the certificates or credentials of an existing cluster are no longer there.
    pub fn client(&self) -> Client {
        Client::try_from(self.config()).unwrap_or_else(|error| panic!("no client: {}", chain(&error)))
    }

    /// Returns the configuration of [`client`](Self::client); change it for another user (`auth_info.impersonate`).
    pub fn config(&self) -> Config {
        match &self.origin {
            Origin::Started(started) => started.config(),
            Origin::Existing(existing) => existing.config(),
        }
    }

    /// Writes a kubeconfig for programs, of `user` (a service account is `system:serviceaccount:NAMESPACE:NAME`), or of a
    /// cluster administrator. The file is removed with the cluster.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn kubeconfig(&self, user: Option<&str>) -> PathBuf {
        let (folder, content) = match &self.origin {
            Origin::Started(started) => (&started.settings.folder, started.kubeconfig(user)),
            Origin::Existing(existing) => (&existing.folder, existing.kubeconfig(user)),
        };
        // A new file each time: the previous one may be in use.
        let path = folder.join(format!("kubeconfig-{}", self.kubeconfigs.fetch_add(1, Ordering::Relaxed)));
        std::fs::write(&path, content).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        path
    }

    /// Creates a namespace with a unique name that begins with `prefix`. Returns its name.
    ///
    /// # Panics
    /// If it cannot be created.
    pub async fn namespace(&self, prefix: &str) -> String {
        let number = self.namespaces.fetch_add(1, Ordering::Relaxed);
        let (name, labels) = match &self.origin {
            Origin::Started(_) => (format!("{prefix}-{number}"), None),
            Origin::Existing(existing) => {
                let label = (existing::RUN.to_owned(), existing.run.clone());
                (format!("{prefix}-{}-{number}", existing.run), Some([label].into()))
            }
        };
        let metadata = ObjectMeta { name: Some(name.clone()), labels, ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let made = Api::all(self.client()).create(&PostParams::default(), &namespace).await;
        made.unwrap_or_else(|error| panic!("cannot create namespace {name}: {error}"));
        name
    }

    /// Installs a kind unless it exists, and waits until it is served.
    ///
    /// # Panics
    /// If kube-apiserver rejects it.
    pub async fn install(&self, definition: &CustomResourceDefinition) {
        let api: Api<CustomResourceDefinition> = Api::all(self.client());
        let name = definition.name_any();
        match api.create(&PostParams::default(), definition).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            result => drop(result.unwrap_or_else(|error| panic!("cannot install {name}: {error}"))),
        }
        let served =
            wait::until_object(&api, &name, "it is served", |seen| is_crd_established().matches_object(Some(seen)));
        served.await.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Returns whether something else started the cluster, so that a test can skip what needs one of its own.
    pub fn is_existing(&self) -> bool {
        matches!(self.origin, Origin::Existing(_))
    }

    /// Kills kube-apiserver, as a crash would. The store keeps running.
    ///
    /// # Panics
    /// If the cluster is an [existing](Self::existing) one.
    pub async fn kill_apiserver(&self) {
        self.own("kill kube-apiserver").kill_apiserver().await;
    }

    /// Starts kube-apiserver again on the same port; does nothing if it runs.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    ///
    /// # Panics
    /// If the cluster is an [existing](Self::existing) one.
    pub async fn start_apiserver(&self) -> Result<(), StartError> {
        self.own("start kube-apiserver").start_apiserver().await
    }

    /// Starts garbage collection as in a cluster: owned objects are deleted after or before their owner, as its deletion
    /// requests. Does nothing if it is already running, as in an [existing](Self::existing) cluster.
    ///
    /// Runs kube-controller-manager with this one controller. It knows the kinds that exist now, and discovers others within
    /// half a minute. Use a cluster of your own: in a [shared](Self::shared) one, it would delete objects of other tests
    /// whose owners do not exist.
    ///
    /// # Errors
    /// As [`start`](Self::start); also if kube-controller-manager is not installed beside kube-apiserver.
    pub async fn collect_garbage(&self) -> Result<(), StartError> {
        match &self.origin {
            Origin::Started(started) => started.collect_garbage(|| self.kubeconfig(None)).await,
            Origin::Existing(_) => Ok(()),
        }
    }

    /// Returns the requests to kube-apiserver so far, in the order in which they ended.
    ///
    /// An entry is written with the response, so the last ones may be missing for a moment: [wait](wait::until) for what you
    /// expect.
    ///
    /// # Panics
    /// If the audit log cannot be read, or the cluster is an [existing](Self::existing) one.
    pub fn audit(&self) -> Vec<audit::Entry> {
        audit::read(&self.own("read the audit log").audit_log())
    }

    /// Returns the URL of the gitcd or etcd that stores the objects, for a client of the etcd API.
    ///
    /// # Panics
    /// If the cluster is an [existing](Self::existing) one.
    pub fn store_url(&self) -> &str {
        &self.own("connect to the store").settings.store_url
    }

    /// Returns the folder of the cluster's files, among them the logs of the programs and gitcd's repository.
    pub fn folder(&self) -> &Path {
        match &self.origin {
            Origin::Started(started) => &started.settings.folder,
            Origin::Existing(existing) => &existing.folder,
        }
    }

    fn own(&self, action: &str) -> &Started {
        match &self.origin {
            Origin::Started(started) => started,
            Origin::Existing(_) => {
                panic!("cannot {action} of an existing cluster: use TestCluster::start in this test")
            }
        }
    }
}

/// Returns a new folder that only this user can read.
fn folder() -> std::io::Result<PathBuf> {
    Ok(tempfile::Builder::new().prefix("trishanku-testkit-").tempdir()?.keep())
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
