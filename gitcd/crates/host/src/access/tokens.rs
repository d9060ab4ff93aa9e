//! The file with tokens and rights.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::rights::Right;

/// An unusable tokens file.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the tokens in {path:?}: {problem}")]
pub struct Unusable {
    /// The file.
    pub path: PathBuf,
    /// What is wrong; never contains a token.
    pub problem: String,
}

impl Unusable {
    pub(super) fn new(path: &Path, problem: impl Display) -> Self {
        Self { path: path.to_owned(), problem: problem.to_string() }
    }
}

/// An entry as written in the file. Deliberately without `Debug`: it contains a token.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Written {
    user: String,
    token: Option<String>,
    token_sha256: Option<String>,
    #[serde(default)]
    rights: Vec<Right>,
}

/// Tokens and rights of users.
#[derive(Default)]
pub(super) struct Tokens(Vec<Entry>);

struct Entry {
    user: String,
    /// SHA-256 of the token; `None` if the user authenticates with a certificate.
    digest: Option<[u8; 32]>,
    rights: Vec<Right>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|entry| &entry.user)).finish()
    }
}

impl Tokens {
    pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Unusable> {
        // A file that is being rewritten is empty for a moment.
        if bytes.trim_ascii().is_empty() {
            return Err(Unusable::new(path, "it is empty; write [] to deny all access"));
        }
        // serde's own message could quote a token.
        let options = serde_saphyr::options! { with_snippet: false };
        let written: Vec<Written> = serde_saphyr::from_slice_with_options(bytes, options).map_err(|error| {
            let place = error.location().map(|at| format!(" (near line {})", at.line())).unwrap_or_default();
            let rule = "a list of {user, token or token-sha256, rights: [{repository, access: read|write|own}]}";
            Unusable::new(path, format!("it must be {rule}{place}"))
        })?;
        let entries = written.into_iter().map(|written| {
            let wrong = |problem: &str| Unusable::new(path, format!("user {:?}: {problem}", written.user));
            if written.user.is_empty() {
                return Err(wrong("the name is empty"));
            }
            let digest = match (&written.token, &written.token_sha256) {
                (Some(_), Some(_)) => return Err(wrong("either token or token-sha256, not both")),
                (Some(token), None) if token.is_empty() => return Err(wrong("the token is empty")),
                (Some(token), None) => Some(digest(token)),
                (None, Some(hex)) => {
                    Some(from_hex(hex).ok_or_else(|| wrong("token-sha256 must be 64 hexadecimal digits"))?)
                }
                (None, None) => None,
            };
            Ok(Entry { user: written.user.clone(), digest, rights: written.rights.clone() })
        });
        entries.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the user of a token, and the rights. Takes the same time for every token.
    pub(super) fn by_token(&self, token: &str) -> Option<(String, Arc<[Right]>)> {
        let given = digest(token);
        let mut found = Vec::new();
        for entry in &self.0 {
            let Some(digest) = &entry.digest else { continue };
            // Compares all bytes of the digests, not of the tokens.
            let difference = digest.iter().zip(&given).fold(0, |difference, (one, other)| difference | (one ^ other));
            if std::hint::black_box(difference) == 0 {
                found.push(entry);
            }
        }
        let user = found.first()?.user.clone();
        let rights = found.iter().filter(|entry| entry.user == user).flat_map(|entry| entry.rights.clone()).collect();
        Some((user, rights))
    }

    /// Returns the rights of the user named in a certificate.
    pub(super) fn by_certificate(&self, name: &str) -> Arc<[Right]> {
        let entries = self.0.iter().filter(|entry| entry.digest.is_none() && entry.user == name);
        entries.flat_map(|entry| entry.rights.clone()).collect()
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::rights::Access;
    use super::*;

    fn parse(text: &str) -> Result<Tokens, Unusable> {
        Tokens::parse(Path::new("tokens.yaml"), text.as_bytes())
    }

    #[test]
    fn tokens_in_the_clear_and_digests_are_found_and_certificates_are_apart() {
        let hex = "2BB80D537B1DA3E38BD30361AA855686BDE0EACD7162FEF6A25FE97BF527A25B";
        let text = format!(
            "- {{user: a, token: one, rights: [{{repository: x, access: read}}]}}\n\
             - {{user: b, token-sha256: {hex}, rights: [{{repository: y, access: own}}]}}\n\
             - {{user: c, rights: [{{repository: z, access: write}}]}}\n"
        );
        let tokens = parse(&text).unwrap();
        assert_eq!(tokens.by_token("one").unwrap().0, "a");
        let (user, rights) = tokens.by_token("secret").unwrap();
        assert_eq!((user.as_str(), rights[0].access()), ("b", Access::Own));
        for wrong in ["", "two", "One", hex] {
            assert!(tokens.by_token(wrong).is_none(), "{wrong}");
        }
        assert_eq!(tokens.by_certificate("c").len(), 1);
        assert_eq!(tokens.by_certificate("a").len(), 0, "a token is not a certificate");
        assert!(parse("[]").unwrap().by_token("one").is_none());
    }

    #[test]
    fn a_wrong_file_is_refused_without_showing_a_token() {
        for wrong in [
            "- {user: a, token: s3cret, token-sha256: s3cret}",
            "- {user: a, token-sha256: s3cret}",
            "- {user: a, token: ''}",
            "- {user: '', token: s3cret}",
            "- {user: a, token: s3cret, rights: [{repository: x, access: s3cret}]}",
            "- {user: a, s3cret: x}",
            "- {user: a, token: [s3cret]}",
            "s3cret",
            "",
        ] {
            let error = parse(wrong).map(|_| ()).expect_err(wrong).to_string();
            assert!(error.contains("tokens.yaml") && !error.contains("s3cret"), "{wrong}: {error}");
        }
    }
}
