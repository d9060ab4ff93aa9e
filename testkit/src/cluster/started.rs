//! A kube-apiserver and a store that this process started.

use std::path::PathBuf;

use kube::Config;
use tokio::sync::Mutex;

use super::TestClusterBuilder;
use crate::apiserver::{self, Settings};
use crate::error::StartError;
use crate::garbage::GarbageCollector;
use crate::guard::Folder;
use crate::process::Process;
use crate::store::Store;
use crate::{certs, programs};

#[derive(Debug)]
pub(super) struct Started {
    // Fields are dropped in this order: users before what they use.
    garbage: Mutex<Option<GarbageCollector>>,
    apiserver: Mutex<Option<Process>>,
    _store: Store,
    _folder: Folder,
    pub(super) settings: Settings,
    port: u16,
}

impl Started {
    pub(super) async fn launch(wanted: TestClusterBuilder) -> Result<Self, StartError> {
        let TestClusterBuilder { storage, flags, collector } = wanted;
        let program = programs::apiserver()?;
        let folder = super::folder().map_err(StartError::System)?;
        let guard = Folder::guard(&folder).map_err(StartError::System)?;
        let authority = certs::write(&folder).map_err(StartError::System)?;
        let store = Store::start(storage, &program, &folder, collector).await?;
        let store_url = store.url();
        let settings = Settings { program, folder, authority, store_url, collector, flags };
        let apiserver = Process::start(&settings, None).await?;
        Ok(Self {
            port: apiserver.port(),
            garbage: Mutex::default(),
            apiserver: Mutex::new(Some(apiserver)),
            _store: store,
            _folder: guard,
            settings,
        })
    }

    pub(super) fn config(&self) -> Config {
        apiserver::config(self.port, &self.settings.authority)
    }

    pub(super) fn kubeconfig(&self, user: Option<&str>) -> String {
        apiserver::kubeconfig(self.port, &self.settings.folder, user)
    }

    pub(super) async fn kill_apiserver(&self) {
        let apiserver = self.apiserver.lock().await.take();
        // Waiting for a process to exit blocks the thread.
        let _ended = tokio::task::spawn_blocking(move || drop(apiserver)).await;
    }

    pub(super) async fn start_apiserver(&self) -> Result<(), StartError> {
        let mut apiserver = self.apiserver.lock().await;
        if apiserver.is_none() {
            *apiserver = Some(Process::start(&self.settings, Some(self.port)).await?);
        }
        Ok(())
    }

    /// Starts garbage collection by a cluster administrator's kubeconfig, which `kubeconfig` writes.
    pub(super) async fn collect_garbage(&self, kubeconfig: impl FnOnce() -> PathBuf) -> Result<(), StartError> {
        let mut garbage = self.garbage.lock().await;
        if garbage.is_none() {
            let Settings { program, folder, .. } = &self.settings;
            *garbage = Some(GarbageCollector::start(program, folder, &kubeconfig(), &self.audit_log()).await?);
        }
        Ok(())
    }

    pub(super) fn audit_log(&self) -> PathBuf {
        apiserver::audit_log(&self.settings.folder)
    }
}
