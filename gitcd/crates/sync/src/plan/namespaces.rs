//! Removal of the objects in removed namespaces.

use std::collections::HashMap;

use gitcd_merge::admit;
use gitcd_merge::schema::Schemas;
use gitcd_merge::{Conflict, Outcome, has_edit_of_a_person, protobuf};
use gitcd_mvcc::merge::Key;
use gitcd_repo::changes::Changes;

use super::{PlanError, Planner};

impl Planner<'_, '_> {
    /// Removes the objects in each namespace that the merge removes.
    pub(super) fn namespaces(&mut self, ours: &Changes) -> Result<(), PlanError> {
        const NAMESPACES: &[u8] = b"namespaces/";
        let name =
            |relative: &[u8]| relative.strip_prefix(NAMESPACES).map(|name| String::from_utf8_lossy(name).into_owned());
        let relative = |key: &Key| self.rules.keys.relative(&key.key).to_vec();
        let removed_by_them = self.keys.iter().filter(|key| {
            let is_gone = matches!((&key.outcome, &key.theirs), (Outcome::Theirs, None) | (Outcome::Deleted, _));
            is_gone && key.in_ours
        });
        let removed_by_them: Vec<String> = removed_by_them.filter_map(|key| name(&relative(key))).collect();
        let removed_by_us: Vec<String> = ours
            .keys
            .iter()
            .filter(|(relative, change)| change.to.is_none() && relative.starts_with(NAMESPACES))
            .filter(|(relative, _)| {
                let comes_back = self.keys.iter().any(|key| {
                    let is_there = match key.outcome {
                        Outcome::Theirs => key.theirs.is_some(),
                        Outcome::New(_) => true,
                        Outcome::Ours | Outcome::Deleted => false,
                    };
                    is_there && self.rules.keys.relative(&key.key) == *relative
                });
                !comes_back
            })
            .filter_map(|(relative, _)| name(relative))
            .collect();
        if removed_by_them.is_empty() && removed_by_us.is_empty() {
            return Ok(());
        }
        // Only edits in external commits are conflicts: a single kube-apiserver deletes all other objects with their namespace, too.
        let conflicts = |base: Option<&[u8]>, value: &[u8]| {
            let lost = Some("the object: its namespace was deleted".into());
            let conflict =
                has_edit_of_a_person(base, value).then_some(Conflict { field: String::new(), kept: None, lost });
            conflict.into_iter().collect::<Vec<_>>()
        };
        let schemas = self.schemas.clone();
        let is_gone = |relative: &[u8], value: &[u8]| {
            namespace(&schemas, relative, value)
                .is_some_and(|namespace| removed_by_them.contains(&namespace) || removed_by_us.contains(&namespace))
        };
        for key in &mut self.keys {
            let stays: Option<&[u8]> = match (&key.outcome, &key.theirs) {
                (Outcome::Theirs, Some((value, _))) => Some(value),
                (Outcome::New(value), _) => Some(value),
                _ => None,
            };
            if let Some(value) = stays.filter(|value| is_gone(self.rules.keys.relative(&key.key), value)) {
                let conflicts = conflicts(key.base.as_deref(), value);
                (key.outcome, key.conflicts) = (Outcome::Deleted, conflicts);
            }
        }
        let planned: HashMap<Vec<u8>, usize> =
            (0..).zip(&self.keys).map(|(at, key)| (self.rules.keys.relative(&key.key).to_vec(), at)).collect();
        for (relative, change) in &ours.keys {
            let Some(value) = self.value(relative, change.to)? else { continue };
            if !is_gone(relative, &value) {
                continue;
            }
            if let Some(at) = planned.get(relative).copied() {
                // Also if our value stays: the other side may merge it, and then remove it.
                if self.keys[at].outcome == Outcome::Ours {
                    let conflicts = conflicts(self.keys[at].base.as_deref(), &value);
                    (self.keys[at].outcome, self.keys[at].conflicts) = (Outcome::Deleted, conflicts);
                }
            } else {
                let base = self.value(relative, change.from)?;
                let conflicts = conflicts(base.as_deref(), &value);
                self.keys.push(Key {
                    key: self.rules.keys.absolute(relative).into(),
                    theirs: None,
                    base,
                    in_ours: true,
                    as_is: false,
                    outcome: Outcome::Deleted,
                    conflicts,
                });
            }
        }
        Ok(())
    }
}

/// Returns the namespace of a stored object: the one that it names, or that of its path if kube-apiserver encoded it.
fn namespace(schemas: &Schemas, relative: &[u8], value: &[u8]) -> Option<String> {
    if ![protobuf::PREFIX, protobuf::ENCRYPTED].into_iter().any(|form| value.starts_with(form)) {
        return admit::namespace(value);
    }
    let path = std::str::from_utf8(relative).ok()?;
    let (folder, components) = schemas.folder(path)?;
    path.split('/').nth(components).filter(|_| folder.is_namespaced).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_of_an_encoded_object_is_that_of_its_path() {
        let schemas = Schemas::builtin();
        let of = |path: &str, value: &[u8]| namespace(&schemas, path.as_bytes(), value);
        let json = br#"{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":"a"}}"#;
        assert_eq!(of("pods/shop/a", json).as_deref(), Some("shop"));
        assert_eq!(of("pods/shop/a", b"k8s\0...").as_deref(), Some("shop"));
        assert_eq!(of("services/specs/shop/a", b"k8s\0...").as_deref(), Some("shop"));
        assert_eq!(of("secrets/shop/a", b"k8s:enc:aescbc:v1:key:...").as_deref(), Some("shop"));
        assert_eq!(of("minions/node", b"k8s\0..."), None);
    }
}
