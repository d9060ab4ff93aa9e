//! Reconciles a merge: observe, plan, apply, report.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use kube::core::DynamicObject;
use trishanku_api::{AVAILABLE, AutomatedMerge, AutomatedMergeStatus, GitHubRepository};
use trishanku_branch_status::Observer;
use trishanku_framework::apply::{Owned, PART_OF};
use trishanku_framework::cache::{Cache, OnDemand};
use trishanku_framework::status::Report;
use trishanku_framework::{Action, Context, Key, Kinds, StatusReconciler};
use trishanku_heaven_plan::own_namespace::OwnNamespace;
use trishanku_heaven_plan::plan::{Images, Place, merge, show};
use trishanku_heaven_plan::uses::ReferenceIndex;
use trishanku_heaven_plan::workload::{self, Deployments, MERGE, Pods, State, Workload as _, label_value};
use trishanku_heaven_plan::{STATUS_PORT, credentials, entry_points, exposure, names, objects, pod};

use crate::status_source::MergeStatusSource;
use crate::{Error, status_source};

/// The field manager.
pub(crate) const MANAGER: &str = "trishanku-automerge";

/// Reconciler of `AutomatedMerge` objects.
pub struct Merges {
    maps: Owned<ConfigMap>,
    other_maps: OnDemand<ConfigMap>,
    claims: Owned<PersistentVolumeClaim>,
    deployments: Owned<DynamicObject>,
    maps_used: Arc<ReferenceIndex>,
    secrets_used: Arc<ReferenceIndex>,
    repositories: Arc<Cache<GitHubRepository>>,
    remotes_used: Arc<ReferenceIndex>,
    secrets: Owned<Secret>,
    other_secrets: OnDemand<Secret>,
    observer: Observer<MergeStatusSource>,
    images: Images,
    own_namespace: OwnNamespace,
}

impl Merges {
    /// Creates a reconciler with the kinds that merges own and refer to.
    pub fn new(kinds: &mut Kinds<'_>, images: Images, own_namespace: OwnNamespace) -> Self {
        let [maps_used, secrets_used, remotes_used]: [Arc<ReferenceIndex>; 3] = Default::default();
        // Of what merges own; a cluster may have many more.
        let (maps, secrets) = (kinds.owned_selecting(PART_OF), kinds.owned_selecting(PART_OF));
        let (other_maps, other_secrets) = (kinds.cache_on_demand(), kinds.cache_on_demand());
        // Of the ConfigMap of a heaven, the two caches learn one after the other.
        let users = maps_used.clone();
        kinds.watches(maps.cache(), move |change| users.of(&Key::of(change.object())));
        let users = maps_used.clone();
        kinds.watches(other_maps.metadata(), move |change| users.of(&Key::of(change.object())));
        let users = secrets_used.clone();
        kinds.watches(other_secrets.metadata(), move |change| users.of(&Key::of(change.object())));
        let (repositories, followers) = (kinds.cache(), remotes_used.clone());
        kinds.watches(&repositories, move |change| exposure::users_of(&followers, change));
        let used = [maps_used.clone(), secrets_used.clone(), remotes_used.clone()];
        let shown = MergeStatusSource { secrets: kinds.cache_selecting(PART_OF), used };
        Self {
            observer: Observer::new(shown, kinds.cache(), &kinds.cache_selecting(MERGE)),
            claims: kinds.owned(),
            deployments: kinds.owned_of(&Deployments::kind(), None),
            maps,
            other_maps,
            secrets,
            other_secrets,
            maps_used,
            secrets_used,
            repositories,
            remotes_used,
            images,
            own_namespace,
        }
    }

    /// Rejects a merge that would push Secrets to remotes that are not known to be private.
    fn keep_secrets(&self, object: &AutomatedMerge, key: &Key) -> Result<(), Error> {
        let remotes = exposure::remotes(object.spec.gitcd.as_ref());
        self.remotes_used.note(key, remotes.iter().map(String::as_str));
        let repositories = exposure::repositories_in(&self.repositories, key.namespace());
        let repositories: Vec<_> = repositories.iter().map(AsRef::as_ref).collect();
        match exposure::of_merge(&object.spec, &repositories) {
            None => Ok(()),
            Some(leak) => Err(leak.into_error(Error::Public, Error::Undeclared, Error::NotKnownPublic)),
        }
    }

    async fn converge(&self, object: &AutomatedMerge, context: &Context) -> Result<Option<State>, Error> {
        self.own_namespace.check(&context.key)?;
        let (name, spec) = (context.key.name(), &object.spec);
        let beside = |name: &str| Key::namespaced(context.key.namespace().unwrap_or_default(), name);
        let map = names::entry_points_of_merge(name, spec);
        self.maps_used.note(&context.key, [map.as_str()]);
        let git_credentials = spec.gitcd.as_ref().and_then(|gitcd| gitcd.credentials_secret_name.as_deref());
        self.secrets_used.note(&context.key, git_credentials);
        let mut set = context.apply_set(object);
        // A named ConfigMap belongs to a heaven or to the user.
        let is_named = spec.app.entrypoints_config_map_name.is_some();
        if !is_named {
            set.apply(objects::entry_points(map.clone()), &self.maps).await?;
        }
        set.prune(&self.maps).await?;
        let (own, client) = (Some(&**self.maps.cache()), &context.client);
        let found = entry_points::find(own, &self.other_maps, client, &beside(&map), is_named).await?;
        let entry_points = found.ok_or_else(|| Error::Missing(format!("ConfigMap {map:?}")))?;
        let secret = match git_credentials {
            Some(name) => self.other_secrets.get(&context.client, &beside(name)).await?,
            None => None,
        };
        credentials::check_encryption(spec.gitcd.as_ref(), secret.as_deref())?;
        // Named differently from the claim of a heaven with the same name.
        let called = names::merge(name);
        let key = beside(&called);
        let kept = self.keep_secrets(object, &context.key);
        if kept.is_err() && spec.suspend == Some(true) || matches!(kept, Err(Error::Public(_))) {
            // Data that was pushed is public already, but no more must follow.
            workload::stop::<Deployments>(&context.client, &self.deployments, &key, object.metadata.uid.as_deref())
                .await?;
        }
        kept?;
        if let Some(claim) = objects::claim(&called, spec.gitcd.as_ref()) {
            set.apply(claim, &self.claims).await?;
        }
        let place = Place::pod();
        let mut plan = merge(name, spec, &self.images, &place, &entry_points)?;
        let shown = names::merge_status(name);
        set.apply(status_source::secret(&shown, self.secrets.get(&beside(&shown)).as_deref())?, &self.secrets).await?;
        set.prune(&self.secrets).await?;
        // The pod does not use the Kubernetes API.
        let users = serde_json::json!({"spec": {"automountServiceAccountToken": false, "containers": []}});
        let port = pod::status_port(&users, &[])?;
        show(&mut plan, &place, port, &shown);
        let template = pod::render(&plan, &users)?;
        let replicas = if spec.suspend == Some(true) { 0 } else { spec.app.replicas.unwrap_or(1) };
        let selected = label_value(name);
        let pods = Pods { selector: (MERGE, &selected), replicas, template, claim: None };
        let deployment = workload::object::<Deployments>(&called, pods, &[(STATUS_PORT, &port.to_string())]);
        workload::remove_conflicting_fields::<Deployments>(
            &context.client,
            &self.deployments,
            &key,
            object.metadata.uid.as_deref(),
            replicas,
        )
        .await?;
        set.apply_or_recreate(deployment, &self.deployments).await?;
        set.prune(&self.deployments).await?;
        Ok(self.deployments.get(&key).map(|deployment| Deployments::state(&deployment)))
    }
}

/// The report of a merge that was applied.
fn report(object: &AutomatedMerge, state: Option<&State>) -> Report {
    let spec = &object.spec;
    match state {
        _ if spec.suspend == Some(true) => Report::stalled(
            "Suspended",
            spec.suspend_reason.clone().unwrap_or_else(|| "spec.suspend is set".to_owned()),
        )
        .warns(false),
        Some(state) if state.is => Report::ready("Succeeded", ""),
        Some(state) => Report::reconciling(state.reason.clone(), state.message.clone()).warns(state.is_stuck()),
        None => Report::reconciling("Applied", "the Deployment was just created"),
    }
}

impl StatusReconciler for Merges {
    type Object = AutomatedMerge;
    type Error = Error;

    async fn reconcile(
        &self,
        object: Arc<AutomatedMerge>,
        status: &mut AutomatedMergeStatus,
        context: Context,
    ) -> Result<(Report, Action), Error> {
        self.observer.follow(&context);
        let git = object.spec.gitcd.as_ref().and_then(|gitcd| gitcd.git.as_ref());
        let data = git.and_then(|git| git.branches.as_ref()).and_then(|branches| branches.data.clone());
        status.branch = Some(data.unwrap_or_else(|| "main".to_owned()));
        let state = self.converge(&object, &context).await?;
        if state.is_some() {
            workload::set(&mut status.conditions, AVAILABLE, state.as_ref(), object.metadata.generation);
        }
        Ok((report(&object, state.as_ref()), Action::Change))
    }

    fn conditions(&self) -> &[&str] {
        &[AVAILABLE]
    }

    /// The observer writes the remotes.
    fn keep_own(&self, status: &mut AutomatedMergeStatus) {
        status.remotes = Vec::new();
    }
}
