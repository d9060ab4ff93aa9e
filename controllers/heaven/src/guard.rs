//! Keeps unencrypted Secrets out of branches that are not known to be private.

use std::sync::Arc;

use kube::Client;
use trishanku_api::GitHubRepository;
use trishanku_framework::Key;
use trishanku_framework::cache::Cache;
use trishanku_heaven_plan::{HeavenParts, encryption, exposure};

use crate::Error;
use crate::secrets::Secrets;

/// Decides whether the remotes of a heaven may receive its Secrets.
pub(crate) struct SecretGuard {
    pub(crate) secrets: Secrets,
    pub(crate) repositories: Arc<Cache<GitHubRepository>>,
}

impl SecretGuard {
    /// Rejects a heaven in this namespace whose unencrypted Secrets would be pushed to a repository that is not known to be
    /// private.
    pub(crate) async fn check(&self, parts: &HeavenParts<'_>, client: &Client, namespace: &str) -> Result<(), Error> {
        if exposure::remotes(parts.gitcd).is_empty() {
            return Ok(());
        }
        let repositories = exposure::repositories_in(&self.repositories, Some(namespace));
        let repositories: Vec<_> = repositories.iter().map(AsRef::as_ref).collect();
        let configuration = match encryption::secret(parts.apiserver) {
            Some(name) => self.encryption_configuration(client, namespace, name).await?,
            None => None,
        };
        let encryption = encryption::of(parts.apiserver, configuration.as_deref());
        match exposure::of_heaven(parts, &repositories, encryption) {
            None => Ok(()),
            Some(leak) => Err(leak.into_error(Error::Public, Error::Undeclared, Error::NotKnownPublic)),
        }
    }

    /// Returns the encryption configuration in a Secret of the heaven's namespace; it is empty if the Secret lacks the key.
    pub(crate) async fn encryption_configuration(
        &self,
        client: &Client,
        namespace: &str,
        secret: &str,
    ) -> Result<Option<Vec<u8>>, Error> {
        let Some(secret) = self.secrets.get(client, &Key::namespaced(namespace, secret)).await? else {
            return Ok(None);
        };
        let file = secret.data.as_ref().and_then(|data| data.get(encryption::FILE));
        Ok(Some(file.map_or(Vec::new(), |file| file.0.clone())))
    }
}
