//! A kube-apiserver on a gitcd, for one test or for all tests of a binary.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::wait::Condition;
use kube::runtime::wait::conditions::is_crd_established;
use kube::{Api, Client, Config, ResourceExt};
use tokio::sync::{Mutex, OnceCell};

use crate::apiserver::{self, ApiServer, Settings};
use crate::garbage::GarbageCollector;
use crate::guard::Folder;
use crate::programs::ProgramsError;
use crate::store::Store;
use crate::{audit, certs, programs, wait};

/// Why there is no cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is no kube-apiserver to run.
    #[error(transparent)]
    Programs(#[from] ProgramsError),
    /// A file, process or port cannot be had.
    #[error("cannot start a test cluster")]
    System(#[source] std::io::Error),
    /// gitcd does not serve.
    #[error("gitcd does not start: {0}")]
    Store(Box<dyn std::error::Error + Send + Sync>),
    /// No client can be made.
    #[error("cannot make a client for kube-apiserver")]
    Client(#[source] Box<kube::Error>),
    /// A program ended at once.
    #[error("{program} ended at once; it said last:\n{log}")]
    Ended {
        /// Which.
        program: &'static str,
        /// Its last lines.
        log: String,
    },
    /// A program runs and is not ready.
    #[error("{program} was not ready within {within:?}; it said last:\n{log}")]
    NotReady {
        /// Which.
        program: &'static str,
        /// How long it had.
        within: Duration,
        /// Its last lines.
        log: String,
    },
}

/// A kube-apiserver on a gitcd in this process. Dropping it ends both and removes what they had; so does the end of the process.
#[derive(Debug)]
pub struct TestCluster {
    // In this order they are dropped: whoever uses another goes first.
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
    /// Starts one: some seconds, most of them kube-apiserver's.
    ///
    /// # Errors
    /// [`StartError`] has the last lines of kube-apiserver's log.
    pub async fn start() -> Result<Self, StartError> {
        Self::with_flags([]).await
    }

    /// Starts one whose kube-apiserver has these flags too, such as `--feature-gates=…`; a flag of the testkit's is replaced.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn with_flags(flags: impl IntoIterator<Item = String>) -> Result<Self, StartError> {
        Self::launch(flags.into_iter().collect(), None).await
    }

    /// Starts one whose kube-apiserver and gitcd send their spans to `collector`: those of requests that are in a trace already, if they are by
    /// somebody who may do everything (as all clients from here are).
    ///
    /// gitcd sends every five seconds, and when the cluster is dropped, which waits for the collector: drop it where that is not held up
    /// (`spawn_blocking`). Its journal and commits are on threads of their own, and tell nothing.
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

    /// The one that all tests of this binary share: started by the first, ended with the process. Take a [`namespace`](Self::namespace).
    ///
    /// # Panics
    /// If it does not start, with the reason.
    pub async fn shared() -> &'static Self {
        let started = SHARED.get_or_try_init(Self::start).await;
        started.unwrap_or_else(|error| panic!("no test cluster: {}", chain(&error)))
    }

    /// A client for the runtime in which this is called, that may do everything. It does not retry.
    ///
    /// # Panics
    /// If TLS cannot be set up.
    pub fn client(&self) -> Client {
        Client::try_from(self.config()).expect("the testkit's own certificates are good")
    }

    /// What [`client`](Self::client) is made of; change it to be somebody else (`auth_info.impersonate`).
    pub fn config(&self) -> Config {
        apiserver::config(self.port, &self.settings.authority)
    }

    /// A kubeconfig for programs, of `user` (a service account is `system:serviceaccount:NAMESPACE:NAME`), or of somebody who may do everything. The file
    /// goes with the cluster.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn kubeconfig(&self, user: Option<&str>) -> PathBuf {
        let folder = &self.settings.folder;
        let content = apiserver::kubeconfig(self.port, folder, user);
        // Who asks twice gets it twice: somebody may be reading the first.
        let path = folder.join(format!("kubeconfig-{}", self.kubeconfigs.fetch_add(1, Ordering::Relaxed)));
        std::fs::write(&path, content).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        path
    }

    /// Makes a namespace of a name that no other test has, beginning with `prefix`; returns its name.
    ///
    /// # Panics
    /// If it cannot be made.
    pub async fn namespace(&self, prefix: &str) -> String {
        let name = format!("{prefix}-{}", self.namespaces.fetch_add(1, Ordering::Relaxed));
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let made = Api::all(self.client()).create(&PostParams::default(), &namespace).await;
        made.unwrap_or_else(|error| panic!("cannot make namespace {name}: {error}"));
        name
    }

    /// Installs a kind, unless it is there; it is served on return.
    ///
    /// # Panics
    /// If kube-apiserver refuses it.
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

    /// Kills kube-apiserver, as a crash would. The store goes on.
    pub async fn kill_apiserver(&self) {
        let apiserver = self.apiserver.lock().await.take();
        // Waiting for the end of a process blocks the thread.
        let _ended = tokio::task::spawn_blocking(move || drop(apiserver)).await;
    }

    /// Starts kube-apiserver again where it was; does nothing if it runs.
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

    /// Collects garbage from now on, as a cluster does: what is owned goes after its owner or before it, as the deletion says. Does nothing if that is so
    /// already.
    ///
    /// By kube-controller-manager with this one controller. It knows the kinds that are there now; others may take it half a minute. Take a cluster of
    /// your own: in a [shared](Self::shared) one it would collect what other tests say is owned by somebody who is not there.
    ///
    /// # Errors
    /// As [`start`](Self::start); also if there is no kube-controller-manager beside kube-apiserver.
    pub async fn collect_garbage(&self) -> Result<(), StartError> {
        let mut garbage = self.garbage.lock().await;
        if garbage.is_none() {
            let Settings { program, folder, .. } = &self.settings;
            let (kubeconfig, audit_log) = (self.kubeconfig(None), self.audit_log());
            *garbage = Some(GarbageCollector::start(program, folder, &kubeconfig, &audit_log).await?);
        }
        Ok(())
    }

    /// What kube-apiserver has been asked so far, in the order in which the requests ended.
    ///
    /// An entry is written when its answer is, so the last ones may be missing for a moment: [wait](wait::until) for what you expect.
    ///
    /// # Panics
    /// If the audit log cannot be read.
    pub fn audit(&self) -> Vec<audit::Entry> {
        audit::read(&self.audit_log())
    }

    fn audit_log(&self) -> PathBuf {
        apiserver::audit_log(&self.settings.folder)
    }

    /// The URL of the gitcd that stores the objects, for a client of the etcd API.
    pub fn store_url(&self) -> &str {
        &self.settings.store_url
    }

    /// Where the cluster's files are, among them kube-apiserver's log and the Git repository.
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
