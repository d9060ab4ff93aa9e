//! Status source of merges: how to reach their gitcd, and which status fields to write.

use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use kube::core::ObjectMeta;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use trishanku_api::AutomatedMerge;
use trishanku_branch_status::answer::Branch;
use trishanku_branch_status::{Identity, StatusSource, pair};
use trishanku_framework::Key;
use trishanku_framework::cache::Cache;
use trishanku_heaven_plan::names;
use trishanku_heaven_plan::uses::ReferenceIndex;
use trishanku_heaven_plan::workload::MERGE;

use crate::Error;

/// Annotation of the Secret with the time (in seconds since 1970) after which it is renewed.
const RENEW_AFTER: &str = "controllers.trishanku.org/renew-after";

/// Uses a self-signed certificate, since a merge has no authority.
pub(crate) struct MergeStatusSource {
    pub(crate) secrets: Arc<Cache<Secret>>,
    /// What merges use: forgotten with the merge.
    pub(crate) used: [Arc<ReferenceIndex>; 3],
}

/// Returns the Secret with the certificate, present or renewed.
pub(crate) fn secret(name: &str, present: Option<&Secret>) -> Result<Secret, Error> {
    let now = OffsetDateTime::now_utc();
    let still_good = |secret: &&Secret| {
        let annotations = secret.metadata.annotations.as_ref();
        let until = annotations.and_then(|annotations| annotations.get(RENEW_AFTER)?.parse::<i64>().ok());
        let data = secret.data.as_ref();
        let is_whole = |key: &&str| data.and_then(|data| data.get(*key)).is_some_and(|value| !value.0.is_empty());
        until.is_some_and(|until| now.unix_timestamp() < until) && ["tls.crt", "tls.key", "ca.crt"].iter().all(is_whole)
    };
    let (data, until) = if let Some(present) = present.filter(still_good) {
        let until = present.metadata.annotations.as_ref().and_then(|annotations| annotations.get(RENEW_AFTER).cloned());
        (present.data.clone().unwrap_or_default(), until.unwrap_or_default())
    } else {
        let made = pair::make(name, now).map_err(|error| Error::Certificate(error.to_string()))?;
        let value = |text: &str| ByteString(text.as_bytes().to_vec());
        // Both sides use the certificate, and trust only it.
        let pem = value(&made.certificate);
        let data = [("tls.crt", pem.clone()), ("tls.key", value(&made.key)), ("ca.crt", pem)];
        let data = data.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        (data, (now + pair::LIFETIME.unsigned_abs() / 2).unix_timestamp().to_string())
    };
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        annotations: Some([(RENEW_AFTER.to_owned(), until)].into()),
        ..ObjectMeta::default()
    };
    Ok(Secret { metadata, type_: Some("kubernetes.io/tls".to_owned()), data: Some(data), ..Secret::default() })
}

impl StatusSource for MergeStatusSource {
    type Object = AutomatedMerge;

    fn label(&self) -> &'static str {
        MERGE
    }

    async fn identity(&self, _: &Client, object: &AutomatedMerge) -> Option<Identity> {
        let key = Key::of(object);
        let secret = self.secrets.get(&Key::namespaced(key.namespace()?, &names::merge_status(key.name())))?;
        let value = |key: &str| Some(secret.data.as_ref()?.get(key)?.0.clone());
        Some(Identity { authorities: value("ca.crt")?, certificate: value("tls.crt")?, key: value("tls.key")? })
    }

    fn fields(&self, object: &AutomatedMerge, branch: Option<&Branch>) -> Map<String, Value> {
        let before = object.status.as_ref().map(|status| status.remotes.clone());
        let remotes = branch.map(Branch::remotes).or(before);
        remotes.map(|remotes| ("remotes".to_owned(), json!(remotes))).into_iter().collect()
    }

    fn conditions(&self, object: &AutomatedMerge) -> Vec<Condition> {
        object.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default()
    }

    fn gone(&self, key: &Key) {
        self.used.iter().for_each(|used| used.note(key, []));
    }
}
