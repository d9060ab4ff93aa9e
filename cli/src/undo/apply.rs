//! Sends the steps of a plan to kube-apiserver.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use gitcd::merge::has_edit_of_a_person;
use gitcd::merge::schema::Schemas;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use trishanku_undo::document::{is_alike, is_same, is_terminating, over, text};
use trishanku_undo::{Action, Live, ObjectRef, Plan, Step, creation, custody, fold, owners};

use super::api::{Api, ApiError};
use super::rejection;

/// Concurrent requests.
const AT_A_TIME: usize = 8;
/// How often a write is tried again after another client changed the object.
const TRIES: usize = 20;
/// How long a definition may take until its kind is served, and an object until it is deleted.
const WITHIN: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Created,
    Updated,
    Recreated,
    Deleted,
    /// The object was already so.
    Unchanged,
}

/// The outcome of a step.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) object: ObjectRef,
    /// What was done, or why it failed.
    pub(super) result: Result<Done, String>,
    pub(super) notes: Vec<String>,
    /// The revision of the last write, if the object still exists.
    pub(super) revision: Option<i64>,
}

/// What was done, with notes, and the object as it is then; null if it is gone.
struct Written {
    done: Done,
    object: Value,
    notes: Vec<String>,
}

impl Written {
    fn new(done: Done, object: Value, notes: Vec<String>) -> Self {
        Self { done, object, notes }
    }

    fn unchanged() -> Self {
        Self::new(Done::Unchanged, Value::Null, Vec::new())
    }
}

/// Applies plans.
pub(super) struct Applier<'a> {
    pub(super) api: &'a Api,
    pub(super) schemas: &'a Schemas,
    pub(super) live: &'a Live,
    /// Whether objects with changed immutable fields are deleted and created.
    pub(super) recreate: bool,
    /// The objects that the plan deletes, each with its uid.
    pub(super) deletions: BTreeMap<ObjectRef, String>,
}

/// The uids of owners that were created again, and of those that could not be.
#[derive(Default)]
struct Uids {
    created: BTreeMap<String, String>,
    failed: BTreeSet<String>,
}

type Applied = Result<Written, String>;

impl Applier<'_> {
    /// Sends the steps, wave by wave. A failed step does not stop the others. Calls `report` for each outcome.
    pub(super) async fn apply(&self, plan: &Plan, mut report: impl FnMut(&Outcome)) -> Vec<Outcome> {
        let uids = Mutex::new(Uids::default());
        let steps: Vec<&Step> = plan.requests().collect();
        let mut outcomes = Vec::new();
        for wave in steps.chunk_by(|one, other| one.wave == other.wave) {
            let mut running =
                futures::stream::iter(wave.iter().map(|step| self.step(step, &uids))).buffer_unordered(AT_A_TIME);
            while let Some(outcome) = running.next().await {
                report(&outcome);
                outcomes.push(outcome);
            }
        }
        outcomes
    }

    async fn step(&self, step: &Step, uids: &Mutex<Uids>) -> Outcome {
        let applied = match &step.action {
            Action::Create { object } => match repointed(object, uids) {
                Ok(object) => self.create(&step.object, object).await,
                Err(reason) => Err(reason),
            },
            Action::Update { object, current } => match repointed(object, uids) {
                Ok(object) => self.updated(&step.object, &object, current, uids).await,
                Err(reason) => Err(reason),
            },
            Action::Delete { current } => self.deleted(&step.object, current).await,
            Action::Nothing(_) | Action::Left(_) | Action::Blocked(_) => Ok(Written::unchanged()),
        };
        Self::record(step, &applied, uids);
        let object = step.object.clone();
        match applied {
            Ok(Written { done, object: now, notes }) => {
                let revision = text(&now, "/metadata/resourceVersion").parse().ok();
                Outcome { object, result: Ok(done), notes, revision }
            }
            Err(reason) => Outcome { object, result: Err(reason), notes: Vec::new(), revision: None },
        }
    }

    /// Records the new uid of an object, for those that it owns.
    fn record(step: &Step, applied: &Applied, uids: &Mutex<Uids>) {
        let old = match (&step.action, applied) {
            (Action::Create { .. }, _) => step.old_uid(),
            (Action::Update { current, .. }, Ok(Written { done: Done::Recreated, .. })) => {
                Some(text(current, "/metadata/uid").to_owned())
            }
            _ => None,
        };
        let Some(old) = old else { return };
        let mut uids = uids.lock().unwrap_or_else(PoisonError::into_inner);
        match applied {
            Ok(written) => drop(uids.created.insert(old, text(&written.object, "/metadata/uid").to_owned())),
            Err(_) => drop(uids.failed.insert(old)),
        }
    }

    /// Creates an object. Gives up addresses and ports that another Service has meanwhile.
    async fn create(&self, identity: &ObjectRef, mut object: Value) -> Applied {
        let mut notes = Vec::new();
        loop {
            match self.api.create(identity, &object, false).await {
                Ok(created) => {
                    if identity.is("apiextensions.k8s.io", "CustomResourceDefinition") {
                        self.until_served(&created).await?;
                    }
                    return Ok(Written::new(Done::Created, created, notes));
                }
                Err(error) if error.is_reason("AlreadyExists") => {
                    return self.exists(identity, &object).await;
                }
                Err(error) => match rejection::without_allocation(&error, &mut object) {
                    Some(note) => notes.push(note),
                    None => return Err(rejection::explained(&error)),
                },
            }
        }
    }

    /// An object appeared meanwhile: one that controllers create in every namespace gets the planned content, any other stays.
    async fn exists(&self, identity: &ObjectRef, object: &Value) -> Applied {
        for _ in 0..TRIES {
            let Some(now) = self.get(identity).await? else { continue };
            let desired = over(&now, object);
            if is_alike(&now, &desired) {
                return Ok(Written::new(Done::Unchanged, now, Vec::new()));
            }
            if !custody::is_in_every_namespace(identity) {
                break;
            }
            match self.api.replace(identity, &desired, false).await {
                Err(error) if error.is_reason("Conflict") => {}
                replaced => {
                    let written = replaced.map(|now| Written::new(Done::Updated, now, Vec::new()));
                    return written.map_err(|error| rejection::explained(&error));
                }
            }
        }
        Err("it was created meanwhile, and stays; run this again".to_owned())
    }

    async fn get(&self, identity: &ObjectRef) -> Result<Option<Value>, String> {
        self.api.get(identity).await.map_err(|error| error.to_string())
    }

    /// Replaces an object. If it changed meanwhile, these edits are merged, and win.
    async fn updated(&self, identity: &ObjectRef, object: &Value, base: &Value, uids: &Mutex<Uids>) -> Applied {
        let (mut desired, mut stays) = (object.clone(), Vec::new());
        for _ in 0..TRIES {
            match self.api.replace(identity, &desired, false).await {
                Ok(now) => return Ok(Written::new(Done::Updated, now, stays)),
                Err(error) if error.is_reason("Conflict") => {}
                Err(error) if rejection::is_immutable(&error) => {
                    return self.recreated(identity, &desired, &error, uids).await;
                }
                Err(error) => return Err(rejection::explained(&error)),
            }
            let Some(now) = self.get(identity).await?.filter(|now| is_same(now, base)) else {
                return Err("it was deleted meanwhile, and stays deleted".to_owned());
            };
            let (merged, conflicts) = fold::three_way(self.schemas, base, &now, object);
            if is_alike(&merged, &now) {
                return Ok(Written::new(Done::Unchanged, Value::Null, stays));
            }
            stays = conflicts.iter().map(|conflict| format!("edited meanwhile: {conflict}")).collect();
            desired = merged;
        }
        Err(format!("it changed {TRIES} times meanwhile; run this again"))
    }

    async fn deleted(&self, identity: &ObjectRef, base: &Value) -> Applied {
        let mut current = base.clone();
        self.check_contents(identity, base).await?;
        for _ in 0..TRIES {
            match self.api.delete(identity, &current, false).await {
                Ok(left) => {
                    let notes = held(identity, &left);
                    // Without a finalizer, or as a Status, it is gone.
                    let is_left = text(&left, "/kind") == identity.kind && is_terminating(&left);
                    return Ok(Written::new(Done::Deleted, if is_left { left } else { Value::Null }, notes));
                }
                // Another client deleted it.
                Err(error) if error.code() == 404 => return Ok(Written::unchanged()),
                Err(error) if error.is_reason("Conflict") => {}
                Err(error) => return Err(rejection::explained(&error)),
            }
            let Some(now) = self.get(identity).await?.filter(|now| is_same(now, base)) else {
                return Ok(Written::unchanged());
            };
            let bytes = [base, &now].map(|version| version.to_string().into_bytes());
            if !is_alike(base, &now) && has_edit_of_a_person(Some(&bytes[0]), &bytes[1]) {
                return Err("it was edited meanwhile, and stays; run this again".to_owned());
            }
            current = now;
        }
        Err(format!("it changed {TRIES} times meanwhile; run this again"))
    }

    /// Checks that nothing is deleted with a Namespace or a definition but what controllers create in it. The plan has deleted the
    /// rest; other clients may have created more since it was made.
    async fn check_contents(&self, identity: &ObjectRef, container: &Value) -> Result<(), String> {
        let is_definition = identity.is("apiextensions.k8s.io", "CustomResourceDefinition");
        if !is_definition && !identity.is("", "Namespace") {
            return Ok(());
        }
        let contents = self.api.contents(container).await;
        let contents = contents.map_err(|error| format!("what it contains is not known: {error}"))?;
        let others: Vec<ObjectRef> = contents
            .iter()
            .filter(|object| !is_terminating(object) && custody::left_alone("", object).is_none())
            .filter(|object| !self.is_back(object))
            .map(|object| ObjectRef::of("", object))
            .filter(|object| !custody::is_in_every_namespace(object))
            .collect();
        match &others[..] {
            [] => Ok(()),
            [one] => Err(format!("{one} would be deleted with it; delete it first, or run this again")),
            [first, more @ ..] => Err(format!(
                "{first} and {} more would be deleted with it; delete them first, or run this again",
                more.len()
            )),
        }
    }

    /// Returns whether the plan deleted an object, and a controller created it again at once, as some do in every namespace.
    fn is_back(&self, object: &Value) -> bool {
        let uid = text(object, "/metadata/uid");
        self.deletions.get(&unversioned(&ObjectRef::of("", object))).is_some_and(|deleted| deleted != uid)
    }

    /// Deletes and creates an object whose immutable fields differ.
    async fn recreated(&self, identity: &ObjectRef, desired: &Value, error: &ApiError, uids: &Mutex<Uids>) -> Applied {
        if !self.recreate || !rejection::may_recreate(identity) {
            return Err(rejection::immutable(identity, error));
        }
        self.deleted(identity, desired).await?;
        // Until it exists again, nothing may refer to it.
        let old = text(desired, "/metadata/uid").to_owned();
        uids.lock().unwrap_or_else(PoisonError::into_inner).failed.insert(old);
        let deadline = Instant::now() + WITHIN;
        while let Some(left) = self.get(identity).await?.filter(|left| is_same(left, desired)) {
            if Instant::now() > deadline {
                return Err(format!("{}, and create it with `trishanku undelete`", fold::terminating(&left)));
            }
            sleep(LOOK_EVERY).await;
        }
        let (object, mut notes) = creation::prepared(identity, desired, &self.live.volumes);
        let created = self.create(identity, object).await;
        let written = created
            .map_err(|reason| format!("it was deleted, but not created again: {reason}; run `trishanku undelete`"))?;
        notes.extend(written.notes);
        // `record` has the new uid, which comes first.
        Ok(Written::new(Done::Recreated, written.object, notes))
    }

    /// Waits until the kind of a definition is served.
    async fn until_served(&self, definition: &Value) -> Result<(), String> {
        let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
        let versions: Vec<&str> =
            versions.filter(|one| one["served"] == true).map(|version| text(version, "/name")).collect();
        let (group, kind) = (text(definition, "/spec/group"), text(definition, "/spec/names/kind"));
        let deadline = Instant::now() + WITHIN;
        for version in versions {
            let like =
                ObjectRef { api_version: format!("{group}/{version}"), kind: kind.to_owned(), ..ObjectRef::default() };
            while !self.is_served(&like).await? {
                if Instant::now() > deadline {
                    let seconds = WITHIN.as_secs();
                    return Err(format!("its kind is not served after {seconds} seconds; look at its conditions"));
                }
                sleep(LOOK_EVERY).await;
            }
        }
        Ok(())
    }

    async fn is_served(&self, like: &ObjectRef) -> Result<bool, String> {
        let is_discovered = match self.api.serves(&like.api_version, &like.kind).await {
            // A new API is not reachable at once.
            Err(ApiError::Unavailable { .. }) => false,
            served => served.map_err(|error| error.to_string())?,
        };
        // The request handler may lag behind the discovery document.
        Ok(is_discovered && self.api.is_listed(like).await.map_err(|error| error.to_string())?)
    }
}

/// Returns the objects that a plan deletes, each with its uid.
pub(super) fn deletions(plan: &Plan) -> BTreeMap<ObjectRef, String> {
    let deleted = plan.requests().filter_map(|step| match &step.action {
        Action::Delete { current } => Some((unversioned(&step.object), text(current, "/metadata/uid").to_owned())),
        _ => None,
    });
    deleted.collect()
}

/// Returns the identity of an object without its key and the version of its kind.
fn unversioned(object: &ObjectRef) -> ObjectRef {
    ObjectRef { key: String::new(), api_version: object.group().to_owned(), ..object.clone() }
}

/// Returns the object with the new uids of its owners.
fn repointed(object: &Value, uids: &Mutex<Uids>) -> Result<Value, String> {
    let mut object = object.clone();
    let uids = uids.lock().unwrap_or_else(PoisonError::into_inner);
    match owners::repoint(&mut object, &uids.created, &uids.failed) {
        // The garbage collector would delete it.
        Some(owner) => Err(format!("its owner {owner} could not be created")),
        None => Ok(object),
    }
}

/// Notes that an object still exists, because programs clean up first.
fn held(identity: &ObjectRef, left: &Value) -> Vec<String> {
    // A response of kind Status means that it is gone.
    let is_held = text(left, "/kind") == identity.kind && is_terminating(left) && !identity.is("", "Namespace");
    let finalizers = left.pointer("/metadata/finalizers").and_then(Value::as_array).into_iter().flatten();
    let names: Vec<&str> = finalizers.filter_map(Value::as_str).collect();
    if is_held && !names.is_empty() {
        vec![format!("it is terminating until the finalizers {} are removed", names.join(", "))]
    } else {
        Vec::new()
    }
}
