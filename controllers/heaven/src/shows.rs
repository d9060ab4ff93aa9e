//! Status source of heavens: how to reach their gitcd, and which status fields to write.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use serde_json::{Map, Value, json};
use trishanku_api::TrishankuHeaven;
use trishanku_branch_status::answer::Branch;
use trishanku_branch_status::{Identity, StatusSource};
use trishanku_framework::Key;
use trishanku_heaven_plan::names;
use trishanku_heaven_plan::workload::HEAVEN;

use crate::secrets::Secrets;

/// Uses the administrator's certificate of the heaven.
pub(crate) struct HeavenStatusSource {
    pub(crate) secrets: Secrets,
}

impl StatusSource for HeavenStatusSource {
    type Object = TrishankuHeaven;
    const KIND: &'static str = "TrishankuHeaven";

    fn label(&self) -> &'static str {
        HEAVEN
    }

    async fn identity(&self, client: &Client, object: &TrishankuHeaven) -> Option<Identity> {
        let key = Key::of(object);
        let named = names::Certificates::of(key.name(), &object.spec);
        let secret = self.secrets.get(client, &Key::namespaced(key.namespace()?, &named.admin)).await;
        let secret = secret.inspect_err(|error| {
            tracing::warn!(object = %key, secret = named.admin, %error, "cannot read the Secret with the credentials for gitcd's /status");
        });
        let secret = secret.ok()??;
        let value = |key: &str| Some(secret.data.as_ref()?.get(key)?.0.clone());
        Some(Identity { authorities: value("ca.crt")?, certificate: value("tls.crt")?, key: value("tls.key")? })
    }

    fn fields(&self, object: &TrishankuHeaven, branch: Option<&Branch>) -> Map<String, Value> {
        let before = object.status.as_ref().and_then(|status| status.branch.clone());
        let git = object.spec.gitcd.as_ref().and_then(|gitcd| gitcd.git.as_ref());
        let data = git.and_then(|git| git.branches.as_ref()).and_then(|branches| branches.data.as_deref());
        let status = branch.map(|branch| branch.status(data.unwrap_or("main"))).or(before);
        status.map(|status| ("branch".to_owned(), json!(status))).into_iter().collect()
    }

    fn conditions(&self, object: &TrishankuHeaven) -> Vec<Condition> {
        object.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default()
    }
}
