//! Reconciles a heaven: observe, plan, apply. `report` decides what its status says.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service};
use k8s_openapi::jiff::Timestamp;
use kube::core::DynamicObject;
use time::OffsetDateTime;
use trishanku_api::{AVAILABLE, BranchStatus, CERTIFICATES_READY, GIT_HOST_ENCRYPTED, TrishankuHeavenStatus};
use trishanku_branch_status::Observer;
use trishanku_framework::apply::{ApplySet, Owned, PART_OF};
use trishanku_framework::cache::OnDemand;
use trishanku_framework::status::Report;
use trishanku_framework::{Action, CleanedUp, Context, Failure as _, Key, Kinds, StatusReconciler};
use trishanku_heaven_plan::plan::EntryPoints;
use trishanku_heaven_plan::uses::ReferenceIndex;
use trishanku_heaven_plan::workload::{self, Pods, State, Workload as _, label_value};
use trishanku_heaven_plan::{
    HeavenParts, STATUS_PORT, credentials, encryption, entry_points, exposure, names, objects, pod,
};

use crate::certificates::{RenewalCriteria, User, issue};
use crate::guard::SecretGuard;
use crate::kind::parts_of;
use crate::report::{self, Seen};
use crate::secrets::Secrets;
use crate::status_source::HeavenStatusSource;
use crate::{Error, FINALIZER, FINGERPRINT, GENERATION, HeavenKind, REISSUE_BEFORE, Settings, host, secrets};

/// The longest delay before the next reconcile: timers must not be as long as a certificate's lifetime.
const LONGEST: Duration = Duration::from_hours(10);
/// Poll interval for the last push.
const LAST_PUSH: Duration = Duration::from_secs(3);

/// Reconciler of heavens of a kind.
pub struct Heavens<K: HeavenKind> {
    pub(crate) secrets: Secrets,
    maps: Owned<ConfigMap>,
    other_maps: OnDemand<ConfigMap>,
    pub(crate) claims: Owned<PersistentVolumeClaim>,
    services: Owned<Service>,
    pub(crate) workloads: Owned<DynamicObject>,
    secrets_used: Arc<ReferenceIndex>,
    maps_used: Arc<ReferenceIndex>,
    guard: SecretGuard,
    remotes_used: Arc<ReferenceIndex>,
    pub(crate) observer: Observer<HeavenStatusSource<K>>,
    pub(crate) settings: Settings,
}

impl<K: HeavenKind> Heavens<K> {
    /// Creates a reconciler with the kinds that heavens own and refer to.
    pub fn new(kinds: &mut Kinds<'_>, settings: Settings) -> Self {
        let [secrets_used, maps_used, remotes_used]: [Arc<ReferenceIndex>; 3] = Default::default();
        let secrets = Secrets::of(kinds);
        let users = secrets_used.clone();
        kinds.watches(&secrets.ours, move |change| {
            if secrets::is_of_interest(change) { users.of(&Key::of(change.object())) } else { Vec::new() }
        });
        let users = secrets_used.clone();
        kinds.watches(secrets.others.metadata(), move |change| {
            if secrets::is_of_others(change) { users.of(&Key::of(change.object())) } else { Vec::new() }
        });
        // Of what heavens own; a cluster may have many more.
        let (maps, other_maps) = (kinds.owned_selecting(PART_OF), kinds.cache_on_demand());
        // Of a ConfigMap of another owner, the two caches learn one after the other.
        let users = maps_used.clone();
        kinds.watches(maps.cache(), move |change| users.of(&Key::of(change.object())));
        let users = maps_used.clone();
        kinds.watches(other_maps.metadata(), move |change| users.of(&Key::of(change.object())));
        let (repositories, followers) = (kinds.cache(), remotes_used.clone());
        kinds.watches(&repositories, move |change| exposure::users_of(&followers, change));
        let shown = HeavenStatusSource::new(secrets.clone());
        Self {
            observer: Observer::new(shown, kinds.cache(), &kinds.cache_selecting(K::LABEL)),
            claims: kinds.owned(),
            services: kinds.owned(),
            workloads: kinds.owned_of(&K::Workload::kind(), None),
            guard: SecretGuard { secrets: secrets.clone(), repositories },
            secrets,
            maps,
            other_maps,
            secrets_used,
            maps_used,
            remotes_used,
            settings,
        }
    }

    /// Rejects unencrypted Secrets on branches that are not known to be private.
    async fn keep_secrets(&self, parts: &HeavenParts<'_>, context: &Context) -> Result<(), Error> {
        let key = &context.key;
        let remotes = exposure::remotes(parts.gitcd);
        self.remotes_used.note(key, remotes.iter().map(String::as_str));
        self.guard.check(parts, &context.client, key.namespace().unwrap_or_default()).await
    }

    /// Returns whether a running heaven has to stop, because its Secrets must not be stored as they would be.
    async fn must_stop(
        &self,
        parts: &HeavenParts<'_>,
        context: &Context,
        kept: &Result<(), Error>,
        running: Option<&str>,
    ) -> Result<bool, Error> {
        Ok(match kept {
            // Data that was pushed is public already, but no more must follow.
            Err(Error::Public(_)) => true,
            // The workload stays as it is, so a configuration that the manifest no longer names is still in use. But
            // kube-apiserver reloads its content, and a changed one may no longer encrypt.
            Err(Error::Undeclared(_) | Error::NotKnownPublic(_)) => {
                if parts.suspended.is_some() {
                    return Ok(true);
                }
                let in_use = match running {
                    Some(secret) => {
                        let namespace = context.key.namespace().unwrap_or_default();
                        self.guard.encryption_configuration(&context.client, namespace, secret).await?
                    }
                    None => None,
                };
                in_use.is_some_and(|in_use| encryption::problem(&in_use).is_some())
            }
            // Suspended heavens stay stopped after any error.
            Err(_) => parts.suspended.is_some(),
            Ok(()) => false,
        })
    }

    /// A Secret of the namespace.
    async fn secret(&self, context: &Context, name: &str) -> Result<Option<Arc<Secret>>, Error> {
        let key = Key::namespaced(context.key.namespace().unwrap_or_default(), name);
        Ok(self.secrets.get(&context.client, &key).await?)
    }

    async fn converge(
        &self,
        object: &K,
        parts: &HeavenParts<'_>,
        context: &Context,
        seen: &mut Seen,
    ) -> Result<(), Error> {
        self.settings.own_namespace.check(&context.key)?;
        let HeavenParts { name, gitcd, .. } = *parts;
        let map = &parts.entry_points;
        let deployed = workload_key(&context.key);
        let running =
            self.workloads.get(&deployed).and_then(|found| workload::encryption_secret::<K::Workload>(&found));
        let used = parts.certificates.all().into_iter().chain(encryption::secret(parts.apiserver));
        let git_credentials = gitcd.and_then(|gitcd| gitcd.credentials_secret_name.as_deref());
        let used = used.chain(running.as_deref()).chain(git_credentials).chain(host::certificate(gitcd));
        self.secrets_used.note(&context.key, used);
        self.maps_used.note(&context.key, [map.as_str()]);

        let fingerprint = self.certificates(object, parts, context, seen).await?;

        let mut set = context.apply_set(object);
        if !parts.skips_entry_points {
            set.apply(objects::entry_points(map.clone()), &self.maps).await?;
        }
        set.prune(&self.maps).await?;
        let mut keeps_workload = false;
        if !parts.skips_app {
            let (client, workloads, uid) = (&context.client, &self.workloads, object.meta().uid.as_deref());
            let kept = self.keep_secrets(parts, context).await;
            if self.must_stop(parts, context, &kept, running.as_deref()).await? {
                workload::stop::<K::Workload>(client, workloads, &deployed, uid).await?;
                seen.available = self.state(&deployed);
            }
            kept?;
            let secret = match git_credentials {
                Some(name) => self.secret(context, name).await?,
                None => None,
            };
            credentials::check_encryption(gitcd, secret.as_deref())?;
            let entry_points = self.entry_points(context, map, parts.skips_entry_points).await?;
            let pod = pod::of_heaven(parts, &self.settings.images, &entry_points, K::Workload::REPLICAS)?;
            let claims = objects::claims(name, gitcd, K::Workload::REPLICAS);
            if let Some(claim) = claims.shared {
                set.apply(claim, &self.claims).await?;
            }
            if let Some(service) = objects::host_service(name, K::LABEL, gitcd)? {
                set.apply(service, &self.services).await?;
            }
            let (selected, status_port) = (label_value(name), pod.status_port.to_string());
            let pods = Pods {
                selector: (K::LABEL, &selected),
                replicas: if parts.suspended.is_some() { 0 } else { parts.replicas },
                template: pod.template,
                claim: claims.by_replica,
            };
            let annotations = [(STATUS_PORT, status_port.as_str()), (FINGERPRINT, fingerprint.as_str())];
            keeps_workload = !self.apply_workload(object, context, &mut set, pods, annotations).await?;
        }
        // Claims are never pruned: their data may exist nowhere else.
        set.prune(&self.services).await?;
        if !keeps_workload {
            set.prune(&self.workloads).await?;
        }
        if !parts.skips_app {
            seen.available = self.state(&deployed);
        }
        Ok(())
    }

    /// Applies the workload; returns false if it was left alone, because it runs once, and was created for this generation.
    async fn apply_workload(
        &self,
        object: &K,
        context: &Context,
        set: &mut ApplySet<'_, K>,
        pods: Pods<'_>,
        annotations: [(&str, &str); 2],
    ) -> Result<bool, Error> {
        let (replicas, key) = (pods.replicas, workload_key(&context.key));
        let present = self.workloads.get(&key);
        if present.is_none() && self.observer.has_pod_of(&context.key, &K::Workload::resource().kind) {
            // Of a workload that had to be replaced: a new pod beside it would write to the same branch.
            return Err(Error::PodsLeft(context.key.name().to_owned()));
        }
        let [port, fingerprint] = annotations;
        // The fingerprint is there to restart pods.
        let annotations = if K::Workload::RUNS_ONCE { vec![port] } else { vec![port, fingerprint] };
        let mut wanted = workload::object::<K::Workload>(key.name(), pods, &annotations);
        if K::Workload::RUNS_ONCE {
            let generation = object.meta().generation.unwrap_or_default().to_string();
            wanted.metadata.annotations.get_or_insert_default().insert(GENERATION.to_owned(), generation);
            let is_done = present.is_some_and(|present| {
                let runs = K::Workload::stop(&present).is_some();
                runs == (replicas != 0) && generation_of(&present) == generation_of(&wanted)
            });
            if is_done {
                return Ok(false);
            }
        }
        let uid = object.meta().uid.as_deref();
        workload::remove_conflicting_fields::<K::Workload>(&context.client, &self.workloads, &key, uid, replicas)
            .await?;
        set.apply_or_recreate(wanted, &self.workloads).await?;
        Ok(true)
    }

    fn state(&self, workload: &Key) -> Option<State> {
        self.workloads.get(workload).map(|workload| K::Workload::state(&workload))
    }

    /// Issues certificates, unless that is skipped; returns the fingerprint for pods.
    pub(crate) async fn certificates(
        &self,
        object: &K,
        parts: &HeavenParts<'_>,
        context: &Context,
        seen: &mut Seen,
    ) -> Result<String, Error> {
        let named = &parts.certificates;
        let user = parts.user.map(|user| User { name: user.name.to_owned(), group: user.group.map(ToOwned::to_owned) });
        let stored = secrets::stored(&context.client, &self.secrets, &context.key, named.all()).await?;
        let now = self.settings.now();
        let criteria = RenewalCriteria { now, reissue_before: reissue_before(object, now)? };
        if parts.skips_certificates {
            let needed = named.all().into_iter().filter(|name| user.is_some() || *name != named.controller);
            let missing: Vec<_> = needed.filter(|name| !stored.contains_key(name)).collect();
            if !missing.is_empty() {
                let secrets = missing.iter().map(|name| format!("Secret {name:?}")).collect::<Vec<_>>().join(", ");
                let message = format!("skip.certificates is set, so you must supply {secrets}");
                seen.certificates = Some(State::new(false, "NotFound", message));
                // A pod waits for its Secrets by itself.
                return Ok(String::new());
            }
            // Treats all Secrets as user-supplied: they are only checked.
            let theirs = stored.into_iter().map(|(name, mut stored)| {
                stored.is_ours = false;
                (name, stored)
            });
            let issued = issue(named, user.as_ref(), &theirs.collect(), &criteria)
                .inspect_err(|error| seen.certificates_failed(error))?;
            seen.certificates_issued(&issued.expired);
            return Ok(issued.fingerprint);
        }
        let issued =
            issue(named, user.as_ref(), &stored, &criteria).inspect_err(|error| seen.certificates_failed(error))?;
        for wanted in &issued.secrets {
            if let Err(error) = secrets::write(&context.client, &self.secrets.ours, object, wanted).await {
                if !matches!(error, Error::Raced(_)) {
                    seen.certificates = Some(State::new(false, error.reason(), error.to_string()));
                }
                return Err(error);
            }
        }
        if is_to_be_released(object) {
            secrets::release(&context.client, &self.secrets.ours, object, &named.all()).await?;
        }
        seen.look_again = issued.look_again;
        seen.certificates_issued(&issued.expired);
        Ok(issued.fingerprint)
    }

    async fn entry_points(&self, context: &Context, map: &str, is_supplied: bool) -> Result<EntryPoints, Error> {
        let key = Key::namespaced(context.key.namespace().unwrap_or_default(), map);
        let own = Some(&**self.maps.cache());
        let found = entry_points::find(own, &self.other_maps, &context.client, &key, is_supplied).await?;
        found.ok_or_else(|| Error::Missing(format!("ConfigMap {map:?}")))
    }

    /// Whether the Git host of a heaven serves over TLS.
    async fn host(&self, parts: &HeavenParts<'_>, context: &Context) -> Result<Option<State>, Error> {
        let secret = match host::certificate(parts.gitcd) {
            Some(name) => self.secret(context, name).await?,
            None => None,
        };
        Ok(host::encrypted(parts.gitcd, secret.as_deref()))
    }
}

/// The generation of the heaven for which a workload that runs once was created.
fn generation_of(workload: &DynamicObject) -> Option<&String> {
    workload.metadata.annotations.as_ref()?.get(GENERATION)
}

/// The key of a heaven's workload.
pub(crate) fn workload_key(heaven: &Key) -> Key {
    Key::namespaced(heaven.namespace().unwrap_or_default(), &names::heaven(heaven.name()))
}

/// Whether the heaven may own Secrets that it no longer uses: not before its first reconcile, and not after a successful
/// one of its present generation, which the condition shows.
fn is_to_be_released(object: &impl HeavenKind) -> bool {
    let Some(status) = object.status() else { return false };
    let mut conditions = status.conditions.iter().filter(|condition| condition.type_ == CERTIFICATES_READY);
    !conditions.any(|condition| condition.status == "True" && condition.observed_generation == object.meta().generation)
}

fn reissue_before(object: &impl HeavenKind, now: OffsetDateTime) -> Result<Option<OffsetDateTime>, Error> {
    let annotations = object.meta().annotations.as_ref();
    let Some(value) = annotations.and_then(|annotations| annotations.get(REISSUE_BEFORE)) else { return Ok(None) };
    let wrong = |problem| Error::Annotation { name: REISSUE_BEFORE, value: value.clone(), problem };
    let time: Timestamp = value.parse().map_err(|_| wrong("is not a time; write it as 2026-01-31T12:00:00Z"))?;
    let time = OffsetDateTime::from_unix_timestamp(time.as_second())
        .map_err(|_| wrong("is not a time; write it as 2026-01-31T12:00:00Z"))?;
    // Otherwise all certificates would be reissued again and again until then.
    if time > now {
        return Err(wrong("is in the future; use a time that has passed, such as now"));
    }
    Ok(Some(time))
}

impl<K: HeavenKind> StatusReconciler for Heavens<K> {
    type Object = K;
    type Error = Error;

    async fn reconcile(
        &self,
        object: Arc<K>,
        status: &mut TrishankuHeavenStatus,
        context: Context,
    ) -> Result<(Report, Action), Error> {
        self.observer.follow(&context);
        let (parts, mut seen) = (parts_of(&*object), Seen::default());
        let result = self.converge(&object, &parts, &context, &mut seen).await;
        let host = self.host(&parts, &context).await;
        report::show(status, &parts, object.meta().generation, &seen, &host);
        result.and(host.map(drop))?;
        let until = seen.look_again.map(|time| time - self.settings.now());
        let action = until.map_or(Action::Change, |until| {
            Action::After(Duration::try_from(until).unwrap_or_default().clamp(Duration::from_secs(1), LONGEST))
        });
        Ok((report::of_applied(&parts, &seen), action))
    }

    fn finalizer(&self) -> Option<&str> {
        Some(FINALIZER)
    }

    async fn clean_up(
        &self,
        object: Arc<K>,
        _: &mut TrishankuHeavenStatus,
        context: Context,
    ) -> Result<(Report, CleanedUp), Error> {
        if let Some(why) = self.waits_for_push(&object, &context).await? {
            return Ok((Report::reconciling("WaitingForLastPush", why), CleanedUp::NotYet(LAST_PUSH)));
        }
        let key = &context.key;
        self.observer.forget(key);
        for uses in [&self.secrets_used, &self.maps_used, &self.remotes_used] {
            uses.note(key, []);
        }
        Ok((Report::unchanged(), CleanedUp::Yes))
    }

    fn conditions(&self) -> &[&str] {
        &[CERTIFICATES_READY, AVAILABLE, GIT_HOST_ENCRYPTED]
    }

    /// The observer writes the rest of the branch.
    fn keep_own(&self, status: &mut TrishankuHeavenStatus) {
        if let Some(branch) = status.branch.as_mut() {
            *branch = BranchStatus { name: std::mem::take(&mut branch.name), ..BranchStatus::default() };
        }
    }

    /// A race is resolved within moments.
    fn is_reported(&self, error: &Error) -> bool {
        !matches!(error, Error::Raced(_))
    }
}
