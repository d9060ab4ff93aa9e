//! The kinds that are defined at the tip of the branch.

use std::path::Path;

use gitcd_merge::value::Value;
use gitcd_repo::changes;

use super::Branch;
use crate::catalog::Catalog;
use crate::keys::PREFIX;
use crate::problem::Problem;

/// The key of all `CustomResourceDefinitions`, after [`PREFIX`].
const DEFINITIONS: &[u8] = b"apiextensions.k8s.io/customresourcedefinitions";
/// Definitions that are read; the kinds of further ones are known by their plural only.
const MAX: usize = 2000;

impl Branch {
    /// Returns the kinds of Kubernetes, and those that are defined now. Reads the `CustomResourceDefinitions`, once.
    pub(super) fn catalog(&self) -> Result<&Catalog, Problem> {
        if let Some(catalog) = self.kinds.get() {
            return Ok(catalog);
        }
        let definitions = self.definitions()?;
        Ok(self.kinds.get_or_init(|| self.settings.catalog.clone().with_definitions(&definitions)))
    }

    fn definitions(&self) -> Result<Vec<Value>, Problem> {
        let folder = [PREFIX, DEFINITIONS].concat();
        let path = std::str::from_utf8(self.history.below_prefix(&folder)).unwrap_or_default();
        let tree = self.history.repository().find_tree(self.tip.commit.tree)?;
        let Ok(folder) = tree.get_path(Path::new(path)) else { return Ok(Vec::new()) };
        let all = changes::between(self.history.repository(), None, Some(folder.id()))?;
        let mut found = Vec::new();
        for blob in all.keys.into_values().filter_map(|change| change.to).take(MAX) {
            found.extend(Value::parse(&self.history.value(blob, None)?).map(|(value, _)| value));
        }
        Ok(found)
    }
}
