//! Credentials for remotes, in files that are read again each time.

use std::path::PathBuf;

/// Where credentials come from.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// A file as `git credential-store` writes it: a URL with user and password a line.
    pub store: Option<PathBuf>,
    /// A file that holds nothing but a token.
    pub token: Option<PathBuf>,
    /// A private key for SSH.
    pub ssh_key: Option<PathBuf>,
    /// The hosts whose keys are trusted.
    pub ssh_known_hosts: Option<PathBuf>,
}

impl Credentials {
    /// Whether none are given, so that those that Git is configured to use count.
    pub(super) fn are_absent(&self) -> bool {
        self.store.is_none() && self.token.is_none()
    }

    /// User and password for a URL, which may name the user.
    pub(super) fn of(&self, url: &str) -> Option<(String, String)> {
        if let Some(file) = &self.token {
            let token = std::fs::read_to_string(file).ok()?;
            return Some((TOKEN_USER.to_owned(), token.trim().to_owned()));
        }
        let lines = std::fs::read_to_string(self.store.as_ref()?).ok()?;
        lines.lines().find_map(|line| matching(line.trim(), url))
    }
}

/// Hosts that take tokens as passwords do not look at the user.
pub(super) const TOKEN_USER: &str = "token";

/// User and password of a line of a credentials file, if it is for this URL.
pub(super) fn matching(line: &str, url: &str) -> Option<(String, String)> {
    let (scheme, rest) = line.split_once("://")?;
    let (userinfo, place) = rest.rsplit_once('@')?;
    let (user, password) = userinfo.split_once(':')?;
    let (wanted_scheme, wanted) = url.split_once("://")?;
    let (wanted_user, wanted_place) = match wanted.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, wanted),
    };
    let host = |place: &str| place.split('/').next().unwrap_or_default().to_owned();
    let path = place.split_once('/').map(|(_, path)| path).filter(|path| !path.is_empty());
    let is_for = scheme == wanted_scheme
        && host(place) == host(wanted_place)
        && path.is_none_or(|path| wanted_place.split_once('/').is_none_or(|(_, wanted)| wanted == path))
        && wanted_user.is_none_or(|wanted| wanted == user);
    is_for.then(|| (decoded(user), decoded(password)))
}

/// Without `%XX`.
pub(super) fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let code = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        if let Some(byte) = code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            out.push(byte);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_credentials_is_for_its_host_and_user_only() {
        let line = "https://ann:s%40c@git.example.org";
        let found = Some(("ann".to_owned(), "s@c".to_owned()));
        assert_eq!(matching(line, "https://git.example.org"), found);
        assert_eq!(matching(line, "https://ann@git.example.org"), found);
        for other in ["https://bob@git.example.org", "http://git.example.org", "https://git.example.com"] {
            assert_eq!(matching(line, other), None, "{other}");
        }
    }
}
