//! What the garbage collector deletes with an object because nothing else owns it.

use std::collections::{BTreeMap, BTreeSet};

use trishanku_undo::document::text;
use trishanku_undo::{Change, ObjectRef, Plan, Step, custody, owners};

use super::branch::Branch;
use super::scope::Scope;

/// Most objects in a note.
const SHOWN: usize = 5;

/// Adds to each of these steps, which delete their objects, the others that are deleted with it and that no step deletes. What
/// controllers made for the object is left out: it belongs to the object.
///
/// Reads all objects in the namespaces of the objects; for an object in no namespace, all of the branch.
pub(super) fn add(branch: &Branch, plan: &mut Plan, is_deleted: impl Fn(&Step) -> bool) -> anyhow::Result<()> {
    let (mut deleted, mut scopes, mut keys) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    for (at, step) in plan.steps.iter().enumerate().filter(|(_, step)| is_deleted(step)) {
        let Some(object) = step.target() else { continue };
        deleted.insert(text(object, "/metadata/uid").to_owned(), at);
        let namespace = step.object.namespace.clone();
        scopes.entry(namespace.clone()).or_insert_with(|| namespace.map_or(Scope::All, Scope::Namespace));
        keys.insert(step.object.key.clone());
    }
    if deleted.is_empty() {
        return Ok(());
    }
    let all = branch.history.between(None, &branch.tip)?;
    for (relative, change) in &all.keys {
        let is_candidate = |key: &String| !keys.contains(key) && scopes.values().any(|scope| scope.may_have(key));
        let (Some(key), Some(blob)) = (branch.short(relative).filter(is_candidate), change.to) else { continue };
        let bytes = branch.history.value(blob, None)?;
        // Most objects have no owner at all.
        if !String::from_utf8_lossy(&bytes).contains("ownerReferences") {
            continue;
        }
        let Ok(Change { after: Some(object), .. }) = Change::read(None, Some(&bytes)) else { continue };
        let of: Vec<Option<&usize>> = owners::of(&object).iter().map(|(_, uid)| deleted.get(uid)).collect();
        if let (Some(Some(first)), true) = (of.first(), of.iter().all(Option::is_some))
            && custody::left_alone(&key, &object).is_none()
        {
            plan.steps[**first].dependents.push(ObjectRef::of(&key, &object));
        }
    }
    Ok(())
}

/// Describes the dependents of a step; `None` if there are none.
pub(super) fn described(Step { dependents, .. }: &Step) -> Option<String> {
    let mut names: Vec<String> = dependents.iter().take(SHOWN).map(ToString::to_string).collect();
    if dependents.len() > SHOWN {
        names.push(format!("{} more", dependents.len() - SHOWN));
    }
    (!names.is_empty()).then(|| format!("it owns {}, which Kubernetes deletes with it", names.join(", ")))
}
