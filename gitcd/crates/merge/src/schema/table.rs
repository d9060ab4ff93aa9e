//! Places of objects in an arena: a place refers to its children by index, since a type may contain itself.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::folders::Folder;
use super::shape::Shape;

/// How a list is merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum List {
    Map(Vec<String>),
    Set,
    Atomic,
}

/// The schema of a place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The name of a built-in type, such as `core.v1.PodSpec`.
    pub(super) type_name: Option<Box<str>>,
    pub(super) fields: BTreeMap<String, usize>,
    /// The place of all keys that are not fields.
    pub(super) values: Option<usize>,
    pub(super) items: Option<usize>,
    pub(super) list: Option<List>,
    /// The default of each key of a map list, as JSON text.
    pub(super) defaults: BTreeMap<String, Box<str>>,
    pub(super) shape: Shape,
    pub(super) atomic: bool,
    pub(super) whole: bool,
    pub(super) unions: Vec<Vec<String>>,
    pub(super) disjoint: Vec<Vec<String>>,
    /// Allowed number of items or properties: minimum and maximum.
    pub(super) bounds: Option<(usize, usize)>,
}

impl Place {
    /// Creates a place of this shape, without further information.
    pub(super) fn of(shape: Shape) -> Place {
        Place { shape, ..Place::default() }
    }
}

/// The places of a set of kinds.
#[derive(Clone, Default)]
pub(super) struct Table {
    places: Vec<Place>,
    /// Roots by version, then by kind.
    kinds: HashMap<String, HashMap<String, usize>>,
    /// Folders by path below kube-apiserver's prefix.
    folders: HashMap<String, Folder>,
}

impl Table {
    pub(super) fn place(&self, at: usize) -> &Place {
        &self.places[at]
    }

    pub(super) fn place_mut(&mut self, at: usize) -> &mut Place {
        &mut self.places[at]
    }

    pub(super) fn push(&mut self, place: Place) -> usize {
        self.places.push(place);
        self.places.len() - 1
    }

    /// Returns the number of places, for [`Table::truncate`].
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Drops the places from `len` on, which nothing may refer to.
    pub(super) fn truncate(&mut self, len: usize) {
        self.places.truncate(len);
    }

    pub(super) fn kind(&self, api_version: &str, kind: &str) -> Option<usize> {
        self.kinds.get(api_version)?.get(kind).copied()
    }

    pub(super) fn define(&mut self, api_version: &str, kind: &str, root: usize) {
        self.kinds.entry(api_version.to_owned()).or_default().insert(kind.to_owned(), root);
    }

    /// Returns the versions of a kind in this table, in the order of their names.
    pub(super) fn versions(&self, group: &str, kind: &str) -> Vec<&str> {
        let of = |version: &&String| super::folders::group(version) == group && self.kinds[*version].contains_key(kind);
        let mut versions: Vec<&str> = self.kinds.keys().filter(of).map(String::as_str).collect();
        versions.sort_unstable();
        versions
    }

    pub(super) fn has_group(&self, group: &str) -> bool {
        self.kinds.keys().any(|version| super::folders::group(version) == group)
    }

    pub(super) fn folders(&self) -> &HashMap<String, Folder> {
        &self.folders
    }

    pub(super) fn add_folder(&mut self, path: String, folder: Folder) {
        self.folders.insert(path, folder);
    }

    /// Copies a place of another table, with everything reachable from it.
    pub(super) fn import(&mut self, from: &Table, at: usize) -> usize {
        self.import_once(from, at, &mut HashMap::new())
    }

    fn import_once(&mut self, from: &Table, at: usize, done: &mut HashMap<usize, usize>) -> usize {
        if let Some(&copied) = done.get(&at) {
            return copied;
        }
        let copied = self.push(Place::default());
        done.insert(at, copied);
        let mut place = from.place(at).clone();
        for below in place.fields.values_mut().chain(&mut place.values).chain(&mut place.items) {
            *below = self.import_once(from, *below, done);
        }
        self.places[copied] = place;
        copied
    }
}

impl fmt::Debug for Table {
    // All places would fill thousands of lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: usize = self.kinds.values().map(HashMap::len).sum();
        f.debug_struct("Table").field("kinds", &kinds).field("places", &self.places.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_contains_itself_is_imported_once() {
        let mut from = Table::default();
        from.push(Place { atomic: true, ..Place::default() });
        let list = from.push(Place { list: Some(List::Set), ..Place::default() });
        let root = from.push(Place::default());
        from.place_mut(root).fields.extend([("again".to_owned(), root), ("list".to_owned(), list)]);
        from.place_mut(root).values = Some(root);

        let mut to = Table::default();
        to.push(Place::default());
        let copied = to.import(&from, root);
        assert_eq!(to.len(), 3);
        assert_eq!(to.place(copied).fields["again"], copied);
        assert_eq!(to.place(copied).values, Some(copied));
        assert_eq!(to.place(to.place(copied).fields["list"]).list, Some(List::Set));
    }
}
