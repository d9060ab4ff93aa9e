//! Status source of heavens: how to reach their gitcd, and which status fields to write.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::marker::PhantomData;

use kube::Client;
use serde_json::{Map, Value, json};
use trishanku_branch_status::answer::Branch;
use trishanku_branch_status::{Identity, StatusSource};
use trishanku_framework::Key;
use trishanku_heaven_plan::workload::Workload as _;

use crate::HeavenKind;
use crate::kind::parts_of;
use crate::secrets::Secrets;

/// Uses the administrator's certificate of the heaven.
pub(crate) struct HeavenStatusSource<K> {
    secrets: Secrets,
    kind: PhantomData<fn() -> K>,
}

impl<K: HeavenKind> HeavenStatusSource<K> {
    pub(crate) fn new(secrets: Secrets) -> Self {
        Self { secrets, kind: PhantomData }
    }
}

impl<K: HeavenKind> StatusSource for HeavenStatusSource<K> {
    type Object = K;

    fn label(&self) -> &'static str {
        K::LABEL
    }

    /// A heaven without pods of its own may be that of the pods of a namespace.
    fn has_branch_per_replica(&self, heaven: &K) -> bool {
        K::Workload::REPLICAS.field().is_some() || parts_of(heaven).skips_app
    }

    async fn identity(&self, client: &Client, object: &K) -> Option<Identity> {
        let (key, named) = (Key::of(object), parts_of(object).certificates);
        let secret = self.secrets.get(client, &Key::namespaced(key.namespace()?, &named.admin)).await;
        let secret = secret.inspect_err(|error| {
            tracing::warn!(object = %key, secret = named.admin, %error, "cannot read the Secret with the credentials for gitcd's /status");
        });
        let secret = secret.ok()??;
        let value = |key: &str| Some(secret.data.as_ref()?.get(key)?.0.clone());
        Some(Identity { authorities: value("ca.crt")?, certificate: value("tls.crt")?, key: value("tls.key")? })
    }

    fn fields(&self, object: &K, branch: Option<&Branch>) -> Map<String, Value> {
        let before = object.status().and_then(|status| status.branch.clone());
        let status = branch.map(|branch| branch.status(parts_of(object).branch())).or(before);
        status.map(|status| ("branch".to_owned(), json!(status))).into_iter().collect()
    }

    fn conditions(&self, object: &K) -> Vec<Condition> {
        object.status().map(|status| status.conditions.clone()).unwrap_or_default()
    }
}
