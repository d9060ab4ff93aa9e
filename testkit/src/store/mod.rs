//! The store below kube-apiserver.

mod etcd;
#[cfg(feature = "gitcd")]
mod gitcd;

use std::net::SocketAddr;
use std::path::Path;

use crate::error::StartError;
use crate::process::Process;
use crate::programs;

/// The store below kube-apiserver.
///
/// Without the feature `gitcd`, etcd is the only one and the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Storage {
    /// A gitcd in the test's process, with a Git repository in the cluster's folder. Requires the feature `gitcd`.
    #[cfg(feature = "gitcd")]
    #[default]
    Gitcd,
    /// An etcd process. Its program is that of envtest, beside kube-apiserver.
    #[cfg_attr(not(feature = "gitcd"), default)]
    Etcd,
}

/// A running store; stopped when dropped.
#[derive(Debug)]
pub(crate) enum Store {
    #[cfg(feature = "gitcd")]
    Gitcd(gitcd::InProcess),
    Etcd(Process),
}

impl Store {
    /// Starts a new, empty store whose files are in `folder`. Only gitcd exports spans to `collector`.
    pub(crate) async fn start(
        storage: Storage,
        apiserver: &Path,
        folder: &Path,
        collector: Option<SocketAddr>,
    ) -> Result<Self, StartError> {
        // Without gitcd, nothing reads it.
        _ = collector;
        match storage {
            #[cfg(feature = "gitcd")]
            Storage::Gitcd => {
                let started = gitcd::InProcess::start(&folder.join("repo.git"), collector);
                started.map(Self::Gitcd).map_err(StartError::Store)
            }
            Storage::Etcd => {
                let etcd = etcd::Etcd { program: programs::etcd(apiserver)?, folder };
                Process::start(&etcd, None).await.map(Self::Etcd)
            }
        }
    }

    /// Returns its URL, for `--etcd-servers`.
    pub(crate) fn url(&self) -> String {
        match self {
            #[cfg(feature = "gitcd")]
            Self::Gitcd(gitcd) => gitcd.url(),
            Self::Etcd(process) => etcd::url(process.port()),
        }
    }
}
