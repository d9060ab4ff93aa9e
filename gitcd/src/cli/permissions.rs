//! Permissions of the files that gitcd and its `git` processes create.

use std::path::Path;

use rustix::fs::Mode;
use rustix::process::umask;

/// The permissions of group and others.
const NOT_OWNER: u32 = 0o077;

/// Makes new files of this process and its children accessible to its user only, whatever the umask that it was started with:
/// objects, packs and references hold the keys and values of the branch.
pub(super) fn restrict() {
    umask(Mode::from_bits_truncate(NOT_OWNER));
}

/// Gives new files in a repository the permissions of its `core.sharedRepository`, as `git` does.
pub(super) fn share(repository: &Path) {
    let shared =
        git2::Repository::open(repository).and_then(|repository| repository.config()).and_then(|mut config| {
            let shared = config.snapshot()?.get_string("core.sharedRepository")?;
            Ok(mask_of(&shared))
        });
    if let Ok(Some(mask)) = shared {
        umask(Mode::from_bits_truncate(mask));
    }
}

/// Returns the umask for a value of `core.sharedRepository`; `None` for one that does not share the repository.
fn mask_of(shared: &str) -> Option<u32> {
    match shared.to_ascii_lowercase().as_str() {
        "group" | "true" | "1" => Some(0o007),
        "all" | "world" | "everybody" | "2" => Some(0o002),
        octal => {
            let mode = u32::from_str_radix(octal.strip_prefix('0')?, 8).ok().filter(|mode| mode & 0o600 == 0o600)?;
            Some(!mode & NOT_OWNER)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_shared_repository_is_accessible_to_others() {
        for (shared, mask) in [
            ("group", Some(0o007)),
            ("True", Some(0o007)),
            ("all", Some(0o002)),
            ("0640", Some(0o037)),
            ("0600", Some(0o077)),
            ("umask", None),
            ("false", None),
            ("0", None),
            ("0444", None),
            ("9", None),
        ] {
            assert_eq!(mask_of(shared), mask, "{shared}");
        }
    }
}
