//! Reading of objects.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use git2::{ErrorClass, ErrorCode, ObjectType, Odb, OdbObject, Oid, Repository};

use super::pack::{self, Kind};

/// Reads an object and checks its ID.
///
/// libgit2 does so for every read with a collision-detecting SHA-1, which takes most of the time to read a large directory.
/// Received objects are checked that way once, on arrival. So the first call turns libgit2's own check off.
///
/// # Errors
/// An error of libgit2, or a hash mismatch.
pub fn read<'o>(odb: &'o Odb<'_>, oid: Oid) -> Result<OdbObject<'o>, git2::Error> {
    static BY_US: Once = Once::new();
    BY_US.call_once(|| git2::opts::strict_hash_verification(false));
    let object = odb.read(oid)?;
    READ.fetch_add(object.len() as u64, Ordering::Relaxed);
    let kind = match object.kind() {
        ObjectType::Commit => Kind::Commit,
        ObjectType::Tree => Kind::Tree,
        ObjectType::Blob => Kind::Blob,
        // gitcd never reads tags this way.
        _ => return Ok(object),
    };
    let found = pack::id(kind, object.data());
    if found != oid {
        let message = format!("object hash mismatch - expected {oid} but got {found}");
        return Err(git2::Error::new(ErrorCode::GenericError, ErrorClass::Odb, message));
    }
    Ok(object)
}

/// Bytes of objects that this process has read.
static READ: AtomicU64 = AtomicU64::new(0);

/// Returns how many bytes of objects [`read`] has returned in this process.
///
/// For every pack that any open repository of the process has used, libgit2 keeps up to 16 MiB of unpacked objects, until the last
/// of these repositories is closed. So a program that keeps a repository open opens it again from time to time.
pub fn bytes_read() -> u64 {
    READ.load(Ordering::Relaxed)
}

/// Returns the bytes of an ID.
pub fn bytes(oid: Oid) -> [u8; 20] {
    oid.as_bytes().try_into().expect("an object ID has 20 bytes")
}

/// Returns whether a tree is that of a Kubernetes cluster: kube-apiserver creates these folders when it starts.
///
/// # Errors
/// A tree is missing or damaged.
pub fn holds_kubernetes(repository: &Repository, tree: Oid) -> Result<bool, git2::Error> {
    let tree = repository.find_tree(tree)?;
    let is_there = |name: &str| tree.get_name(name).is_some_and(|entry| entry.filemode() == 0o040_000);
    Ok(["namespaces", "apiregistration.k8s.io"].into_iter().any(is_there))
}

/// Returns the object that an annotated tag refers to, through nested tags; any other or unreadable object is returned itself.
pub fn peeled(odb: &Odb<'_>, oid: Oid) -> Oid {
    /// Maximum depth of nested tags.
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
