//! Settings of a test cluster.

use std::net::SocketAddr;

use super::TestCluster;
use super::started::Started;
use crate::error::StartError;
use crate::store::Storage;

/// Settings of a cluster that [`start`](Self::start) starts. [`TestCluster::builder`] makes it.
///
/// ```no_run
/// use trishanku_testkit::{Storage, TestCluster};
///
/// # async fn example() -> Result<(), trishanku_testkit::StartError> {
/// let cluster = TestCluster::builder().storage(Storage::Etcd).flags(["--v=2"]).start().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "call start"]
pub struct TestClusterBuilder {
    pub(super) storage: Storage,
    pub(super) flags: Vec<String>,
    pub(super) collector: Option<SocketAddr>,
}

impl TestClusterBuilder {
    /// Sets the store below kube-apiserver; by default [`Storage::Gitcd`] if the feature `gitcd` is enabled.
    pub fn storage(mut self, storage: Storage) -> Self {
        self.storage = storage;
        self
    }

    /// Adds flags for kube-apiserver, such as `--feature-gates=…`; they override the testkit's.
    pub fn flags<F: Into<String>>(mut self, flags: impl IntoIterator<Item = F>) -> Self {
        self.flags.extend(flags.into_iter().map(Into::into));
        self
    }

    /// Makes kube-apiserver and gitcd (not etcd) export spans to `collector`: see [`TestCluster::traced`].
    pub fn traces_to(mut self, collector: SocketAddr) -> Self {
        self.collector = Some(collector);
        self
    }

    /// Starts the cluster, in some seconds, most of which kube-apiserver needs.
    ///
    /// # Errors
    /// [`StartError`], with the last lines of the log of the program that failed.
    pub async fn start(self) -> Result<TestCluster, StartError> {
        Started::launch(self).await.map(TestCluster::started)
    }
}
