//! Where kube-apiserver stores the objects of each kind.

use super::Schemas;
use super::table::Table;

/// The folder of a resource, by its path below kube-apiserver's prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// The kinds of its objects, each with its group; empty for the core group.
    pub kinds: Vec<(String, String)>,
    /// Whether it has a subfolder for each namespace.
    pub is_namespaced: bool,
}

/// Returns the group of an `apiVersion`; empty for the core group.
pub fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

impl Schemas {
    /// Returns the folder of a path below the prefix, and its number of path components; `None` if it has no objects of a known
    /// kind.
    pub fn folder(&self, path: &str) -> Option<(&Folder, usize)> {
        let mut ends = path.match_indices('/').map(|(at, _)| at);
        let paths = [ends.next()?, ends.next().unwrap_or(path.len())].map(|end| &path[..end]);
        let find = |path: &str| self.tables().find_map(|table| table.folders().get(path));
        paths.iter().zip(1..).find_map(|(path, components)| Some((find(path)?, components)))
    }

    /// Returns the folder with the objects of a kind; `None` if the kind is unknown or not stored.
    pub fn folder_of(&self, group: &str, kind: &str) -> Option<(&str, &Folder)> {
        let has = |folder: &Folder| folder.kinds.iter().any(|(of, name)| of == group && name == kind);
        let folders = self.tables().flat_map(Table::folders);
        folders
            .filter(|(_, folder)| has(folder))
            .map(|(path, folder)| (path.as_str(), folder))
            .min_by_key(|(path, _)| *path)
    }

    /// Returns whether Kubernetes has built-in kinds in a group.
    pub fn has_group(&self, group: &str) -> bool {
        self.builtin.is_some_and(|table| table.has_group(group))
    }

    /// Returns the `apiVersion`s of a kind, in the order of their names.
    pub fn versions(&self, group: &str, kind: &str) -> Vec<&str> {
        self.tables().map(|table| table.versions(group, kind)).find(|found| !found.is_empty()).unwrap_or_default()
    }
}
