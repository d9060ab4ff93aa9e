//! References to owners. An object whose owners do not exist is deleted by the garbage collector, so a reference to an owner that
//! is gone must not come back.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::document::text;

/// The owner of an object: group, kind, namespace (empty for a cluster-scoped owner) and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId {
    /// Its API version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// The namespace of the object that it owns. A cluster-scoped owner is in none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What exists now.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// The uids of existing owners.
    pub owners: BTreeMap<OwnerId, String>,
    /// Owners of which it is not known whether they exist, with the reason: a clause with a remedy.
    pub unknown: BTreeMap<OwnerId, String>,
    /// The names of existing `PersistentVolumes`.
    pub volumes: BTreeSet<String>,
}

/// Returns the owners of an object, each with the uid in the reference.
pub fn of(object: &Value) -> Vec<(OwnerId, String)> {
    let references = object.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
    references.map(|reference| (id(reference, text(object, "/metadata/namespace")), uid(reference))).collect()
}

fn id(reference: &Value, namespace: &str) -> OwnerId {
    let own = |pointer: &str| text(reference, pointer).to_owned();
    OwnerId { api_version: own("/apiVersion"), kind: own("/kind"), namespace: namespace.to_owned(), name: own("/name") }
}

fn uid(reference: &Value) -> String {
    text(reference, "/uid").to_owned()
}

/// Repairs the references of a desired object: points to an owner that was created again, and drops owners that are gone.
/// `created` has the old uids of objects that the plan creates; references to these stay, and get the new uid when it is known.
/// Returns notes.
pub fn repair(object: &mut Value, live: &Live, created: &BTreeSet<String>) -> Vec<String> {
    let namespace = text(object, "/metadata/namespace").to_owned();
    let mut notes = Vec::new();
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return notes };
    let Some(references) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) else { return notes };
    references.retain_mut(|reference| {
        let owner = id(reference, &namespace);
        let named = format!("{} {}", owner.kind, owner.name);
        match live.owners.get(&owner) {
            Some(live) if *live == uid(reference) => true,
            _ if created.contains(&uid(reference)) => true,
            Some(live) => {
                reference["uid"] = live.as_str().into();
                notes.push(format!("its owner {named} was created again; the reference has the new uid"));
                true
            }
            None => {
                notes.push(format!("its owner {named} does not exist; the reference to it is removed"));
                false
            }
        }
    });
    if references.is_empty() {
        metadata.shift_remove("ownerReferences");
    }
    notes
}

/// Replaces old uids of owners by those of the objects that were created. Returns the first owner in `failed`, which could not be
/// created.
pub fn repoint(object: &mut Value, created: &BTreeMap<String, String>, failed: &BTreeSet<String>) -> Option<String> {
    let references = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut)?;
    let mut missing = None;
    for reference in references {
        if let Some(new) = created.get(text(reference, "/uid")) {
            reference["uid"] = new.as_str().into();
        } else if failed.contains(text(reference, "/uid")) {
            missing = missing.or(Some(format!("{} {}", text(reference, "/kind"), text(reference, "/name"))));
        }
    }
    missing
}
