//! Delays the deletion of a heaven until its last push.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::{Event, EventType};
use serde_json::json;
use time::OffsetDateTime;
use trishanku_framework::{Context, Key};
use trishanku_heaven_plan::objects;
use trishanku_heaven_plan::workload::Workload as _;

use crate::kind::parts_of;
use crate::reconcile::{Heavens, workload_key};
use crate::report::Seen;
use crate::{DELETE_UNPUSHED, Error, HeavenKind, deletion, secrets};

/// Length limit of notes in the events API.
const MOST_NOTE: usize = 1024;

impl<K: HeavenKind> Heavens<K> {
    /// What the deletion waits for; `None` if it may proceed: everything has been pushed, or that cannot be found out.
    pub(crate) async fn waits_for_push(&self, object: &K, context: &Context) -> Result<Option<String>, Error> {
        let key = &context.key;
        if !deletion::pushes(object) {
            return Ok(None);
        }
        let asked = if self.observer.has_pod(key) { Some(self.observer.ask(&context.client, key).await) } else { None };
        let pending_since = asked.as_ref().and_then(|asked| asked.pending_since);
        let asked = asked.map(|asked| asked.answer);
        if matches!(asked, Some(Err(_))) {
            self.let_ask(object, context).await;
        }
        // A claim is empty if no pod has used it, and none will.
        let keeps = deletion::keeps(object) && (deletion::has_served(object) || self.is_to_run(key));
        let last = self.observer.latest(key).map(|observed| observed.branch);
        let asked = asked.as_ref().map(Result::as_ref);
        let Some(why) = deletion::waits(keeps, asked, last.as_ref()) else { return Ok(None) };
        let until = match asked {
            Some(Err(_)) => pending_since.and_then(|since| deletion::gives_up(object, since)),
            _ => None,
        };
        if until.is_none_or(|until| self.settings.now() < until) {
            return Ok(Some(explain(&why, until)));
        }
        let claim = if keeps { self.leave_claim(object, key, &context.client).await? } else { None };
        give_up(object, context, &why, claim.as_deref()).await;
        Ok(None)
    }

    /// Removes the heaven's ownership of a claim that was created for it, since its data may exist nowhere else. Returns
    /// a description of what stays.
    async fn leave_claim(&self, object: &K, heaven: &Key, client: &Client) -> Result<Option<String>, Error> {
        let gitcd = parts_of(object).gitcd;
        let storage = gitcd.and_then(|gitcd| gitcd.storage.as_ref());
        if let Some(name) = storage.and_then(|storage| storage.volume_claim.as_ref()?.name.clone()) {
            return Ok(Some(format!("volume claim {name:?}")));
        }
        let claims = objects::claims(heaven.name(), gitcd, K::Workload::REPLICAS);
        if claims.by_replica.is_some() {
            // A StatefulSet does not delete them.
            return Ok(Some("the volume claim of each replica".to_owned()));
        }
        let Some(claim) = claims.shared else { return Ok(None) };
        let namespace = heaven.namespace().unwrap_or_default();
        let name = claim.metadata.name.unwrap_or_default();
        let Some(present) = self.claims.get(&Key::namespaced(namespace, &name)) else { return Ok(None) };
        let mut owners = present.metadata.owner_references.iter().flatten();
        if owners.any(|owner| Some(&owner.uid) == object.meta().uid.as_ref()) {
            let own = json!([{"$patch": "delete", "uid": object.meta().uid}]);
            let patch = json!({"metadata": {"uid": present.metadata.uid, "ownerReferences": own}});
            let parameters = PatchParams { field_manager: Some(secrets::MANAGER.to_owned()), ..PatchParams::default() };
            let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
            api.patch(&name, &parameters, &Patch::Strategic(patch)).await?;
        }
        Ok(Some(format!("volume claim {name:?}")))
    }

    /// Restores the Secret for queries to gitcd, if it was deleted during the deletion of the heaven.
    async fn let_ask(&self, object: &K, context: &Context) {
        let parts = parts_of(object);
        let key = Key::namespaced(context.key.namespace().unwrap_or_default(), &parts.certificates.admin);
        if parts.skips_certificates || self.secrets.exists(&key) {
            return;
        }
        // The failed query is reported, and the next one tries again.
        if let Err(error) = self.certificates(object, &parts, context, &mut Seen::default()).await {
            tracing::warn!(object = %context.key, %error, "cannot restore the Secret that the status of its gitcd is queried with");
        }
    }

    /// Whether there is a workload that runs pods.
    fn is_to_run(&self, heaven: &Key) -> bool {
        let workload = self.workloads.get(&workload_key(heaven));
        workload.is_some_and(|workload| K::Workload::stop(&workload).is_some())
    }
}

/// The message of a deletion that waits.
fn explain(why: &str, until: Option<OffsetDateTime>) -> String {
    let until = until.and_then(|until| Timestamp::from_second(until.unix_timestamp()).ok());
    let until = until.map_or_else(String::new, |until| {
        format!("; its pod has not started, and if it has not by {until}, the deletion continues without it")
    });
    format!("{why}{until}; to delete it nevertheless, annotate it with {DELETE_UNPUSHED}=true")
}

/// Reports in an event and in the log that deletion no longer waits.
async fn give_up(object: &impl HeavenKind, context: &Context, why: &str, claim: Option<&str>) {
    let left = match claim {
        Some(claim) => {
            format!("{claim} stays, since it may have unpushed commits; delete it when no longer needed")
        }
        None => "unpushed commits, if any, are lost".to_owned(),
    };
    let note = format!("gave up waiting for a pod that has not started; {left}. {why}");
    tracing::warn!(object = %context.key, note, "gave up waiting for the last push");
    let event = Event {
        type_: EventType::Warning,
        reason: "LastPushGivenUp".to_owned(),
        note: Some(note[..note.floor_char_boundary(MOST_NOTE)].to_owned()),
        action: "Delete".to_owned(),
        secondary: None,
    };
    context.publish(object, &event).await;
}
