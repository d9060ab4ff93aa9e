//! Reads what exists now, for the plan.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;
use trishanku_undo::document::text;
use trishanku_undo::owners::{self, OwnerId};
use trishanku_undo::{Live, ObjectRef, Subject, custody};

use super::api::{Api, ApiError};
use super::branch::Branch;
use super::gather::Found;
use super::scope::Scope;

/// Concurrent requests.
const AT_A_TIME: usize = 16;
/// From so many objects of a kind in a namespace on, they are listed.
const LISTED_FROM: usize = 16;

/// Returns the subjects of a plan, and what else it must know.
pub(super) async fn subjects(api: &Api, branch: &Branch, found: Found) -> anyhow::Result<(Vec<Subject>, Live)> {
    let found = found.into_iter().filter(|(key, _)| !custody::is_internal(key));
    let mut subjects: Vec<Subject> = found
        .map(|(key, changes)| match changes {
            Ok(changes) => Subject { key, changes, ..Subject::default() },
            Err(problem) => Subject { key, problem: Some(problem), ..Subject::default() },
        })
        .collect();
    check_kinds(api, &mut subjects).await?;
    current(api, &mut subjects).await?;
    for subject in &mut subjects {
        if let Some(container) = created_container(subject) {
            // Before anything is changed: the deletion of a Namespace is one of the last steps.
            subject.unlisted = api.check_contents(container).await.err().map(|error| error.to_string());
            subject.contents = contents(branch, subject)?;
        }
    }
    let live = live(api, &subjects).await?;
    Ok((subjects, live))
}

/// Returns whether a plan may write the object.
fn is_wanted(subject: &Subject) -> bool {
    let object = subject.object();
    subject.problem.is_none() && object.is_some_and(|object| custody::left_alone(&subject.key, object).is_none())
}

/// Marks subjects whose kind is neither served in the version in which they are stored, nor defined by another subject.
async fn check_kinds(api: &Api, subjects: &mut [Subject]) -> Result<(), ApiError> {
    let definitions = subjects
        .iter()
        .filter_map(Subject::object)
        .filter(|object| text(object, "/kind") == "CustomResourceDefinition");
    let defined: BTreeSet<(String, String)> = definitions
        .map(|object| (text(object, "/spec/group").to_owned(), text(object, "/spec/names/kind").to_owned()))
        .collect();
    let mut served: HashMap<(String, String), Result<bool, String>> = HashMap::new();
    for subject in subjects {
        if !is_wanted(subject) {
            continue;
        }
        let identity = subject.identity();
        let kind = (identity.api_version.clone(), identity.kind.clone());
        if !served.contains_key(&kind) {
            let is_served = match api.serves(&identity.api_version, &identity.kind).await {
                Err(error @ ApiError::Unavailable { .. }) => Err(error.to_string()),
                is_served => Ok(is_served?),
            };
            served.insert(kind.clone(), is_served);
        }
        let is_served = match &served[&kind] {
            Ok(is_served) => *is_served,
            Err(reason) => {
                subject.problem = Some(reason.clone());
                continue;
            }
        };
        if !is_served && !defined.contains(&(identity.group().to_owned(), identity.kind.clone())) {
            let ObjectRef { api_version, kind, .. } = &identity;
            subject.problem = Some(format!(
                "kube-apiserver does not serve {kind} of {api_version}, in which it is stored; if its \
                 CustomResourceDefinition was deleted, undelete that first"
            ));
        }
    }
    Ok(())
}

/// Reads the current state of each subject.
async fn current(api: &Api, subjects: &mut [Subject]) -> Result<(), ApiError> {
    let mut groups: BTreeMap<ObjectRef, Vec<ObjectRef>> = BTreeMap::new();
    for identity in subjects.iter().filter(|subject| is_wanted(subject)).map(Subject::identity) {
        let like = ObjectRef { key: String::new(), name: String::new(), ..identity.clone() };
        groups.entry(like).or_default().push(identity);
    }
    let (mut singles, mut lists) = (Vec::new(), Vec::new());
    for (like, identities) in groups {
        if identities.len() < LISTED_FROM {
            singles.extend(identities);
        } else {
            lists.push((like, identities));
        }
    }
    let mut read: HashMap<String, Value> = HashMap::new();
    let mut problems: HashMap<String, String> = HashMap::new();
    for (like, identities) in lists {
        match api.list(&like).await {
            Err(error @ ApiError::Unavailable { .. }) => {
                problems.extend(identities.into_iter().map(|identity| (identity.key, error.to_string())));
            }
            all => {
                let mut all = all?;
                let found = |identity: ObjectRef| Some((identity.key, all.remove(&identity.name)?));
                read.extend(identities.into_iter().filter_map(found));
            }
        }
    }
    let each = singles.into_iter().map(async |identity| (api.get(&identity).await, identity.key));
    let mut each = futures::stream::iter(each).buffer_unordered(AT_A_TIME);
    while let Some((value, key)) = each.next().await {
        match value {
            Err(error @ ApiError::Unavailable { .. }) => drop(problems.insert(key, error.to_string())),
            value => read.extend(value?.map(|value| (key, value))),
        }
    }
    for subject in subjects {
        subject.current = read.remove(&subject.key);
        subject.problem = subject.problem.take().or(problems.remove(&subject.key));
    }
    Ok(())
}

/// Returns the object as it is now, if it is a Namespace or a `CustomResourceDefinition` whose creation is reverted.
fn created_container(subject: &Subject) -> Option<&Value> {
    let is_created_by_change = subject.changes.last().is_some_and(|change| change.before.is_none());
    let identity = subject.identity();
    let is_container = identity.is("", "Namespace") || identity.is("apiextensions.k8s.io", "CustomResourceDefinition");
    subject.current.as_ref().filter(|_| is_created_by_change && is_container)
}

/// Returns the keys of what would be deleted with a Namespace or a `CustomResourceDefinition`, except for what controllers create
/// in every namespace.
fn contents(branch: &Branch, subject: &Subject) -> anyhow::Result<Vec<String>> {
    let identity = subject.identity();
    let name = &identity.name;
    if identity.is("apiextensions.k8s.io", "CustomResourceDefinition") {
        let Some((plural, group)) = name.split_once('.') else { return Ok(Vec::new()) };
        let prefix = format!("{group}/{plural}/");
        return Ok(branch.keys(|key| key.starts_with(&prefix))?);
    }
    let usual = [format!("serviceaccounts/{name}/default"), format!("configmaps/{name}/kube-root-ca.crt")];
    let scope = Scope::Namespace(name.clone());
    let mut found = Vec::new();
    for key in
        branch.keys(|key| scope.may_have(key) && !key.starts_with("namespaces/") && !usual.contains(&key.to_owned()))?
    {
        let is_content = match branch.object(&key)? {
            Some(object) => {
                text(&object, "/metadata/namespace") == name && custody::left_alone(&key, &object).is_none()
            }
            // It is encrypted, or stored as protobuf.
            None => true,
        };
        if is_content {
            found.push(key);
        }
    }
    Ok(found)
}

/// Reads which owners and volumes exist.
async fn live(api: &Api, subjects: &[Subject]) -> Result<Live, ApiError> {
    let objects = || subjects.iter().filter(|subject| is_wanted(subject)).filter_map(Subject::object);
    let wanted = subjects.iter().filter(|subject| is_wanted(subject));
    let ids: BTreeSet<OwnerId> = wanted.flat_map(Subject::versions).flat_map(owners::of).map(|(id, _)| id).collect();
    let owner = async |id: OwnerId| {
        let identity = ObjectRef {
            key: String::new(),
            api_version: id.api_version.clone(),
            kind: id.kind.clone(),
            namespace: Some(id.namespace.clone()).filter(|name| !name.is_empty()),
            name: id.name.clone(),
        };
        (api.get(&identity).await, id)
    };
    let mut asked = futures::stream::iter(ids.into_iter().map(owner)).buffer_unordered(AT_A_TIME);
    let (mut owners, mut unknown) = (BTreeMap::new(), BTreeMap::new());
    while let Some((found, id)) = asked.next().await {
        match found {
            // Other objects do not need it.
            Err(error @ (ApiError::Unavailable { .. } | ApiError::Rejected { .. })) => {
                unknown.insert(id, error.to_string());
            }
            found => owners.extend(found?.map(|found| (id, text(&found, "/metadata/uid").to_owned()))),
        }
    }
    let names: BTreeSet<String> = objects().map(|object| text(object, "/spec/volumeName").to_owned()).collect();
    let volume = async |name: String| {
        let (api_version, kind) = ("v1".to_owned(), "PersistentVolume".to_owned());
        let identity = ObjectRef { api_version, kind, name, ..ObjectRef::default() };
        Ok(api.get(&identity).await?.map(|_| identity.name))
    };
    let names = names.into_iter().filter(|name| !name.is_empty());
    let volumes: Vec<Option<String>> =
        futures::stream::iter(names.map(volume)).buffer_unordered(AT_A_TIME).try_collect().await?;
    Ok(Live { owners, unknown, volumes: volumes.into_iter().flatten().collect() })
}
