//! Credentials for remotes, from files that are read again for each use.

use std::path::{Path, PathBuf};

use gitcd_core::plain_http::is_exposed;

/// Files with credentials for a remote.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// A file of `git credential-store`: one URL with user and password per line.
    pub store: Option<PathBuf>,
    /// A file that contains only a token.
    pub token: Option<PathBuf>,
    /// A folder, such as a mounted Kubernetes Secret, with `.git-credentials`, or with `username`, `password` and `url`; and with
    /// `ca.crt`, if the server's certificate is not of an authority of this machine.
    pub folder: Option<PathBuf>,
    /// Whether they may be sent over plain HTTP to other machines, where everyone on the way can read them.
    pub plain_http: bool,
    /// A file with certificate authorities (PEM) that are trusted besides those of this machine.
    pub authorities: Option<PathBuf>,
    /// An SSH private key.
    pub ssh_key: Option<PathBuf>,
    /// The known-hosts file for SSH.
    pub ssh_known_hosts: Option<PathBuf>,
}

impl Credentials {
    /// Returns whether no credentials for HTTP are given, so that Git's own configuration applies.
    pub(super) fn are_absent(&self) -> bool {
        self.store.is_none() && self.token.is_none() && self.folder.is_none()
    }

    /// Returns whether no credentials may be sent to a URL, because they could be read on the network.
    pub(super) fn are_withheld(&self, url: &str) -> bool {
        !self.plain_http && is_exposed(url)
    }

    /// Returns the file with the authorities to trust at a URL besides those of this machine. `ca.crt` of a folder is for the
    /// server in `url`, like the password.
    pub(super) fn authorities(&self, url: &str) -> Option<PathBuf> {
        let in_folder = || {
            let folder = self.folder.as_deref().filter(|folder| is_for(folder, url))?;
            Some(folder.join(CA)).filter(|file| file.exists())
        };
        self.authorities.clone().or_else(in_folder)
    }

    /// Returns user and password for a URL, which may name the user.
    pub(super) fn of(&self, url: &str) -> Option<(String, String)> {
        if let Some(file) = &self.token {
            let token = std::fs::read_to_string(file).ok()?;
            return Some((TOKEN_USER.to_owned(), token.trim().to_owned()));
        }
        if let Some(folder) = &self.folder {
            return in_folder(folder, url);
        }
        stored(self.store.as_ref()?, url)
    }
}

fn stored(file: &Path, url: &str) -> Option<(String, String)> {
    let lines = std::fs::read_to_string(file).ok()?;
    lines.lines().find_map(|line| matching(line.trim(), url))
}

/// Returns the credentials in a folder. `.git-credentials` takes precedence; user and password apply to every URL unless a file
/// `url` limits them to one server.
fn in_folder(folder: &Path, url: &str) -> Option<(String, String)> {
    let list = folder.join(".git-credentials");
    if list.exists() {
        return stored(&list, url);
    }
    let password = value(folder, "password")?;
    let user = value(folder, "username").unwrap_or_else(|| TOKEN_USER.to_owned());
    let asked_for = named_user(url).is_none_or(|asked| asked == user);
    (is_for(folder, url) && asked_for).then_some((user, password))
}

/// Returns whether a folder is for the server of a URL: its file `url` names it, or is missing.
fn is_for(folder: &Path, url: &str) -> bool {
    value(folder, "url").is_none_or(|server| origin(&server) == origin(url))
}

/// Returns the text of a file in a folder, unless it is empty.
fn value(folder: &Path, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(folder.join(name)).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Returns scheme and host with port. The default scheme is HTTPS; the scheme's default port is removed.
fn origin(url: &str) -> (String, String) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (scheme, host) = (scheme.to_ascii_lowercase(), host.to_ascii_lowercase());
    let usual = match scheme.as_str() {
        "https" => ":443",
        "http" => ":80",
        _ => "",
    };
    let bare = host.strip_suffix(usual).map(ToOwned::to_owned);
    (scheme, bare.unwrap_or(host))
}

fn named_user(url: &str) -> Option<String> {
    let authority = url.split_once("://")?.1.split('/').next()?;
    authority.rsplit_once('@').map(|(user, _)| decoded(user))
}

/// The file with certificate authorities in a folder, as cert-manager and Flux name it.
const CA: &str = "ca.crt";

/// The user name to send with a token; hosts that accept tokens as passwords ignore it.
pub(super) const TOKEN_USER: &str = "token";

/// Returns user and password from a line of a credentials file, if the line matches the URL.
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

/// Decodes percent-encoding; malformed sequences stay as they are.
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

    #[test]
    fn a_mounted_secret_is_taken_in_each_of_its_forms() {
        let folder = tempfile::tempdir().unwrap();
        let credentials = Credentials { folder: Some(folder.path().to_owned()), ..Credentials::default() };
        let (url, other) = ("https://git.example.org/team/x.git", "https://git.example.com/x.git");
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert!(!credentials.are_absent());
        assert_eq!(credentials.of(url), None);
        write("password", "secret\n");
        assert_eq!(credentials.of(url), pair(TOKEN_USER, "secret"));
        write("username", "ann");
        assert_eq!([credentials.of(url), credentials.of(other)], [pair("ann", "secret"), pair("ann", "secret")]);
        assert_eq!(credentials.of("https://bob@git.example.org/x.git"), None);
        for server in ["https://git.example.org", "git.example.org/", "https://Git.example.org/team"] {
            write("url", server);
            assert_eq!([credentials.of(url), credentials.of(other)], [pair("ann", "secret"), None], "{server}");
        }
        // Its authorities are for that server, too.
        assert_eq!(credentials.authorities(url), None);
        write("ca.crt", "PEM");
        assert_eq!(
            [credentials.authorities(url), credentials.authorities(other)],
            [Some(folder.path().join("ca.crt")), None]
        );
        let flag = Credentials { authorities: Some("/ca.pem".into()), ..credentials.clone() };
        assert_eq!([url, other].map(|url| flag.authorities(url)), [Some("/ca.pem".into()), Some("/ca.pem".into())]);
        write(".git-credentials", "https://eve:s@git.example.com\n");
        assert_eq!([credentials.of(url), credentials.of(other)], [None, pair("eve", "s")]);
    }

    #[test]
    fn credentials_are_withheld_from_plain_http_unless_it_is_allowed() {
        let (withheld, allowed) = (Credentials::default(), Credentials { plain_http: true, ..Credentials::default() });
        for (url, is_withheld) in [
            ("http://git.example.org/x.git", true),
            ("https://git.example.org/x.git", false),
            ("http://127.0.0.1:2480/x.git", false),
            ("git@git.example.org:x.git", false),
        ] {
            assert_eq!((withheld.are_withheld(url), allowed.are_withheld(url)), (is_withheld, false), "{url}");
        }
    }
}
