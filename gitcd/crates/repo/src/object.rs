//! Objects, as they are read.

use std::sync::Once;

use git2::{ErrorClass, ErrorCode, ObjectType, Odb, OdbObject, Oid, Repository};

use super::pack::{self, Kind};

/// Reads an object, and compares it with its id.
///
/// libgit2 does so for every read with a SHA-1 that also looks for collisions, which takes most of the time of a read of a large
/// directory. What others send is looked at in that way once, when it comes. So libgit2's own comparison ends with the first call.
///
/// # Errors
/// libgit2's, or that the content is another one's.
pub fn read<'o>(odb: &'o Odb<'_>, oid: Oid) -> Result<OdbObject<'o>, git2::Error> {
    static BY_US: Once = Once::new();
    BY_US.call_once(|| git2::opts::strict_hash_verification(false));
    let object = odb.read(oid)?;
    let kind = match object.kind() {
        ObjectType::Commit => Kind::Commit,
        ObjectType::Tree => Kind::Tree,
        ObjectType::Blob => Kind::Blob,
        // No reader of ours asks for tags.
        _ => return Ok(object),
    };
    let found = pack::id(kind, object.data());
    if found != oid {
        let message = format!("object hash mismatch - expected {oid} but got {found}");
        return Err(git2::Error::new(ErrorCode::GenericError, ErrorClass::Odb, message));
    }
    Ok(object)
}

/// The bytes of an id.
pub fn bytes(oid: Oid) -> [u8; 20] {
    oid.as_bytes().try_into().expect("an object id has 20 bytes")
}

/// Whether a tree is that of a Kubernetes: a kube-apiserver makes these folders when it starts.
///
/// # Errors
/// A tree is missing or damaged.
pub fn holds_kubernetes(repository: &Repository, tree: Oid) -> Result<bool, git2::Error> {
    let tree = repository.find_tree(tree)?;
    let is_there = |name: &str| tree.get_name(name).is_some_and(|entry| entry.filemode() == 0o040_000);
    Ok(["namespaces", "apiregistration.k8s.io"].into_iter().any(is_there))
}

/// What an annotated tag is of, through tags of tags; an object that is no tag, or cannot be read, is itself.
pub fn peeled(odb: &Odb<'_>, oid: Oid) -> Oid {
    /// Deepest nesting of tags that is followed.
    const MOST: usize = 16;
    let of_tag = |oid: Oid| {
        let (_, kind) = odb.read_header(oid).ok()?;
        if kind != ObjectType::Tag {
            return None;
        }
        let tag = odb.read(oid).ok()?;
        let target = str::from_utf8(tag.data()).ok()?.lines().next()?.strip_prefix("object ")?;
        Oid::from_str(target).ok()
    };
    std::iter::successors(Some(oid), |oid| of_tag(*oid)).take(MOST).last().unwrap_or(oid)
}
