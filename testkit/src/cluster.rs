//! A kube-apiserver on a gitcd, for one test or for all tests of a binary.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::wait::Condition;
use kube::runtime::wait::conditions::is_crd_established;
use kube::{Api, Client, Config, ResourceExt};
use tokio::sync::{Mutex, OnceCell};

use crate::apiserver::{self, ApiServer, Settings};
use crate::error::StartError;
use crate::garbage::GarbageCollector;
use crate::guard::Folder;
use crate::store::Store;
use crate::{audit, certs, programs, wait};

/// A kube-apiserver on a gitcd in this process. Dropping it stops both and removes their files; so does the end of the process.
#[derive(Debug)]
pub struct TestCluster {
    // Fields are dropped in this order: users before what they use.
    garbage: Mutex<Option<GarbageCollector>>,
    apiserver: Mutex<Option<ApiServer>>,
    _store: Store,
    _folder: Folder,
    settings: Settings,
    port: u16,
    namespaces: AtomicU32,
    kubeconfigs: AtomicU32,
}

static SHARED: OnceCell<TestCluster> = OnceCell::const_new();

impl TestCluster {
    /// Starts a cluster, in some seconds, most of which kube-apiserver needs.
    ///
    /// # Errors
    /// [`StartError`], with the last lines of kube-apiserver's log.
    pub async fn start() -> Result<Self, StartError> {
        Self::with_flags([]).await
    }

    /// Starts a cluster with more flags for kube-apiserver, such as `--feature-gates=…`; they override the testkit's.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn with_flags(flags: impl IntoIterator<Item = String>) -> Result<Self, StartError> {
        Self::launch(flags.into_iter().collect(), None).await
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
        Self::launch(Vec::new(), Some(collector)).await
    }

    async fn launch(flags: Vec<String>, collector: Option<SocketAddr>) -> Result<Self, StartError> {
        let program = programs::apiserver()?;
        let folder =
            tempfile::Builder::new().prefix("trishanku-testkit-").tempdir().map_err(StartError::System)?.keep();
        let guard = Folder::guard(&folder).map_err(StartError::System)?;
        let authority = certs::write(&folder).map_err(StartError::System)?;
        let store = Store::start(&folder.join("repo.git"), collector).map_err(StartError::Store)?;
        let store_url = store.url();
        let settings = Settings { program, folder, authority, store_url, collector, flags };
        let apiserver = ApiServer::start(&settings, None).await?;
        Ok(Self {
            port: apiserver.port(),
            garbage: Mutex::default(),
            apiserver: Mutex::new(Some(apiserver)),
            _store: store,
            _folder: guard,
            settings,
            namespaces: AtomicU32::new(0),
            kubeconfigs: AtomicU32::new(0),
        })
    }

    /// Returns the cluster that all tests of this binary share: the first one starts it, and it stops with the process. Use a
    /// [`namespace`](Self::namespace) of your own.
    ///
    /// # Panics
    /// If it cannot be started, with the reason.
    pub async fn shared() -> &'static Self {
        let started = SHARED.get_or_try_init(Self::start).await;
        started.unwrap_or_else(|error| panic!("no test cluster: {}", chain(&error)))
    }

    /// Returns a client that is a cluster administrator, for the runtime in which this is called. It does not retry.
    ///
    /// # Panics
    /// If TLS cannot be set up.
    pub fn client(&self) -> Client {
        Client::try_from(self.config()).expect("the testkit's own certificates are valid")
    }

    /// Returns the configuration of [`client`](Self::client); change it for another user (`auth_info.impersonate`).
    pub fn config(&self) -> Config {
        apiserver::config(self.port, &self.settings.authority)
    }

    /// Writes a kubeconfig for programs, of `user` (a service account is `system:serviceaccount:NAMESPACE:NAME`), or of a
    /// cluster administrator. The file is removed with the cluster.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn kubeconfig(&self, user: Option<&str>) -> PathBuf {
        let folder = &self.settings.folder;
        let content = apiserver::kubeconfig(self.port, folder, user);
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
        let name = format!("{prefix}-{}", self.namespaces.fetch_add(1, Ordering::Relaxed));
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
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

    /// Kills kube-apiserver, as a crash would. The store keeps running.
    pub async fn kill_apiserver(&self) {
        let apiserver = self.apiserver.lock().await.take();
        // Waiting for a process to exit blocks the thread.
        let _ended = tokio::task::spawn_blocking(move || drop(apiserver)).await;
    }

    /// Starts kube-apiserver again on the same port; does nothing if it runs.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_apiserver(&self) -> Result<(), StartError> {
        let mut apiserver = self.apiserver.lock().await;
        if apiserver.is_none() {
            *apiserver = Some(ApiServer::start(&self.settings, Some(self.port)).await?);
        }
        Ok(())
    }

    /// Starts garbage collection as in a cluster: owned objects are deleted after or before their owner, as its deletion
    /// requests. Does nothing if it is already running.
    ///
    /// Runs kube-controller-manager with this one controller. It knows the kinds that exist now, and discovers others within
    /// half a minute. Use a cluster of your own: in a [shared](Self::shared) one, it would delete objects of other tests
    /// whose owners do not exist.
    ///
    /// # Errors
    /// As [`start`](Self::start); also if kube-controller-manager is not installed beside kube-apiserver.
    pub async fn collect_garbage(&self) -> Result<(), StartError> {
        let mut garbage = self.garbage.lock().await;
        if garbage.is_none() {
            let Settings { program, folder, .. } = &self.settings;
            let (kubeconfig, audit_log) = (self.kubeconfig(None), self.audit_log());
            *garbage = Some(GarbageCollector::start(program, folder, &kubeconfig, &audit_log).await?);
        }
        Ok(())
    }

    /// Returns the requests to kube-apiserver so far, in the order in which they ended.
    ///
    /// An entry is written with the response, so the last ones may be missing for a moment: [wait](wait::until) for what you
    /// expect.
    ///
    /// # Panics
    /// If the audit log cannot be read.
    pub fn audit(&self) -> Vec<audit::Entry> {
        audit::read(&self.audit_log())
    }

    fn audit_log(&self) -> PathBuf {
        apiserver::audit_log(&self.settings.folder)
    }

    /// Returns the URL of the gitcd that stores the objects, for a client of the etcd API.
    pub fn store_url(&self) -> &str {
        &self.settings.store_url
    }

    /// Returns the folder of the cluster's files, among them kube-apiserver's log and the Git repository.
    pub fn folder(&self) -> &Path {
        &self.settings.folder
    }
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
