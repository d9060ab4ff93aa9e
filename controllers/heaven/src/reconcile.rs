//! Reconciles a heaven: observe, plan, apply, report.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service};
use k8s_openapi::jiff::Timestamp;
use kube::core::DynamicObject;
use time::OffsetDateTime;
use trishanku_api::{
    AVAILABLE, BranchStatus, CERTIFICATES_READY, GIT_HOST_ENCRYPTED, GitHubRepository, TrishankuHeaven,
    TrishankuHeavenStatus,
};
use trishanku_branch_status::Observer;
use trishanku_framework::apply::{Owned, PART_OF};
use trishanku_framework::cache::{Cache, OnDemand};
use trishanku_framework::status::Report;
use trishanku_framework::{Action, CleanedUp, Context, Failure as _, Key, Kinds, StatusReconciler};
use trishanku_heaven_plan::exposure::Leak;
use trishanku_heaven_plan::own_namespace::OwnNamespace;
use trishanku_heaven_plan::plan::{EntryPoints, Images, Place, heaven, host_port, show};
use trishanku_heaven_plan::uses::ReferenceIndex;
use trishanku_heaven_plan::workload::{self, HEAVEN, State};
use trishanku_heaven_plan::{STATUS_PORT, credentials, encryption, exposure, names, objects, pod};

use crate::certificates::{Terms, User, issue};
use crate::secrets::Secrets;
use crate::shows::HeavenStatusSource;
use crate::{Clock, Error, FINALIZER, FINGERPRINT, REISSUE_BEFORE, host, secrets};

/// The longest delay before the next reconcile: timers must not be as long as a certificate's lifetime.
const LONGEST: Duration = Duration::from_hours(10);
/// Poll interval for the last push.
const LAST_PUSH: Duration = Duration::from_secs(3);

/// Reconciler of `TrishankuHeaven` objects.
pub struct Heavens {
    pub(crate) secrets: Secrets,
    maps: Owned<ConfigMap>,
    other_maps: OnDemand<ConfigMap>,
    pub(crate) claims: Owned<PersistentVolumeClaim>,
    services: Owned<Service>,
    pub(crate) deployments: Owned<DynamicObject>,
    secrets_used: Arc<ReferenceIndex>,
    maps_used: Arc<ReferenceIndex>,
    repositories: Arc<Cache<GitHubRepository>>,
    remotes_used: Arc<ReferenceIndex>,
    pub(crate) observer: Observer<HeavenStatusSource>,
    images: Images,
    own_namespace: OwnNamespace,
    pub(crate) clock: Clock,
}

/// Results along the way, which are reported even if a later step fails.
#[derive(Default)]
pub(crate) struct Seen {
    certificates: Option<State>,
    available: Option<State>,
    look_again: Option<OffsetDateTime>,
}

impl Heavens {
    /// Creates a reconciler with the kinds that heavens own and refer to.
    pub fn new(kinds: &mut Kinds<'_>, images: Images, own_namespace: OwnNamespace, clock: Clock) -> Self {
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
        let shown = HeavenStatusSource { secrets: secrets.clone() };
        Self {
            observer: Observer::new(shown, kinds.cache(), &kinds.cache_selecting(HEAVEN)),
            claims: kinds.owned(),
            services: kinds.owned(),
            deployments: kinds.owned_of(&workload::kind(), None),
            secrets,
            maps,
            other_maps,
            secrets_used,
            maps_used,
            repositories,
            remotes_used,
            images,
            own_namespace,
            clock,
        }
    }

    /// Rejects unencrypted Secrets on branches that are not known to be private.
    async fn keep_secrets(&self, object: &TrishankuHeaven, context: &Context) -> Result<(), Error> {
        let key = &context.key;
        let remotes = exposure::remotes(object.spec.gitcd.as_ref());
        self.remotes_used.note(key, remotes.iter().map(String::as_str));
        if remotes.is_empty() {
            return Ok(());
        }
        let keys = self.repositories.keys().into_iter().filter(|found| found.namespace() == key.namespace());
        let repositories: Vec<_> = keys.filter_map(|found| self.repositories.get(&found)).collect();
        let repositories: Vec<_> = repositories.iter().map(AsRef::as_ref).collect();
        let apiserver = object.spec.apiserver.as_ref();
        let configuration = match encryption::secret(apiserver) {
            Some(name) => self.encryption_configuration(context, name).await?,
            None => None,
        };
        let encryption = encryption::of(apiserver, configuration.as_deref());
        match exposure::of_heaven(&object.spec, &repositories, encryption) {
            None => Ok(()),
            Some(Leak::Public(how)) => Err(Error::Public(how)),
            Some(Leak::Undeclared(what)) => Err(Error::Undeclared(what)),
            Some(Leak::Unknown(what)) => Err(Error::NotKnownPublic(what)),
        }
    }

    /// Returns the encryption configuration in a Secret beside a heaven: an empty one if the Secret lacks the key.
    async fn encryption_configuration(&self, context: &Context, secret: &str) -> Result<Option<Vec<u8>>, Error> {
        let Some(secret) = self.secret(context, secret).await? else { return Ok(None) };
        let file = secret.data.as_ref().and_then(|data| data.get(encryption::FILE));
        Ok(Some(file.map_or(Vec::new(), |file| file.0.clone())))
    }

    /// Returns whether a running heaven has to stop, because its Secrets must not be stored as they would be.
    async fn must_rest(
        &self,
        object: &TrishankuHeaven,
        context: &Context,
        kept: &Result<(), Error>,
        running: Option<&str>,
    ) -> Result<bool, Error> {
        Ok(match kept {
            // Data that was pushed is public already, but no more must follow.
            Err(Error::Public(_)) => true,
            // The Deployment stays as it is, so a configuration that the manifest no longer names is still in use. But
            // kube-apiserver reloads its content, and a changed one may no longer encrypt.
            Err(Error::Undeclared(_) | Error::NotKnownPublic(_)) => {
                if object.spec.suspend == Some(true) {
                    return Ok(true);
                }
                let in_use = match running {
                    Some(secret) => self.encryption_configuration(context, secret).await?,
                    None => None,
                };
                in_use.is_some_and(|in_use| encryption::problem(&in_use).is_some())
            }
            // Suspended heavens stay scaled down after any error.
            Err(_) => object.spec.suspend == Some(true),
            Ok(()) => false,
        })
    }

    /// A Secret of the namespace.
    async fn secret(&self, context: &Context, name: &str) -> Result<Option<Arc<Secret>>, Error> {
        let key = Key::namespaced(context.key.namespace().unwrap_or_default(), name);
        Ok(self.secrets.get(&context.client, &key).await?)
    }

    async fn converge(&self, object: &TrishankuHeaven, context: &Context, seen: &mut Seen) -> Result<(), Error> {
        self.own_namespace.check(&context.key)?;
        let (name, spec) = (context.key.name(), &object.spec);
        let skip = spec.skip.clone().unwrap_or_default();
        let [skips_certificates, skips_entry_points, skips_app] =
            [skip.certificates, skip.entrypoints, skip.app].map(Option::unwrap_or_default);
        let named = names::Certificates::of(name, spec);
        let map = names::entry_points_of_heaven(name, spec);
        let deployed = Key::namespaced(context.key.namespace().unwrap_or_default(), &names::heaven(name));
        let running = self.deployments.get(&deployed).and_then(|deployment| workload::encryption_secret(&deployment));
        let used = named.all().into_iter().chain(encryption::secret(spec.apiserver.as_ref()));
        let gitcd = spec.gitcd.as_ref();
        let git_credentials = gitcd.and_then(|gitcd| gitcd.credentials_secret_name.as_deref());
        let used = used.chain(running.as_deref()).chain(git_credentials).chain(host::certificate(gitcd));
        self.secrets_used.note(&context.key, used);
        self.maps_used.note(&context.key, [map.as_str()]);

        let fingerprint = self.certificates(object, &named, skips_certificates, context, seen).await?;

        let mut set = context.apply_set(object);
        if !skips_entry_points {
            set.apply(objects::entry_points(map.clone()), &self.maps).await?;
        }
        set.prune(&self.maps).await?;
        if !skips_app {
            let kept = self.keep_secrets(object, context).await;
            if self.must_rest(object, context, &kept, running.as_deref()).await? {
                workload::rest(&context.client, &self.deployments, &deployed, object.metadata.uid.as_deref()).await?;
                seen.available = self.deployments.get(&deployed).map(|deployment| workload::available(&deployment));
            }
            kept?;
            let secret = match git_credentials {
                Some(name) => self.secret(context, name).await?,
                None => None,
            };
            credentials::check_encryption(gitcd, secret.as_deref())?;
            let app = spec.app.as_ref().ok_or(Error::Field("app, or skip.app,"))?;
            if let Some(claim) = objects::claim(name, spec.gitcd.as_ref()) {
                set.apply(claim, &self.claims).await?;
            }
            if let Some(service) = objects::host_service(name, spec.gitcd.as_ref())? {
                set.apply(service, &self.services).await?;
            }
            let entry_points = self.entry_points(context, &map, skips_entry_points).await?;
            let place = Place::pod().with_ports(pod::ports(&app.pod_template, host_port(spec)?)?);
            let mut plan = heaven(name, spec, &self.images, &place, &entry_points)?;
            let ports = place.ports;
            let taken = [ports.gitcd, ports.events, ports.events_peers, ports.apiserver];
            let taken: Vec<u16> = taken.into_iter().chain(host_port(spec)?).collect();
            let status_port = pod::status_port(&app.pod_template, &taken)?;
            show(&mut plan, &place, status_port, &named.kubernetes);
            let template = pod::render(&plan, &app.pod_template)?;
            let replicas = if spec.suspend == Some(true) { 0 } else { app.replicas.unwrap_or(1) };
            let status_port = status_port.to_string();
            let annotations = [(FINGERPRINT, fingerprint.as_str()), (STATUS_PORT, status_port.as_str())];
            let deployment =
                workload::deployment(&names::heaven(name), (HEAVEN, name), replicas, template, &annotations);
            workload::straighten(&context.client, &self.deployments, &deployed, object.metadata.uid.as_deref()).await?;
            set.apply_or_recreate(deployment, &self.deployments).await?;
        }
        // Claims are never pruned: their data may exist nowhere else.
        set.prune(&self.services).await?;
        set.prune(&self.deployments).await?;
        if !skips_app {
            seen.available = self.deployments.get(&deployed).map(|deployment| workload::available(&deployment));
        }
        Ok(())
    }

    /// Issues certificates, unless that is skipped; returns the fingerprint for pods.
    pub(crate) async fn certificates(
        &self,
        object: &TrishankuHeaven,
        named: &names::Certificates,
        are_skipped: bool,
        context: &Context,
        seen: &mut Seen,
    ) -> Result<String, Error> {
        let user = object.spec.certificates.as_ref().and_then(|given| given.controller.as_ref());
        let user = user.map(|given| User { name: given.user_name.clone(), group: given.group_name.clone() });
        let stored = secrets::stored(&context.client, &self.secrets, &context.key, named.all()).await?;
        let terms = Terms { now: (self.clock)(), reissue_before: reissue_before(object, (self.clock)())? };
        if are_skipped {
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
            let issued =
                issue(named, user.as_ref(), &theirs.collect(), &terms).inspect_err(|error| failed(seen, error))?;
            seen.certificates = Some(supplied(&issued.expired));
            return Ok(issued.fingerprint);
        }
        let issued = issue(named, user.as_ref(), &stored, &terms).inspect_err(|error| failed(seen, error))?;
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
        seen.certificates = Some(supplied(&issued.expired));
        Ok(issued.fingerprint)
    }

    async fn entry_points(&self, context: &Context, map: &str, must_be_there: bool) -> Result<EntryPoints, Error> {
        let key = Key::namespaced(context.key.namespace().unwrap_or_default(), map);
        let found = match self.maps.get(&key) {
            Some(map) => Some(map),
            None => self.other_maps.get(&context.client, &key).await?,
        };
        match found {
            Some(map) => Ok(EntryPoints::of(map.data.iter().flatten().map(|(key, _)| key.as_str()))),
            None if must_be_there => Err(Error::Missing(format!("ConfigMap {map:?}"))),
            // It was created a moment ago.
            None => Ok(EntryPoints { git_pre: false, gitcd_config: true }),
        }
    }

    /// Whether the Git host of a heaven serves over TLS.
    async fn host(&self, object: &TrishankuHeaven, context: &Context) -> Result<Option<State>, Error> {
        let gitcd = object.spec.gitcd.as_ref();
        let secret = match host::certificate(gitcd) {
            Some(name) => self.secret(context, name).await?,
            None => None,
        };
        Ok(host::encrypted(gitcd, secret.as_deref()))
    }

    fn show(
        status: &mut TrishankuHeavenStatus,
        object: &TrishankuHeaven,
        seen: &Seen,
        host: &Result<Option<State>, Error>,
    ) {
        let generation = object.metadata.generation;
        if seen.certificates.is_some() {
            workload::set(&mut status.conditions, CERTIFICATES_READY, seen.certificates.as_ref(), generation);
        }
        let skips_app = object.spec.skip.as_ref().and_then(|skip| skip.app).unwrap_or_default();
        // If its Secret cannot be read, the condition stays as it is.
        if let Ok(host) = host {
            let host = host.as_ref().filter(|_| !skips_app);
            workload::set(&mut status.conditions, GIT_HOST_ENCRYPTED, host, generation);
        }
        if seen.available.is_some() || skips_app {
            workload::set(&mut status.conditions, AVAILABLE, seen.available.as_ref(), generation);
        }
        let git = object.spec.gitcd.as_ref().and_then(|gitcd| gitcd.git.as_ref());
        let data = git.and_then(|git| git.branches.as_ref()).and_then(|branches| branches.data.clone());
        let branch = BranchStatus { name: data.unwrap_or_else(|| "main".to_owned()), ..BranchStatus::default() };
        status.branch = (!skips_app).then_some(branch);
    }
}

/// Whether the heaven may own Secrets that it no longer uses: not before its first reconcile, and not after a successful
/// one of its present generation, which the condition shows.
fn is_to_be_released(object: &TrishankuHeaven) -> bool {
    let Some(status) = &object.status else { return false };
    let mut conditions = status.conditions.iter().filter(|condition| condition.type_ == CERTIFICATES_READY);
    !conditions
        .any(|condition| condition.status == "True" && condition.observed_generation == object.metadata.generation)
}

/// The condition of user-supplied certificates: false if some have expired.
fn supplied(expired: &[String]) -> State {
    if expired.is_empty() {
        return State::new(true, "Valid", "");
    }
    let message = format!("user-supplied Secrets have expired certificates; replace them: {}", expired.join(", "));
    State::new(false, "Expired", message)
}

fn failed(seen: &mut Seen, error: &crate::certificates::IssueError) {
    let reason = match error {
        crate::certificates::IssueError::Authority { .. } => "CertificateAuthorityUnusable",
        crate::certificates::IssueError::Incomplete { .. } => "SecretIncomplete",
        _ => "CertificatesFailed",
    };
    seen.certificates = Some(State::new(false, reason, error.to_string()));
}

fn reissue_before(object: &TrishankuHeaven, now: OffsetDateTime) -> Result<Option<OffsetDateTime>, Error> {
    let annotations = object.metadata.annotations.as_ref();
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

/// The conditions of a heaven that was applied.
fn report(object: &TrishankuHeaven, seen: &Seen) -> Report {
    let spec = &object.spec;
    if spec.suspend == Some(true) {
        return Report::stalled(
            "Suspended",
            spec.suspend_reason.clone().unwrap_or_else(|| "spec.suspend is set".to_owned()),
        )
        .warns(false);
    }
    match [&seen.certificates, &seen.available].into_iter().flatten().find(|state| !state.is) {
        // A rollout is nothing wrong. A Secret that is missing or has expired is, and so is a rollout that is stuck.
        Some(state) => {
            let warns = seen.certificates.as_ref().is_some_and(|certificates| !certificates.is) || state.is_stuck();
            Report::reconciling(state.reason.clone(), state.message.clone()).warns(warns)
        }
        None if seen.available.is_none() && !spec.skip.as_ref().and_then(|skip| skip.app).unwrap_or_default() => {
            Report::reconciling("Applied", "the Deployment was just created")
        }
        None => Report::ready("Succeeded", ""),
    }
}

impl StatusReconciler for Heavens {
    type Object = TrishankuHeaven;
    type Error = Error;

    async fn reconcile(
        &self,
        object: Arc<TrishankuHeaven>,
        status: &mut TrishankuHeavenStatus,
        context: Context,
    ) -> Result<(Report, Action), Error> {
        self.observer.follow(&context);
        let mut seen = Seen::default();
        let result = self.converge(&object, &context, &mut seen).await;
        let host = self.host(&object, &context).await;
        Self::show(status, &object, &seen, &host);
        result.and(host.map(drop))?;
        let until = seen.look_again.map(|time| time - (self.clock)());
        let action = until.map_or(Action::Change, |until| {
            Action::After(Duration::try_from(until).unwrap_or_default().clamp(Duration::from_secs(1), LONGEST))
        });
        Ok((report(&object, &seen), action))
    }

    fn finalizer(&self) -> Option<&str> {
        Some(FINALIZER)
    }

    async fn clean_up(
        &self,
        object: Arc<TrishankuHeaven>,
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
