//! Merge of one key that both branches changed.

use std::fmt::Write as _;

use sha1::{Digest, Sha1};

use super::conflict::Conflict;
use super::fields::{Fields, Prefer};
use super::owners::Owners;
use super::schema::Schemas;
use super::value::{Syntax, Value};
use super::yaml;
use super::{absence, authorship, deletion, metadata, protobuf, secret};
use crate::form;

/// Which side wins if both changed the same field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The later writer according to `managedFields`, then the greater hash: independent of which side is ours.
    #[default]
    Later,
    /// Our side.
    Ours,
    /// Their side.
    Theirs,
}

/// The value of a side.
#[derive(Clone, Copy, Debug)]
pub struct Side<'v> {
    /// The value as it was put.
    pub value: &'v [u8],
    /// The ID of its blob, which decides between values that cannot be merged otherwise.
    pub hash: [u8; 20],
}

impl<'v> Side<'v> {
    /// Creates a side with the ID of the blob that gitcd makes of the value.
    pub fn of(value: &'v [u8]) -> Self {
        Self { value, hash: blob_hash(value) }
    }
}

/// Returns the ID of the blob that gitcd makes of a value.
pub fn blob_hash(value: &[u8]) -> [u8; 20] {
    let (_, blob) = form::encode(value);
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {}\0", blob.len()));
    hasher.update(&blob);
    hasher.finalize().into()
}

/// The result of a merge for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Our value, or its absence.
    Ours,
    /// Their value, or its absence.
    Theirs,
    /// The key is deleted, which neither side did.
    Deleted,
    /// A value that neither side has.
    New(Vec<u8>),
}

/// The merge of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The result.
    pub outcome: Outcome,
    /// The conflicts that were decided.
    pub conflicts: Vec<Conflict>,
}

impl Merged {
    fn clean(outcome: Outcome) -> Self {
        Self { outcome, conflicts: Vec::new() }
    }
}

/// Merges one key. `None` stands for an absent key.
///
/// The same values give the same result; with [`Policy::Later`] also if the sides are swapped. Takes a pass over each value, and
/// some allocations for each field.
pub fn merge(
    schemas: &Schemas,
    policy: Policy,
    base: Option<&[u8]>,
    ours: Option<Side<'_>>,
    theirs: Option<Side<'_>>,
) -> Merged {
    let values = [ours, theirs].map(|side| side.map(|side| side.value));
    if values[0] == values[1] || values[1] == base {
        return Merged::clean(Outcome::Ours);
    }
    if values[0] == base {
        return Merged::clean(Outcome::Theirs);
    }
    // From here on, the order of sides is independent of which is ours.
    let swapped = ours.map(|side| side.hash) > theirs.map(|side| side.hash);
    let sides = if swapped { [theirs, ours] } else { [ours, theirs] };
    let of_side = |side: usize| if (side == 0) == swapped { Outcome::Theirs } else { Outcome::Ours };
    let prefer = match policy {
        Policy::Later => Prefer::Later,
        Policy::Ours => Prefer::Side(usize::from(swapped)),
        Policy::Theirs => Prefer::Side(usize::from(!swapped)),
    };
    if let ([None, Some(changed)], Prefer::Later) = (sides, prefer)
        && let Some(merged) = deleted_protobuf(base, changed.value, of_side)
    {
        return merged;
    }
    let parsed = sides.map(|side| side.and_then(|side| read(side.value)));
    let base = base.and_then(read).map(|(base, _)| base);
    let (one, other) = match (&parsed[0], &parsed[1], sides) {
        (Some((one, _)), Some((other, _)), _) => (one, other),
        // An absent side sorts first.
        (_, changed, [None, Some(side)]) => {
            return deleted(prefer, base.as_ref(), changed.as_ref(), side.value, of_side);
        }
        _ => return opaque(prefer, &sides, of_side),
    };
    if one == other {
        // The sides only differ in spelling.
        return Merged::clean(of_side(1));
    }
    let uids = [base.as_ref(), Some(one), Some(other)].map(|value| value.and_then(identity));
    // An object without a uid, from an etcd client other than kube-apiserver, does not contradict the other.
    let differ = |one: &Option<String>, other: &Option<String>| one.is_some() && other.is_some() && one != other;
    if differ(&uids[1], &uids[2]) {
        return replaced(prefer, base.as_ref(), [one, other], of_side);
    }
    let base = base.filter(|_| !differ(&uids[0], &uids[1]) && !differ(&uids[0], &uids[2]));
    // JSON if any version is JSON. The newline is that of kube-apiserver, and makes no difference in Git.
    let syntax = parsed.iter().flatten().map(|(_, syntax)| *syntax).min().unwrap_or(Syntax::Json);
    let newline = sides.iter().flatten().any(|side| side.value.ends_with(b"\n"));
    let write = |merged: &Value| match syntax {
        Syntax::Json if newline => merged.write_over(syntax, b"\n"),
        Syntax::Json => merged.write(syntax),
        // Write over the document with more comments, then with the greater hash.
        Syntax::Yaml => {
            let document = sides.iter().flatten().map(|side| side.value).max_by_key(|value| yaml::comments(value));
            merged.write_over(syntax, document.unwrap_or_default())
        }
    };
    combine(schemas, prefer, base.as_ref(), [one, other], write, of_side)
}

/// Parses a value in the form in which a merge compares it: without empty fields of `metadata`, and with `stringData` of a Secret
/// in `data`. `None` if a merge takes the value whole.
pub fn normalized(value: &[u8]) -> Option<(Value, Syntax)> {
    read(value)
}

/// Reads a value in its normalized form.
fn read(value: &[u8]) -> Option<(Value, Syntax)> {
    Value::parse(value).map(|(value, syntax)| (secret::without_string_data(absence::normalized(value)), syntax))
}

/// Returns whether two values are equal except for spelling and the order of fields.
pub fn differ_in_spelling_only(one: &[u8], other: &[u8]) -> bool {
    one != other
        && matches!((Value::parse(one), Value::parse(other)), (Some((one, _)), Some((other, _))) if one == other)
}

/// Merges two versions of the same object.
fn combine(
    schemas: &Schemas,
    prefer: Prefer,
    base: Option<&Value>,
    sides: [&Value; 2],
    write: impl FnOnce(&Value) -> Vec<u8>,
    of_side: impl Fn(usize) -> Outcome,
) -> Merged {
    let text = |name: &str| sides[1].at(&[name]).and_then(Value::as_text).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let mut fields = Fields {
        prefer,
        is_new: base.is_none(),
        owners: sides.map(Owners::of),
        path: Vec::new(),
        conflicts: Vec::new(),
        kind: format!("{api_version} {kind}"),
        exposure: schemas.exposure(base.into_iter().chain(sides)),
    };
    let versions = sides.map(|side| side.given(&["apiVersion"]));
    let merged = if versions[0] == versions[1] || versions.contains(&None) {
        fields.merge(base, sides.map(Some), schemas.of(&api_version, &kind))
    } else {
        // A field may have another meaning in another version.
        fields.beside_metadata(base, sides)
    };
    let mut conflicts = fields.conflicts;
    let (Some(Value::Map(mut merged)), [Value::Map(one), Value::Map(other)]) = (merged, sides) else {
        unreachable!("two objects merge into an object");
    };
    let is_gone = metadata::finish(&mut merged, [one, other]);
    // kube-apiserver omits empty metadata.
    let merged = absence::normalized(Value::Map(merged));
    if is_gone || deletion::is_terminating(&merged) {
        // Conflicts about an object that is being deleted no longer matter.
        conflicts.clear();
    }
    if is_gone {
        return Merged { outcome: Outcome::Deleted, conflicts };
    }
    // The greater hash first, so that this too is independent of the order.
    for side in [1, 0] {
        if *sides[side] == merged {
            return Merged { outcome: of_side(side), conflicts };
        }
    }
    Merged { outcome: Outcome::New(write(&merged)), conflicts }
}

/// Merges a deletion by one side (the first) with a change by the other, if `changed` could be read.
///
/// "Change, then delete": an update cannot bring a Kubernetes object back. A replacement with another `uid` was created after the
/// deletion. A value that is not a Kubernetes object stays: a put creates it anew.
fn deleted(
    prefer: Prefer,
    base: Option<&Value>,
    changed: Option<&(Value, Syntax)>,
    document: &[u8],
    of_side: impl Fn(usize) -> Outcome,
) -> Merged {
    let object = changed.filter(|(changed, _)| is_object(changed));
    let lost = |object: &Value| vec![Conflict { field: String::new(), kept: None, lost: Some(summary(object)) }];
    let kept = || {
        let kept = Some(changed.map_or_else(|| "(no object)".to_owned(), |(changed, _)| summary(changed)));
        Merged { outcome: of_side(1), conflicts: vec![Conflict { field: String::new(), kept, lost: None }] }
    };
    match (prefer, object) {
        (_, Some((changed, _))) if is_another(base, changed) => Merged::clean(of_side(1)),
        (Prefer::Side(1), _) | (Prefer::Later, None) => kept(),
        (Prefer::Side(_), None) => {
            let lost = Some(changed.map_or_else(|| "(no object)".to_owned(), |(changed, _)| summary(changed)));
            Merged { outcome: of_side(0), conflicts: vec![Conflict { field: String::new(), kept: None, lost }] }
        }
        (Prefer::Side(_) | Prefer::Later, Some((changed, syntax))) => {
            let conflicts = if authorship::has_edit_of_a_person(base, changed) { lost(changed) } else { Vec::new() };
            let outcome = match deletion::applied(base, changed) {
                None => of_side(0),
                Some(left) if left == *changed => of_side(1),
                Some(left) => Outcome::New(left.write_over(*syntax, document)),
            };
            Merged { outcome, conflicts }
        }
    }
}

/// Does the same for objects that are stored as protobuf; `None` for any others. An object that would be terminating is left as
/// it is, since gitcd does not write this form.
fn deleted_protobuf(base: Option<&[u8]>, changed: &[u8], of_side: impl Fn(usize) -> Outcome) -> Option<Merged> {
    let (base, changed) = (protobuf::Object::read(base?)?, protobuf::Object::read(changed)?);
    if !changed.is(&base) {
        return Some(Merged::clean(of_side(1)));
    }
    let conflict = |kept: Option<String>, lost| vec![Conflict { field: String::new(), kept, lost }];
    let summary = || Some("(an object in protobuf)".to_owned());
    Some(if changed.is_held(&base) {
        Merged { outcome: of_side(1), conflicts: conflict(summary(), None) }
    } else if changed.has_edit_of_a_person(&base) {
        Merged { outcome: of_side(0), conflicts: conflict(None, summary()) }
    } else {
        Merged::clean(of_side(0))
    })
}

/// Merges two different objects with the same name: takes one of them whole.
fn replaced(prefer: Prefer, base: Option<&Value>, sides: [&Value; 2], of_side: impl Fn(usize) -> Outcome) -> Merged {
    let is_old = sides.map(|side| base.is_some_and(|base| identity(side) == identity(base)));
    let created = sides.map(|side| side.at(&["metadata", "creationTimestamp"]).and_then(Value::as_text));
    let winner = match (prefer, is_old) {
        (Prefer::Side(side), _) => side,
        // The old object was deleted and recreated.
        (Prefer::Later, [true, false]) => 1,
        (Prefer::Later, [false, true]) => 0,
        // The second creation fails, since the object exists.
        (Prefer::Later, _) => usize::from(created[0].is_none() || created[1].is_some() && created[0] >= created[1]),
    };
    let loser = sides[1 - winner];
    if !authorship::has_edit_of_a_person(base.filter(|_| is_old[1 - winner]), loser) {
        return Merged::clean(of_side(winner));
    }
    let [kept, lost] = [sides[winner], loser].map(|side| Some(summary(side)));
    Merged { outcome: of_side(winner), conflicts: vec![Conflict { field: String::new(), kept, lost }] }
}

/// Merges two values that cannot be read.
fn opaque(prefer: Prefer, sides: &[Option<Side<'_>>; 2], of_side: impl Fn(usize) -> Outcome) -> Merged {
    let winner = match prefer {
        Prefer::Side(side) => side,
        Prefer::Later => 1,
    };
    let blob = |side: usize| sides[side].map(|side| format!("blob {}", hex(&side.hash)));
    let conflict = Conflict { field: String::new(), kept: blob(winner), lost: blob(1 - winner) };
    Merged { outcome: of_side(winner), conflicts: vec![conflict] }
}

/// Formats a hash like Git.
pub(crate) fn hex(hash: &[u8]) -> String {
    hash.iter().fold(String::with_capacity(40), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Formats an object as `kind name (uid)`.
fn summary(object: &Value) -> String {
    let text = |path: &[&str]| object.at(path).and_then(Value::as_text).unwrap_or_default().into_owned();
    let (kind, name, uid) = (text(&["kind"]), text(&["metadata", "name"]), text(&["metadata", "uid"]));
    format!("{kind} {name} ({uid})").trim_start().to_owned()
}

/// Returns the `metadata.uid` of an object.
pub fn identity(object: &Value) -> Option<String> {
    object.given(&["metadata", "uid"]).map(std::borrow::Cow::into_owned)
}

/// Returns whether both objects have a uid, and they differ.
fn is_another(base: Option<&Value>, object: &Value) -> bool {
    let uids = [base.and_then(identity), identity(object)];
    uids.iter().all(Option::is_some) && uids[0] != uids[1]
}

/// Returns whether a value is a Kubernetes object.
fn is_object(value: &Value) -> bool {
    let has = |name: &str| value.given(&[name]).is_some();
    has("apiVersion") && has("kind") && value.at(&["metadata"]).and_then(Value::as_map).is_some()
}

/// Returns whether a user loses an edit if the object `value`, which was `base`, is deleted.
pub fn has_edit_of_a_person(base: Option<&[u8]>, value: &[u8]) -> bool {
    let base = base.and_then(read).map(|(base, _)| base);
    read(value).is_none_or(|(value, _)| authorship::has_edit_of_a_person(base.as_ref(), &value))
}

/// Returns the `metadata.uid` of a stored object.
pub fn uid(value: &[u8]) -> Option<String> {
    identity(&Value::parse(value)?.0)
}
