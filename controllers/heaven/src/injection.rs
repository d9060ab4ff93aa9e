//! Heavens beside the pods of labelled namespaces, by an admission webhook.
//!
//! The label [`INJECT`] of a namespace names a `TrishankuHeaven` in it, which sets `skip.app`: its manifest has the
//! certificates, the branch and the remotes. The webhook adds the containers of this heaven to each pod that is created in
//! the namespace, by any client, and each pod has a branch of its own. A rejection names the fields of the pod that are in the way.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::Client;
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};
use trishanku_api::TrishankuHeaven;
use trishanku_framework::Key;
use trishanku_framework::cache::{Cache, Caches, OnDemand};
use trishanku_framework::inject::JsonError;
use trishanku_framework::webhook::{Admission, Denied, FieldProblem, Hook, Operation, Webhooks};
pub use trishanku_heaven_plan::injected::INJECT;
use trishanku_heaven_plan::plan::PlanError;
use trishanku_heaven_plan::pod::PodError;
use trishanku_heaven_plan::workload::{HEAVEN, label_value};
use trishanku_heaven_plan::{STATUS_PORT, credentials, entry_points, injected};

use crate::guard::SecretGuard;
use crate::kind::parts_of;
use crate::secrets::Secrets;
use crate::{Error, Settings};

/// Adds heavens to pods.
pub struct HeavenInjector {
    client: Client,
    heavens: Arc<Cache<TrishankuHeaven>>,
    namespaces: Arc<Cache<PartialObjectMeta<Namespace>>>,
    maps: OnDemand<ConfigMap>,
    guard: SecretGuard,
    settings: Settings,
}

impl HeavenInjector {
    /// Creates the webhook's handler, with the caches of a manager. `client` reads objects that are not cached; it must also
    /// work without the lease, because all replicas serve the webhook.
    pub fn new(caches: &Caches, client: Client, settings: Settings) -> Self {
        let (heavens, namespaces) = (caches.cache(), caches.cache_on_demand::<Namespace>().metadata().clone());
        let guard = SecretGuard { secrets: Secrets::of(caches), repositories: caches.cache() };
        Self { client, heavens, namespaces, maps: caches.cache_on_demand(), guard, settings }
    }

    /// Adds the webhook. While no replica responds, no pods can be created in labelled namespaces. `own_namespace`, the
    /// namespace of the program, is excluded, so that the program itself can start.
    pub fn add_to(self, webhooks: Webhooks, own_namespace: &str) -> Webhooks {
        let hook = Hook::named("pods.controllers.trishanku.org").operations([Operation::Create]);
        let hook = hook.namespaces_with(INJECT).except_objects(INJECT, ["false"]);
        // If pods of the cluster's own components could not start, the webhook could not start either.
        let hook = hook.except_namespaces(["kube-system", own_namespace]);
        let shared = Arc::new(self);
        webhooks.mutating(hook, move |admission| {
            let shared = shared.clone();
            async move { Box::pin(shared.answer(admission)).await }
        })
    }

    async fn answer(&self, admission: Admission<Pod>) -> Result<Pod, Denied> {
        let namespace = admission.key.namespace().unwrap_or_default().to_owned();
        let annotations = admission.object.metadata.annotations.as_ref();
        // The pod already has a heaven: it belongs to a Deployment of this controller, or the webhook was called before.
        if annotations.is_some_and(|annotations| annotations.contains_key(STATUS_PORT)) {
            return Ok(admission.object);
        }
        self.namespaces.synced().await;
        self.heavens.synced().await;
        let labels = self.namespaces.get(&Key::cluster(&namespace)).and_then(|found| found.metadata.labels.clone());
        let Some(name) = labels.and_then(|mut labels| labels.remove(INJECT)) else {
            // The label that kube-apiserver matched is newer or older than this cache.
            return Err(Denied::invalid(format!(
                "the label {INJECT} of namespace {namespace:?} changed while this pod was admitted: retry"
            )));
        };
        let Some(heaven) = self.heavens.get(&Key::namespaced(&namespace, &name)) else {
            return Err(Denied::invalid(format!(
                "namespace {namespace:?} has the label {INJECT}={name}, but there is no TrishankuHeaven {name:?} in it: create \
                 it with skip.app, remove the label, or label the pod with {INJECT}=false"
            )));
        };
        if !parts_of(&*heaven).skips_app {
            return Err(Denied::invalid(format!(
                "TrishankuHeaven {name:?}, which the label {INJECT} of namespace {namespace:?} names, runs its own Deployment, so \
                 it cannot be injected: set skip.app in it"
            )));
        }
        let mut pod = admission.object;
        let template = json!({"metadata": pod.metadata, "spec": pod.spec});
        match self.inject(&mut pod, &template, &namespace, &heaven).await {
            Ok(()) => Ok(pod),
            Err(error) => Err(denied(&name, &error, &template)),
        }
    }

    /// Adds a heaven to a pod, of which `template` has the metadata and the spec.
    async fn inject(
        &self,
        pod: &mut Pod,
        template: &Value,
        namespace: &str,
        heaven: &TrishankuHeaven,
    ) -> Result<(), Error> {
        let parts = parts_of(heaven);
        let key = Key::namespaced(namespace, parts.name);
        self.settings.own_namespace.check(&key)?;
        if let Some(why) = parts.suspended {
            return Err(Error::Suspended(why.to_owned()));
        }
        // With `skip.app`, the plan would skip the checks of pods.
        let parts = injected::parts(parts, template);
        // Found without a request, so it is reported even if the API server does not answer.
        if parts.user.is_none() {
            return Err(PodError::NoUser.into());
        }
        self.guard.check(&parts, &self.client, namespace).await?;
        let credentials = parts.gitcd.and_then(|gitcd| gitcd.credentials_secret_name.as_deref());
        let credentials = match credentials {
            Some(name) => self.guard.secrets.get(&self.client, &Key::namespaced(namespace, name)).await?,
            None => None,
        };
        credentials::check_encryption(parts.gitcd, credentials.as_deref())?;
        let map = Key::namespaced(namespace, &parts.entry_points);
        // The heaven's own controller creates it, in another program or replica.
        let entry_points = entry_points::find(None, &self.maps, &self.client, &map, true).await?;
        let entry_points = entry_points.ok_or_else(|| Error::Missing(format!("ConfigMap {:?}", parts.entry_points)))?;
        let rendered = injected::of_pod(&parts, &self.settings.images, &entry_points)?;
        let mut template = rendered.template;
        pod.spec = Some(serde_json::from_value(template["spec"].take()).map_err(Error::Rendered)?);
        let labels = pod.metadata.labels.get_or_insert_default();
        labels.insert(HEAVEN.to_owned(), label_value(parts.name));
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(STATUS_PORT.to_owned(), rendered.status_port.to_string());
        if let Value::Object(added) = template["metadata"]["annotations"].take() {
            let added = added.into_iter().filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())));
            annotations.extend(added);
        }
        Ok(())
    }
}

/// Returns the rejection of a pod that cannot have a heaven, with the fields of the pod that are wrong.
fn denied(heaven: &str, error: &Error, pod: &Value) -> Denied {
    match error {
        Error::Api(error) => Denied::error(error),
        Error::OwnNamespace(_) => Denied::forbidden(error.to_string()),
        Error::Pod(PodError::Template { error, .. }) => {
            let denied = Denied::invalid(format!("TrishankuHeaven {heaven:?} does not fit into the pod: {error}"));
            let JsonError::Inject(error) = error else { return denied };
            // kubectl prints only the fields.
            error.problems().iter().fold(denied, |denied, problem| {
                let message = format!(
                    "{}, so TrishankuHeaven {heaven:?} does not fit into the pod; {}",
                    problem.found, problem.remedy
                );
                denied.field(injected::positions(pod, &problem.path), FieldProblem::Invalid, message)
            })
        }
        Error::Pod(PodError::Plan(PlanError::Value { field, value, problem })) => {
            let denied = Denied::invalid(format!("TrishankuHeaven {heaven:?}: {error}"));
            match field.strip_prefix("app.podTemplate.") {
                Some(field) => {
                    let message = format!("{value} {problem} in TrishankuHeaven {heaven:?}");
                    denied.field(injected::positions(pod, field), FieldProblem::Forbidden, message)
                }
                // A field of the heaven, not of the pod.
                None => denied,
            }
        }
        _ => Denied::invalid(format!("TrishankuHeaven {heaven:?}: {error}")),
    }
}
