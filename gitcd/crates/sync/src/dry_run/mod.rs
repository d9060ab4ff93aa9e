//! Server-side dry runs of pushed files at the kube-apiserver that runs on the branch, so that admission, defaulting and
//! validation apply to pushes as to every other request.
//!
//! Source: KEP-576, dry run; <https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run>. `docs/design/merge.md`
//! lists the pushes that get a dry run.

mod answer;
mod client;
mod kubeconfig;

use std::collections::HashMap;
use std::path::PathBuf;

use bytes::Bytes;
use futures::StreamExt as _;
use gitcd_merge::admit::{self, Finding};
use gitcd_merge::secrecy::Exposure;

use self::client::Client;
use crate::git_worker::blocking;

/// Limit on concurrent dry runs.
const AT_A_TIME: usize = 8;

/// The kube-apiserver that runs on a branch.
#[derive(Clone, Debug)]
pub struct ApiServer {
    /// Read again for each push, because certificates and tokens rotate.
    kubeconfig: PathBuf,
    /// Whether its token may be sent over plain HTTP to another machine.
    plain_http: bool,
}

/// A merged object that needs a dry run, because an external commit changed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The key below the prefix.
    pub(super) relative: Vec<u8>,
    /// The merged object.
    pub(super) object: Bytes,
}

/// The result of a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Accepted without changes.
    Accepted,
    /// Accepted; the API server would store this object.
    Completed(Bytes),
    /// Rejected.
    Refused(Refusal),
    /// Not dry-run: the API server does not serve the kind or lacks the namespace, the value is not an object, or it replaces an
    /// object that has another `uid`. Only the rules for files apply.
    Skipped,
}

/// Why the API server rejects an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The API server's reason, such as `Invalid`; it never contains values of the object.
    pub(super) code: String,
    /// The API server's messages, which can quote values of the object.
    pub(super) findings: Vec<Finding>,
}

impl Refusal {
    /// Returns the reason for the author of the file. For secrets it is only the code, because the API server's messages can
    /// quote values.
    pub(super) fn reason(&self, file: &[u8], exposure: Exposure) -> String {
        let said = match exposure {
            Exposure::Open => admit::reason(&self.findings, file, exposure),
            _ => format!("{}; its message is hidden because it can quote the secret", self.code),
        };
        format!("kube-apiserver rejects it: {said}")
    }
}

/// Results of dry runs by key below the prefix, each with the object that was sent.
pub type Verdicts = HashMap<Vec<u8>, (Bytes, Verdict)>;

/// Error for a dry run that a kube-apiserver did not complete.
#[derive(Debug, thiserror::Error)]
#[error("cannot dry-run the push at the kube-apiserver of {kubeconfig:?}: {problem}")]
pub struct Unavailable {
    kubeconfig: PathBuf,
    problem: String,
}

impl ApiServer {
    /// Returns the kube-apiserver of a kubeconfig, which is not read yet.
    #[must_use]
    pub fn of(kubeconfig: PathBuf) -> Self {
        Self { kubeconfig, plain_http: false }
    }

    /// Sets whether its token may be sent over plain HTTP to another machine.
    #[must_use]
    pub fn plain_http(mut self, is_allowed: bool) -> Self {
        self.plain_http = is_allowed;
        self
    }

    /// Sends all objects as dry runs.
    ///
    /// # Errors
    /// [`Unavailable`] if it is unreachable or its response is not that of a kube-apiserver.
    pub(super) async fn try_all(&self, trials: Vec<Trial>) -> Result<Verdicts, Unavailable> {
        let failed = |problem: String| Unavailable { kubeconfig: self.kubeconfig.clone(), problem };
        let (path, plain_http) = (self.kubeconfig.clone(), self.plain_http);
        // The client reads the trusted certificates of the system.
        let client = blocking(move || {
            let cluster = kubeconfig::read(&path)?;
            if !plain_http {
                cluster.check_encryption()?;
            }
            Client::new(&cluster)
        });
        let client = client.await.map_err(failed)?;
        let found = futures::stream::iter(trials.into_iter().map(|trial| {
            let client = &client;
            async move {
                let verdict = client.try_one(&trial.object).await?;
                Ok((trial.relative, (trial.object, verdict)))
            }
        }));
        let found: Vec<Result<_, String>> = found.buffer_unordered(AT_A_TIME).collect().await;
        found.into_iter().collect::<Result<_, _>>().map_err(failed)
    }
}
