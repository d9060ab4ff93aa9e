//! Schemas of the kinds whose objects are merged.

use std::collections::BTreeMap;

use git2::{Oid, Repository};
use gitcd_merge::schema::Schemas;
use gitcd_merge::value::{Syntax, Value};
use gitcd_repo::changes::{self, TreeError};
use gitcd_repo::object;

use super::{PlanError, Planner};

impl Planner<'_, '_> {
    /// Returns the schemas of built-in kinds and of those that either side defines. If definitions differ, the greater blob id
    /// decides, so that both sides use the same.
    pub(super) fn schemas(&self, trees: [Oid; 2]) -> Result<Schemas, PlanError> {
        const DEFINITIONS: &[u8] = b"apiextensions.k8s.io/customresourcedefinitions/";
        let mut found: BTreeMap<Vec<u8>, Oid> = BTreeMap::new();
        for tree in trees {
            let Some(below) = directory(self.repository, tree, DEFINITIONS)? else { continue };
            for (name, change) in changes::between(self.repository, None, Some(below))?.keys {
                if let Some(blob) = change.to {
                    let known = found.entry(name).or_insert(blob);
                    *known = blob.max(*known);
                }
            }
        }
        let mut definitions = Vec::new();
        for (name, blob) in found {
            if let Some(value) = self.value(&name, Some(blob))?
                && let Some((definition, _)) = Value::parse(&value)
                && let Ok(definition) = serde_json::from_slice::<serde_json::Value>(&definition.write(Syntax::Json))
            {
                definitions.push(definition);
            }
        }
        let (schemas, problems) =
            Schemas::builtin().with_secret_kinds(self.rules.secret_kinds.clone()).with_crds(&definitions);
        for problem in problems {
            tracing::debug!(problem, "a CustomResourceDefinition is not used for merges");
        }
        Ok(schemas)
    }

    /// Returns whether either side is the tree of a Kubernetes store.
    pub(super) fn holds_kubernetes(&self, trees: [Oid; 2]) -> Result<bool, PlanError> {
        for tree in trees {
            if object::holds_kubernetes(self.repository, tree).map_err(|error| self.failed(&error))? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn directory(repository: &Repository, tree: Oid, path: &[u8]) -> Result<Option<Oid>, TreeError> {
    let failed = |oid, error: &git2::Error| TreeError { oid, problem: error.message().to_owned() };
    let mut at = tree;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        let tree = repository.find_tree(at).map_err(|error| failed(at, &error))?;
        let entry = tree.iter().find(|entry| entry.name_bytes() == name && entry.filemode() == 0o040_000);
        match entry {
            Some(entry) => at = entry.id(),
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}
