//! Checks names in manifests before they become paths: Kubernetes' rules also keep them inside their folders.

/// The longest label of [RFC 1123](https://www.rfc-editor.org/rfc/rfc1123).
const LABEL: usize = 63;
/// The longest subdomain in Kubernetes, and the longest key of a Secret or `ConfigMap`.
const SUBDOMAIN: usize = 253;

/// Checks a DNS label, as for volumes, containers and namespaces.
///
/// # Errors
/// A message about `field`.
pub(super) fn label(field: &str, name: &str) -> Result<(), String> {
    if is_label(name) {
        return Ok(());
    }
    Err(format!(
        "{field} {name:?} is not a DNS label: use at most {LABEL} lower-case letters, digits and '-', with a letter or digit at both ends"
    ))
}

/// Checks a DNS subdomain, as for heavens, Secrets and `ConfigMap`s.
///
/// # Errors
/// A message about `field`.
pub(super) fn subdomain(field: &str, name: &str) -> Result<(), String> {
    if is_subdomain(name) {
        return Ok(());
    }
    Err(format!(
        "{field} {name:?} is not a DNS subdomain: use at most {SUBDOMAIN} lower-case letters, digits, '-' and '.', with a letter or digit at the ends of each part"
    ))
}

/// Checks a key of a Secret or a `ConfigMap`.
///
/// # Errors
/// A message about `field`.
pub(super) fn key(field: &str, key: &str) -> Result<(), String> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let is_key = !key.is_empty() && key.len() <= SUBDOMAIN && key.chars().all(fits);
    if is_key && key != "." && !key.starts_with("..") {
        return Ok(());
    }
    Err(format!(
        "{field}: a key has at most {SUBDOMAIN} letters, digits, '-', '_' and '.', does not begin with '..', and is not {key:?}"
    ))
}

/// Checks a path inside a volume.
///
/// # Errors
/// A message about `field`.
pub(super) fn inside(field: &str, path: &str) -> Result<(), String> {
    if path.is_empty() || path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return Err(format!("{field}: the path {path:?} leads out of the volume, or to no file in it"));
    }
    Ok(())
}

pub(super) fn is_subdomain(name: &str) -> bool {
    // As in Kubernetes, its parts may be longer than a label.
    name.len() <= SUBDOMAIN && name.split('.').all(is_part)
}

fn is_label(name: &str) -> bool {
    name.len() <= LABEL && is_part(name)
}

fn is_part(name: &str) -> bool {
    let is_end =
        |letter: Option<u8>| letter.is_some_and(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit());
    let fits = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
    is_end(name.bytes().next()) && is_end(name.bytes().next_back()) && name.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_its_folder() {
        let long = "a".repeat(64);
        for name in ["", ".", "..", "/", "/etc", "../root", "a/b", "-a", "a-", "A", "a_b", "ü", "a\0b", &long] {
            let said = label("spec.volumes[0].name", name).unwrap_err();
            assert!(said.starts_with("spec.volumes[0].name "), "{said}");
            assert_eq!(is_subdomain(name), name == long, "{name:?}");
        }
        assert!(label("x", "a.b").is_err() && label("x", &long[1..]).is_ok() && label("x", "0-a").is_ok());
        assert!(is_subdomain("a.b-c.0") && !is_subdomain("a..b") && !is_subdomain(&long.repeat(4)));
        for name in ["", ".", "..", "..data", "a/b", "ü"] {
            assert!(key("data", name).is_err(), "{name:?}");
        }
        assert!([".a", "tls.crt", "_A-b"].iter().all(|name| key("data", name).is_ok()));
        assert!(["", "/a", "../a", "a/../b"].iter().all(|path| inside("x", path).is_err()));
        assert!(inside("x", "a/b..c").is_ok());
    }
}
