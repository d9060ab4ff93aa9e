//! Whether an object is stored where its kind belongs.

use super::finding::Finding;
use super::text;
use crate::schema::{Folder, Schemas, group};
use crate::value::Value;

/// Folders that only kube-apiserver uses: addresses of servers, ranges of addresses and ports.
const INTERNAL: [&str; 3] = ["masterleases", "peerserverleases", "ranges"];

/// The namespace and name in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Location<'p> {
    /// The namespace, of a namespaced kind.
    pub(super) namespace: Option<&'p str>,
    pub(super) name: &'p str,
}

/// Returns whether a path is in a folder that only kube-apiserver uses.
pub(super) fn is_internal(path: &str) -> bool {
    INTERNAL.iter().any(|folder| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))
}

/// Returns the namespace and name in the path of an object; `None` if the path is not one where its kind is stored. `everywhere`:
/// also rejects known kinds outside their folder.
///
/// # Errors
/// The kind does not belong there, or the path has too many or too few components.
pub(super) fn locate<'p>(
    schemas: &Schemas,
    path: &'p str,
    object: &Value,
    everywhere: bool,
) -> Result<Option<Location<'p>>, Finding> {
    let (api_version, kind) = (text(object, &["apiVersion"]), text(object, &["kind"]));
    let of = (group(&api_version), kind.as_str());
    let wrong = |problem: String| Finding::of(&["kind"], problem);
    if let Some((folder, components)) = schemas.folder(path) {
        if !has(folder, of) {
            let kinds: Vec<_> = folder.kinds.iter().map(|(group, kind)| named(group, kind)).collect();
            let remedy = place(schemas, of).map_or_else(String::new, |place| format!("; move the file to {place}"));
            let here = &path[..path.match_indices('/').nth(components - 1).map_or(path.len(), |(at, _)| at)];
            let found = named(of.0, of.1);
            return Err(wrong(format!("is {found}, but {here}/ holds {}{remedy}", kinds.join(", "))));
        }
        is_known(schemas, object)?;
        let here: Vec<&str> = path.split('/').skip(components).collect();
        return match (&here[..], folder.is_namespaced) {
            ([namespace, name], true) => Ok(Some(Location { namespace: Some(namespace), name })),
            ([name], false) => Ok(Some(Location { namespace: None, name })),
            _ => {
                let place = place(schemas, of).unwrap_or_default();
                Err(Finding::whole(format!("{} must be at {place}: move the file there", named(of.0, of.1))))
            }
        };
    }
    if everywhere {
        if let Some(place) = place(schemas, of) {
            return Err(Finding::whole(format!("{} must be at {place}: move the file there", named(of.0, of.1))));
        }
        let is_builtin = of.0.is_empty() || schemas.has_group(of.0);
        if is_builtin && schemas.of(&api_version, &kind).is_none() {
            return Err(wrong(format!("Kubernetes has no kind {} in {api_version}; correct apiVersion or kind", of.1)));
        }
        if is_builtin {
            return Err(wrong(format!("kube-apiserver does not store {}; remove the file", named(of.0, of.1))));
        }
    }
    // A custom resource without a known definition, as kube-apiserver stores it.
    let components: Vec<&str> = path.split('/').collect();
    Ok(match components[..] {
        [first, _, namespace, name] if first == of.0 && first.contains('.') => {
            Some(Location { namespace: Some(namespace), name })
        }
        _ => None,
    })
}

/// Checks whether a known kind has the object's version.
pub(super) fn is_known(schemas: &Schemas, object: &Value) -> Result<(), Finding> {
    let (api_version, kind) = (text(object, &["apiVersion"]), text(object, &["kind"]));
    if schemas.of(&api_version, &kind).is_some() {
        return Ok(());
    }
    let group = group(&api_version);
    let known = schemas.versions(group, &kind);
    if known.is_empty() {
        return Ok(());
    }
    let problem = format!("{} has no such version; use {}", named(group, &kind), known.join(" or "));
    Err(Finding::of(&["apiVersion"], problem))
}

fn has(folder: &Folder, of: (&str, &str)) -> bool {
    folder.kinds.iter().any(|(group, kind)| (group.as_str(), kind.as_str()) == of)
}

/// Formats a kind like kubectl: `Deployment.apps`.
fn named(group: &str, kind: &str) -> String {
    if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
}

/// Returns where the objects of a kind are stored: `deployments/NAMESPACE/NAME`.
fn place(schemas: &Schemas, of: (&str, &str)) -> Option<String> {
    let (path, folder) = schemas.folder_of(of.0, of.1)?;
    Some(format!("{path}/{}NAME", if folder.is_namespaced { "NAMESPACE/" } else { "" }))
}
