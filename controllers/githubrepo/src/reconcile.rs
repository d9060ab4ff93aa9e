//! Reconciles a repository: observe, plan, apply, report.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Client as Cluster;
use parking_lot::Mutex;
use rand::Rng as _;
use serde_json::json;
use trishanku_api::{DeletionPolicy, GitHubRepository, GitHubRepositoryStatus};
use trishanku_framework::cache::{Cache, OnDemand};
use trishanku_framework::status::{READY, Report, StatusWriter, settle};
use trishanku_framework::{Action, CleanedUp, Context, Key, Kinds, Reconciler};
use trishanku_heaven_plan::uses::ReferenceIndex;

use crate::clients::Clients;
use crate::error::HIDDEN;
use crate::github::{Access, CallError, Client, Look};
use crate::repository::{Changes, Repository, changes, creation};
use crate::{Error, FINALIZER, GitHubSettings};

/// The field manager.
const MANAGER: &str = "trishanku-github";
/// The key of a Secret with the server that its token is for. gitcd uses the same key for remotes.
const FOR_SERVER: &str = "url";
/// The time of the last sync is updated no more often, unless something else has changed.
const SYNC_TIME_INTERVAL: i64 = 60 * 60;
/// How long after a creation request a new repository may be its result.
const LATE: i64 = 10 * 60;

/// Reconciler of `GitHubRepository` objects.
pub struct Repositories {
    objects: Arc<Cache<GitHubRepository>>,
    pub(crate) secrets: OnDemand<Secret>,
    secrets_used: Arc<ReferenceIndex>,
    clients: Clients,
    known: Mutex<HashMap<Key, Known>>,
    status: StatusWriter,
    settings: GitHubSettings,
}

/// The last known state of a repository, for conditional requests.
#[derive(Clone)]
struct Known {
    by: [u8; 32],
    owner: String,
    etag: Option<String>,
    repository: Arc<Repository>,
}

/// The client and owner for an object's repository.
struct Way {
    by: [u8; 32],
    client: Arc<Client>,
    organization: Option<String>,
    owner: String,
}

impl Repositories {
    /// Creates a reconciler with the caches of a manager. A change of a Secret reconciles the repositories that use it.
    pub fn new(kinds: &mut Kinds<'_>, settings: GitHubSettings) -> Self {
        let (secrets, secrets_used): (OnDemand<Secret>, Arc<ReferenceIndex>) =
            (kinds.cache_on_demand(), Arc::default());
        let users = secrets_used.clone();
        kinds.watches(secrets.metadata(), move |change| users.of(&Key::of(change.object())));
        Self {
            objects: kinds.cache(),
            secrets,
            secrets_used,
            clients: Clients::new(settings.clone()),
            known: Mutex::default(),
            status: StatusWriter::new(MANAGER),
            settings,
        }
    }

    async fn way(&self, client: &Cluster, object: &GitHubRepository, key: &Key) -> Result<Way, Error> {
        let spec = &object.spec;
        let named = &spec.credentials_secret_name;
        self.secrets_used.note(key, [named.as_str()]);
        let secret = self.secrets.get(client, &Key::namespaced(key.namespace().unwrap_or_default(), named)).await?;
        let secret = secret.ok_or_else(|| Error::Missing(format!("Secret {named:?}")))?;
        let found = |field: &str| secret.data.as_ref().and_then(|data| data.get(field));
        let value =
            |field: &str| found(field).ok_or_else(|| Error::Missing(format!("key {field:?} in Secret {named:?}")));
        let authorities = spec.credentials_secret_ca_key.as_deref().map(value).transpose()?;
        let token = value(&spec.credentials_secret_token_key)?;
        let authorities = authorities.map(|found| found.0.as_slice());
        let access = Access::new(spec.api_url.as_deref(), &token.0, authorities, &self.settings.servers)?;
        if let Some(url) = found(FOR_SERVER) {
            access.check(named, &url.0)?;
        }
        let (by, client) = self.clients.of(key, access)?;
        client.check().map_err(CallError::from)?;
        let organization = spec.organization.clone().filter(|organization| !organization.is_empty());
        let owner = match &organization {
            Some(organization) => organization.clone(),
            None => client.login().await?,
        };
        Ok(Way { by, client, organization, owner })
    }

    /// Looks up the repository; if it does not exist, returns the time of the response, by GitHub's clock.
    async fn look(&self, way: &Way, key: &Key) -> Result<Result<Arc<Repository>, Timestamp>, Error> {
        let known = self.known.lock().get(key).filter(|known| known.by == way.by && known.owner == way.owner).cloned();
        let etag = known.as_ref().and_then(|known| known.etag.as_deref());
        Ok(match (way.client.look(&way.owner, key.name(), etag).await?, known) {
            (Look::Unchanged, Some(known)) => Ok(known.repository),
            (Look::Found { repository, etag }, _) => Ok(self.learn(way, key, *repository, etag)),
            (Look::Missing { at }, _) => {
                self.known.lock().remove(key);
                Err(at.unwrap_or_else(Timestamp::now))
            }
            (Look::Unchanged, None) => {
                let problem = "status 304 without a known state".to_owned();
                return Err(
                    CallError::Nonsense { what: format!("look at {}/{}", way.owner, key.name()), problem }.into()
                );
            }
        })
    }

    fn learn(&self, way: &Way, key: &Key, repository: Repository, etag: Option<String>) -> Arc<Repository> {
        let repository = Arc::new(repository);
        let known = Known { by: way.by, owner: way.owner.clone(), etag, repository: repository.clone() };
        self.known.lock().insert(key.clone(), known);
        repository
    }

    async fn converge(
        &self,
        object: &GitHubRepository,
        context: &Context,
        status: &mut GitHubRepositoryStatus,
    ) -> Result<(), Error> {
        let (key, spec) = (&context.key, &object.spec);
        let way = self.way(&context.client, object, key).await?;
        let mut present = match self.look(&way, key).await? {
            Ok(present) => {
                is_ours(object, &way, &present)?;
                present
            }
            Err(since) => {
                let body = creation(key.name(), spec, status.private);
                // If the response gets lost, the next reconcile recognises the repository by this time. The known id
                // stays until there is a new one: GitHub returns 404 also for repositories that the token may not see.
                status.creation_started = Some(Time(since));
                let report = Report::reconciling("Creating", format!("creating {}/{}", way.owner, key.name()));
                self.write_status(&context.client, object, status.clone(), &report).await?;
                let made = way.client.create(way.organization.as_deref(), &body).await;
                if let Err(error) = &made
                    && !matches!(
                        error,
                        CallError::Unreachable { .. } | CallError::Unavailable { .. } | CallError::Nonsense { .. }
                    )
                {
                    status.creation_started = None;
                }
                let made = made.map_err(|error| match status.id {
                    Some(id) if error.is_taken() => hidden(&way, key, id),
                    _ => error.into(),
                })?;
                tracing::info!(repository = made.full_name, id = made.id, "was made");
                self.learn(&way, key, made, None)
            }
        };
        status.creation_started = None;
        observed(status, &present);
        let changes = changes(key.name(), spec, &present)
            .map_err(|fields| Error::Archived { name: present.full_name.clone(), fields: fields.join(", ") })?;
        if changes.is_empty() {
            return Ok(());
        }
        let done = self.apply(&way, key, changes, &mut present).await;
        observed(status, &present);
        done
    }

    async fn apply(&self, way: &Way, key: &Key, changes: Changes, present: &mut Arc<Repository>) -> Result<(), Error> {
        let change = async |present: &mut Arc<Repository>, body: serde_json::Value| {
            let answer = way.client.change(&present.full_name, &body).await?;
            tracing::info!(repository = answer.full_name, fields = %body, "was changed");
            *present = self.learn(way, key, answer, None);
            Ok::<_, Error>(())
        };
        if changes.unarchive {
            change(present, json!({"archived": false})).await?;
        }
        if let Some(topics) = changes.topics {
            way.client.set_topics(&present.full_name, &topics).await?;
            tracing::info!(repository = present.full_name, ?topics, "was changed");
            let with_topics = Repository { topics, ..Repository::clone(present) };
            *present = self.learn(way, key, with_topics, None);
        }
        if !changes.fields.is_empty() {
            change(present, changes.fields.into()).await?;
        }
        if let Some(branch) = changes.default_branch {
            if !way.client.has_branch(&present.full_name, &branch).await? {
                // Archiving must wait too, since it makes the repository read-only.
                return Err(Error::NoBranch { branch, look_again: self.settings.resync });
            }
            change(present, json!({"default_branch": branch})).await?;
        }
        if changes.archive {
            change(present, json!({"archived": true})).await?;
        }
        Ok(())
    }

    async fn end(&self, object: &GitHubRepository, context: &Context) -> Result<(), Error> {
        let key = &context.key;
        let policy = object.spec.deletion_policy.unwrap_or_default();
        // A repository that was neither created nor adopted stays, unless a creation request got no response.
        let (id, started) =
            object.status.as_ref().map_or((None, None), |status| (status.id, status.creation_started.clone()));
        if policy == DeletionPolicy::Retain || id.is_none() && started.is_none() {
            return Ok(());
        }
        let way = self.way(&context.client, object, key).await?;
        let Ok(present) = self.look(&way, key).await? else {
            // It is gone, unless it was found to exist without being visible.
            return id.filter(|_| was_hidden(object)).map_or(Ok(()), |id| Err(hidden(&way, key, id)));
        };
        if id != Some(present.id) && !(is_named(&present, key.name()) && was_started(started.as_ref(), &present)) {
            tracing::warn!(repository = present.full_name, "not the repository of this object; left unchanged");
            return Ok(());
        }
        match policy {
            DeletionPolicy::Archive if !present.archived => {
                way.client.change(&present.full_name, &json!({"archived": true})).await?;
                tracing::info!(repository = present.full_name, "archived");
            }
            DeletionPolicy::Delete => {
                way.client.delete(&present.full_name).await?;
                tracing::info!(repository = present.full_name, id = present.id, "deleted");
            }
            DeletionPolicy::Archive | DeletionPolicy::Retain => {}
        }
        Ok(())
    }

    async fn write_status(
        &self,
        client: &Cluster,
        object: &GitHubRepository,
        status: GitHubRepositoryStatus,
        report: &Report,
    ) -> kube::Result<bool> {
        // The cache may have a newer status than `object`.
        let last = self.objects.get(&Key::of(object)).filter(|last| last.metadata.uid == object.metadata.uid);
        let before = last.as_deref().unwrap_or(object).status.as_ref();
        self.status.write(client, &self.objects, object, before, status, report).await
    }

    /// A random interval, which spreads requests.
    fn resync(&self) -> Duration {
        self.settings.resync.mul_f64(rand::rng().random_range(0.8..1.2))
    }
}

/// Checks whether a repository with the right name may be changed.
fn is_ours(object: &GitHubRepository, way: &Way, present: &Repository) -> Result<(), Error> {
    let status = object.status.as_ref();
    if !present.owner.login.eq_ignore_ascii_case(&way.owner) {
        return Err(Error::Moved(present.full_name.clone()));
    }
    let known = status.and_then(|status| status.id);
    if known == Some(present.id) {
        return Ok(());
    }
    let name = object.metadata.name.as_deref().unwrap_or_default();
    if known.is_none() && !is_named(present, name) {
        return Err(Error::Renamed { name: format!("{}/{name}", way.owner), found: present.full_name.clone() });
    }
    let is_answer = was_started(status.and_then(|status| status.creation_started.as_ref()), present);
    match known {
        _ if is_answer && is_named(present, name) => Ok(()),
        Some(known) => Err(Error::Replaced { name: present.full_name.clone(), found: present.id, known }),
        None if object.spec.adopt == Some(true) => Ok(()),
        None => Err(Error::Exists(present.full_name.clone())),
    }
}

/// Whether it has the requested name, and is not the target of a redirect from a former name.
fn is_named(present: &Repository, name: &str) -> bool {
    present.name.eq_ignore_ascii_case(name)
}

fn hidden(way: &Way, key: &Key, id: i64) -> Error {
    Error::Hidden { name: format!("{}/{}", way.owner, key.name()), id }
}

/// Whether the last reconcile found that it exists without being visible.
fn was_hidden(object: &GitHubRepository) -> bool {
    let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|condition| condition.type_ == READY && condition.reason == HIDDEN)
}

/// Whether it is the result of a creation request whose response got lost.
fn was_started(started: Option<&Time>, present: &Repository) -> bool {
    started.is_some_and(|Time(started)| (-1..=LATE).contains(&(present.created_at.as_second() - started.as_second())))
}

fn observed(status: &mut GitHubRepositoryStatus, present: &Repository) {
    status.id = Some(present.id);
    status.full_name = Some(present.full_name.clone());
    status.html_url = Some(present.html_url.clone());
    status.clone_url = Some(present.clone_url.clone());
    status.default_branch = Some(present.default_branch.clone());
    status.private = Some(present.private);
}

/// Whether the present generation was ready at the last reconcile.
fn was_ready(object: &GitHubRepository) -> bool {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions
        .filter(|condition| condition.type_ == READY)
        .any(|condition| condition.status == "True" && condition.observed_generation == object.metadata.generation)
}

/// Sets the time of the last sync: now, if anything has changed or the last one is old.
fn synced(object: &GitHubRepository, status: &mut GitHubRepositoryStatus, now: Timestamp) {
    let mut before = object.status.clone().unwrap_or_default();
    let last_sync = before.last_sync_time.take();
    status.last_sync_time = None;
    let is_recent =
        last_sync.as_ref().is_some_and(|Time(last)| now.as_second() - last.as_second() < SYNC_TIME_INTERVAL);
    let is_news = before != *status || !was_ready(object);
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    status.last_sync_time = if is_news || !is_recent { Some(Time(now)) } else { last_sync };
}

/// A limit of requests is kept even if the status cannot be written.
fn warn_of_status(key: &Key, written: kube::Result<bool>) {
    if let Err(error) = written {
        tracing::warn!(object = %key, %error, "cannot write the status");
    }
}

impl Reconciler for Repositories {
    type Object = GitHubRepository;
    type Error = Error;

    async fn reconcile(&self, object: Arc<GitHubRepository>, context: Context) -> Result<Action, Error> {
        let mut status = object.status.clone().unwrap_or_default();
        let result = self.converge(&object, &context, &mut status).await;
        let limited = match &result {
            Err(Error::Call(CallError::Limited(limited))) => Some(limited.wait),
            _ => None,
        };
        // While requests are limited, a ready repository keeps its condition.
        let written = if limited.is_none() || !was_ready(&object) {
            if result.is_ok() {
                synced(&object, &mut status, Timestamp::now());
            }
            self.write_status(&context.client, &object, status, &Report::of(&result)).await
        } else {
            Ok(false)
        };
        if let Some(wait) = limited {
            warn_of_status(&context.key, written);
            // Spread, since all objects with the token wait for the same moment.
            return Ok(Action::After(
                wait + wait.min(Duration::from_mins(1)).mul_f64(rand::rng().random_range(0.0..1.0)),
            ));
        }
        settle(&context.key, result, written)?;
        Ok(Action::After(self.resync()))
    }

    fn finalizer(&self) -> Option<&str> {
        Some(FINALIZER)
    }

    async fn clean_up(&self, object: Arc<GitHubRepository>, context: Context) -> Result<CleanedUp, Error> {
        let result = self.end(&object, &context).await;
        let written = if result.is_err() {
            let status = object.status.clone().unwrap_or_default();
            self.write_status(&context.client, &object, status, &Report::of(&result)).await
        } else {
            Ok(false)
        };
        if let Err(Error::Call(CallError::Limited(limited))) = &result {
            warn_of_status(&context.key, written);
            return Ok(CleanedUp::NotYet(limited.wait));
        }
        settle(&context.key, result, written)?;
        self.clients.forget(&context.key);
        self.known.lock().remove(&context.key);
        self.secrets_used.note(&context.key, []);
        Ok(CleanedUp::Yes)
    }
}
