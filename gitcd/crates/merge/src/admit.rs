//! Admission of files from a commit: an external file must be the object that its key names, with fields that Kubernetes can
//! decode.
//!
//! `docs/design/merge.md` has the rules. [`Admission::admit`] checks and completes a file of a branch, [`check`] checks a
//! manifest outside of a branch.
//!
//! ```
//! use gitcd_merge::schema::Schemas;
//! use gitcd_merge::admit::{self, Admission};
//! use gitcd_merge::secrecy::Exposure;
//!
//! let admission = Admission { schemas: &Schemas::builtin(), is_kubernetes: true, completes: true };
//! let file: &[u8] = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\ndata:\n  port: 8080\n";
//! let findings = admission.admit(b"configmaps/b/a", file, None, || None).expect_err("a number");
//! let reason = admit::reason(&findings, file, Exposure::Open);
//! assert_eq!(reason, "line 5: data.port: is a number, but must be a string; put it in quotes");
//! ```

mod complete;
mod finding;
mod location;
mod position;
mod scalar;
#[cfg(test)]
mod tests;
mod types;

use self::complete::Draft;
pub use self::finding::{Finding, reason};
use self::location::Location;
use self::types::Types;
use crate::protobuf;
use crate::schema::Schemas;
use crate::value::{MAX_BYTES, Syntax, Value};

/// The commit that introduced a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its ID.
    pub commit: [u8; 20],
    /// Its time, in seconds since 1970.
    pub time: i64,
}

/// What files are checked against.
#[derive(Clone, Copy, Debug)]
pub struct Admission<'s> {
    /// The schemas of kinds.
    pub schemas: &'s Schemas,
    /// Whether kube-apiserver uses the store, so that it only holds Kubernetes objects: its tree has the folders that every
    /// kube-apiserver creates.
    pub is_kubernetes: bool,
    /// Whether to fill in what the path says; otherwise the file must have it.
    pub completes: bool,
}

impl Admission<'_> {
    /// Checks a new value of a key, and completes what only a server would have set: identity, generation, and the name and
    /// namespace of the path. Returns `None` if the value is accepted as it is. A pure function of the commits: every branch
    /// decides alike.
    ///
    /// # Errors
    /// At least one finding; none is a warning, and none has its line yet: see [`reason`].
    pub fn admit(
        &self,
        relative: &[u8],
        value: &[u8],
        before: Option<&[u8]>,
        origin: impl FnOnce() -> Option<Origin>,
    ) -> Result<Option<Vec<u8>>, Vec<Finding>> {
        let path = String::from_utf8_lossy(relative);
        // Written by kube-apiserver, which alone can read it.
        if location::is_internal(&path) {
            return Ok(None);
        }
        if let Some(form) = [protobuf::PREFIX, protobuf::ENCRYPTED].into_iter().find(|form| value.starts_with(form)) {
            // Users cannot write such a value, but may move or copy an existing one.
            if self.is_kubernetes && before.is_none_or(|before| !before.starts_with(form)) {
                return Err(vec![Finding::whole(
                    "it begins like a value that kube-apiserver encoded; write an object in JSON or YAML",
                )]);
            }
            return Ok(None);
        }
        let old = before.and_then(Value::parse).and_then(|(old, _)| missing(&old).is_none().then_some(old));
        let Some((mut new, syntax)) = read(value, (old.is_some(), old.is_some() || self.is_kubernetes), |new| {
            self.schemas.of(&text(new, &["apiVersion"]), &text(new, &["kind"])).is_some()
        })?
        else {
            return Ok(None);
        };
        let is_cleaned = self.completes && complete::without_empty_times(&mut new);
        let location = location::locate(self.schemas, &path, &new, self.is_kubernetes).map_err(|f| vec![f])?;
        let findings = of_types(self.schemas, &new, Vec::new(), false);
        if !findings.is_empty() {
            return Err(findings);
        }
        fits(&path, &new, old.as_ref(), location.as_ref()).map_err(|finding| vec![finding])?;
        // An object of another kind at this path was another object.
        let kind = text(&new, &["kind"]);
        let old = old.filter(|old| text(old, &["kind"]) == kind);
        let Value::Map(map) = new else { return Ok(None) };
        let draft = Draft {
            map,
            syntax,
            original: value,
            old: old.as_ref(),
            relative,
            location: location.as_ref(),
            is_cleaned,
        };
        if !self.completes {
            let missing = draft.said_by_path().into_iter().map(|(field, of_path)| {
                Finding::of(&["metadata", field], format!("is missing; write {field}: {of_path:?}"))
            });
            let missing: Vec<_> = missing.collect();
            return if missing.is_empty() { Ok(None) } else { Err(missing) };
        }
        Ok(draft.complete(origin))
    }
}

/// Checks a manifest without a path: that Kubernetes has its version, and the types of its fields; of a list, those of its
/// objects. Findings include warnings. A text that is not meant as a manifest has none.
///
/// Reads one document; the caller splits files with several documents.
pub fn check(schemas: &Schemas, value: &[u8]) -> Vec<Finding> {
    if let Some((list, _)) = Value::parse(value)
        && let Some(items) = items(&list)
    {
        let step = |at| vec![finding::Step::Field("items".to_owned()), finding::Step::Item(at)];
        return items.iter().enumerate().flat_map(|(at, item)| of_types(schemas, item, step(at), true)).collect();
    }
    match read(value, (false, false), |_| true) {
        Ok(Some((object, _))) => match location::is_known(schemas, &object) {
            Ok(()) => of_types(schemas, &object, Vec::new(), true),
            Err(finding) => vec![finding],
        },
        Ok(None) => Vec::new(),
        Err(findings) => findings,
    }
}

/// Returns the objects of a list of objects.
fn items(list: &Value) -> Option<&[Value]> {
    text(list, &["kind"]).ends_with("List").then(|| list.at(&["items"])?.as_list())?
}

/// Reads an object; `None` if the value is not an object and need not be one.
fn read(
    value: &[u8],
    (replaces_object, must_be_object): (bool, bool),
    is_known: impl FnOnce(&Value) -> bool,
) -> Result<Option<(Value, Syntax)>, Vec<Finding>> {
    let refuse = |finding: Finding| Err(vec![finding]);
    let (new, syntax) = match Value::read(value) {
        Ok(read) => read,
        // Not even searched for the line of a mistake.
        Err(problem) if value.len() > MAX_BYTES => {
            let is_meant = must_be_object || begins_like_a_manifest(value);
            return if is_meant { refuse(Finding::whole(problem.reason)) } else { Ok(None) };
        }
        Err(problem) => {
            let is_json = value.trim_ascii_start().starts_with(b"{");
            let line = (problem.line > 0).then_some(problem.line);
            return if is_json || begins_like_a_manifest(value) {
                let line = line.or_else(|| serde_json::from_slice::<serde_json::Value>(value).err().map(|e| e.line()));
                let line = line.filter(|line| *line > 0);
                let reason =
                    if is_json { problem.reason } else { format!("it is not well-formed YAML: {}", problem.reason) };
                let reason = if replaces_object {
                    format!("it is neither a JSON nor a YAML object anymore: {reason}")
                } else {
                    reason
                };
                refuse(Finding { line, ..Finding::whole(reason) })
            } else if must_be_object {
                refuse(Finding::whole(
                    "it is neither a JSON nor a YAML object, and only objects of Kubernetes are stored here: remove the file",
                ))
            } else {
                Ok(None)
            };
        }
    };
    if let Some(field) = missing(&new) {
        if must_be_object || is_meant_as_a_manifest(&new) {
            let remedy = "every object of Kubernetes has apiVersion, kind and metadata";
            return refuse(Finding::of(&[], format!("{field} is missing or empty: {remedy}")));
        }
        return Ok(None);
    }
    if items(&new).is_some() && !is_known(&new) {
        return refuse(Finding::of(&["kind"], "is a list of objects; write a file for each of them"));
    }
    Ok(Some((new, syntax)))
}

/// Returns the findings about the types of fields.
fn of_types(schemas: &Schemas, object: &Value, path: Vec<finding::Step>, with_warnings: bool) -> Vec<Finding> {
    let (api_version, kind) = (text(object, &["apiVersion"]), text(object, &["kind"]));
    let known = schemas.of(&api_version, &kind);
    // Without a built-in schema, another keyword of the definition may allow an unknown field.
    let unknown = with_warnings && known.is_some() && Schemas::builtin().of(&api_version, &kind).is_some();
    let mut types = Types { unknown, path, ..Types::default() };
    match known {
        Some(known) => types.check(object, known),
        None => types.check(object, Schemas::any_object()),
    }
    types.findings
}

/// Checks whether an object is the one that its path names, or else the one that was at the path.
fn fits(path: &str, new: &Value, old: Option<&Value>, location: Option<&Location<'_>>) -> Result<(), Finding> {
    const NAME: [&str; 2] = ["metadata", "name"];
    const NAMESPACE: [&str; 2] = ["metadata", "namespace"];
    let (name, namespace) = (text(new, &NAME), text(new, &NAMESPACE));
    let refuse = |field: &[&str], problem: String| Err(Finding::of(field, problem));
    let is_given = |text: &str| !text.is_empty();
    if !is_given(&name) && new.given(&["metadata", "generateName"]).is_some() && (location.is_some() || old.is_some()) {
        let last = path.rsplit('/').next().unwrap_or_default();
        let problem = format!("a file needs a name; write metadata.name: {last:?} instead");
        return refuse(&["metadata", "generateName"], problem);
    }
    if location.is_none()
        && let Some(old) = old
    {
        for field in [&["kind"][..], &NAME, &NAMESPACE] {
            if text(new, field) != text(old, field) {
                return refuse(
                    field,
                    format!(
                        "is {:?}, but the object at this path has {:?}; write a separate file for another object",
                        text(new, field),
                        text(old, field)
                    ),
                );
            }
        }
        return Ok(());
    }
    let mut components = path.rsplit('/');
    let (last, above) = (components.next().unwrap_or_default(), components.next().unwrap_or_default());
    if is_given(&name) && name != last {
        return refuse(&NAME, format!("is {name:?}, but the file's name is {last:?}"));
    }
    match location {
        Some(Location { namespace: None, .. }) if is_given(&namespace) => {
            refuse(&NAMESPACE, format!("is {namespace:?}, but the kind has no namespaces; remove it"))
        }
        _ if is_given(&namespace) && namespace != above => {
            refuse(&NAMESPACE, format!("is {namespace:?}, but the folder's name is {above:?}"))
        }
        _ => Ok(()),
    }
}

/// Returns a required field that the object lacks.
fn missing(value: &Value) -> Option<&'static str> {
    ["apiVersion", "kind"].into_iter().find(|name| value.given(&[name]).is_none())
}

/// Two of these fields at the top level make a manifest; one alone may be part of any other value.
const FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

fn is_meant_as_a_manifest(value: &Value) -> bool {
    FIELDS.iter().filter(|name| value.at(&[name]).is_some()).count() >= 2
        || value.at(&["metadata", "name"]).and_then(Value::as_text).is_some()
}

/// Returns the same for text that cannot be parsed.
fn begins_like_a_manifest(value: &[u8]) -> bool {
    let has = |name: &str| {
        value
            .split(|byte| *byte == b'\n')
            .any(|line| line.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b":")))
    };
    FIELDS.iter().filter(|name| has(name)).count() >= 2
}

fn text(value: &Value, path: &[&str]) -> String {
    value.given(path).unwrap_or_default().into_owned()
}

/// Returns whether a key is one of kube-apiserver's own records (addresses of servers, allocations of addresses and ports), which
/// no external commit may change in a Kubernetes store. [`Admission::admit`] accepts them: only who knows the origin of a file can
/// decide.
pub fn is_of_api_server(relative: &[u8]) -> bool {
    location::is_internal(&String::from_utf8_lossy(relative))
}

/// Returns the namespace of a stored object.
pub fn namespace(value: &[u8]) -> Option<String> {
    let (value, _) = Value::parse(value)?;
    let namespace = value.given(&["metadata", "namespace"]).filter(|_| missing(&value).is_none())?;
    Some(namespace.into_owned())
}
