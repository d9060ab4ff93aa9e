//! Schemas of kinds for merges: of built-in kinds, and of custom resources.

mod builtin;
mod custom;
mod walk;

use gitcd_merge::schema::{ListKind, Node, Schemas};

/// Returns the node at a path of field names below `root`; `[]` stands for the items of a list.
pub fn find<'s>(root: Node<'s>, path: &str) -> Option<Node<'s>> {
    path.split('.').filter(|name| !name.is_empty()).try_fold(root, |node, name| match name {
        "[]" => node.items(),
        name => node.field(name),
    })
}

/// Returns the node at a known path of a known kind.
pub fn node<'s>(schemas: &'s Schemas, api_version: &str, kind: &str, path: &str) -> Node<'s> {
    let root = schemas.of(api_version, kind).unwrap_or_else(|| panic!("{api_version} {kind} is known"));
    find(root, path).unwrap_or_else(|| panic!("{path} of {kind} is known"))
}

/// Returns the keys of a map list.
pub fn keys(node: Node<'_>) -> Vec<&str> {
    match node.list() {
        Some(ListKind::Map(keys)) => keys.iter().map(String::as_str).collect(),
        other => panic!("a map list, not {other:?}"),
    }
}

/// Returns the groups of mutually exclusive fields.
pub fn unions(node: Node<'_>) -> Vec<Vec<&str>> {
    node.unions().map(|group| group.iter().map(String::as_str).collect()).collect()
}
