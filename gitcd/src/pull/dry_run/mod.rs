//! What the kube-apiserver of a store says of files that people pushed: each is tried with a server-side dry run before it
//! enters, so that admission, defaults and validation are those of every other request.
//!
//! Source: KEP-576, dry run; <https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run>. `docs/design/merge.md` says which
//! pushes are tried.

mod answer;
mod client;
mod kubeconfig;

use std::collections::HashMap;
use std::path::PathBuf;

use bytes::Bytes;
use futures::StreamExt as _;

use self::client::Client;
use super::admit::{self, Finding};
use crate::secrecy::Exposure;

/// So many files are tried at a time.
const AT_A_TIME: usize = 8;

/// A kube-apiserver that is asked.
#[derive(Clone, Debug)]
pub struct ApiServer {
    /// Where it is, and who asks. Read for every push, since certificates and tokens are renewed.
    kubeconfig: PathBuf,
}

/// What a merge makes of a file that a person pushed, to be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The key below the prefix.
    pub(super) relative: Vec<u8>,
    /// The merged object.
    pub(super) object: Bytes,
}

/// What the kube-apiserver says of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It takes it as it is.
    Taken,
    /// It takes it, and would store this.
    Completed(Bytes),
    /// It refuses it.
    Refused(Refusal),
    /// It has no such kind or no such namespace, or the value is no object: the other rules decide.
    NotTried,
}

/// Why an object is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// A word for the kind of problem, such as `Invalid`; no value of the object is in it.
    pub(super) code: String,
    /// In the API server's words, which may quote the object.
    pub(super) findings: Vec<Finding>,
}

impl Refusal {
    /// In words for the author of the file. The API server may quote values: of an object that is a secret only the code is told.
    pub(super) fn reason(&self, file: &[u8], exposure: Exposure) -> String {
        let said = match exposure {
            Exposure::Open => admit::reason(&self.findings, file, exposure),
            _ => format!("{}; its words are not shown, since they may quote the secret", self.code),
        };
        format!("kube-apiserver refuses it: {said}")
    }
}

/// What was found out so far, by keys below the prefix. Each is about one object.
pub type Verdicts = HashMap<Vec<u8>, (Bytes, Verdict)>;

/// A kube-apiserver cannot be asked.
#[derive(Debug, thiserror::Error)]
#[error("cannot try the push at the kube-apiserver of {kubeconfig:?}: {problem}")]
pub struct Unavailable {
    kubeconfig: PathBuf,
    problem: String,
}

impl ApiServer {
    /// The one that a kubeconfig names. Nothing is read yet.
    #[must_use]
    pub fn of(kubeconfig: PathBuf) -> Self {
        Self { kubeconfig }
    }

    /// Tries objects. Stores nothing.
    ///
    /// # Errors
    /// [`Unavailable`] if it does not answer, or not in the way of a kube-apiserver.
    pub(super) async fn try_all(&self, trials: Vec<Trial>) -> Result<Verdicts, Unavailable> {
        let failed = |problem: String| Unavailable { kubeconfig: self.kubeconfig.clone(), problem };
        let path = self.kubeconfig.clone();
        let read = tokio::task::spawn_blocking(move || kubeconfig::read(&path)).await;
        let client = read.expect("reading a file does not panic").and_then(|cluster| Client::new(&cluster));
        let client = client.map_err(failed)?;
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
