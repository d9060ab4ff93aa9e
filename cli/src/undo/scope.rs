//! Which objects a command is about.

use trishanku_undo::Change;

use crate::objects::{NAMESPACE, Object};

/// Selected objects.
pub(super) enum Scope {
    All,
    /// A namespace with its content.
    Namespace(String),
    /// Keys, and prefixes of keys, which end with `/`.
    Keys(Vec<String>),
}

impl Scope {
    /// Selects what a command line names.
    pub(super) fn new(objects: &[Object], namespace: Option<&str>) -> Self {
        match (objects, namespace) {
            ([], None) => Self::All,
            ([], Some(namespace)) => Self::Namespace(namespace.to_owned()),
            (objects, namespace) => {
                let namespace = Some(namespace.unwrap_or(NAMESPACE));
                let key = |Object { kind, name }: &Object| match name {
                    Some(name) => kind.key(namespace, name),
                    None => kind.below(namespace),
                };
                Self::Keys(objects.iter().map(key).collect())
            }
        }
    }

    /// Returns the selected names without changes. `is_changed` says which keys have changes, `is_empty` whether none has.
    pub(super) fn without_changes(&self, is_changed: impl Fn(&str) -> bool, is_empty: bool) -> Vec<String> {
        match self {
            Self::Namespace(namespace) if is_empty => vec![format!("namespace {namespace}")],
            Self::All | Self::Namespace(_) => Vec::new(),
            Self::Keys(keys) => {
                let is_unchanged = |key: &&String| if key.ends_with('/') { is_empty } else { !is_changed(key) };
                keys.iter().filter(is_unchanged).cloned().collect()
            }
        }
    }

    /// Returns whether a key may be selected, before its value is read.
    pub(super) fn may_have(&self, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => {
                key.strip_prefix("namespaces/") == Some(namespace) || key.rsplit('/').nth(1) == Some(namespace)
            }
            Self::Keys(keys) => keys.iter().any(|wanted| {
                let is_prefix = wanted.ends_with('/');
                if is_prefix { key.starts_with(wanted) } else { key == wanted }
            }),
        }
    }

    /// Returns whether a key that [may be selected](Self::may_have) is.
    pub(super) fn has(&self, key: &str, change: &Change) -> bool {
        match self {
            Self::Namespace(namespace) => {
                let of_object = change.object().map(|object| &object["metadata"]["namespace"]);
                key.starts_with("namespaces/") || of_object.is_some_and(|of| of == namespace.as_str())
            }
            _ => true,
        }
    }
}
