//! Hints for operators on how to fix a remote that denies access. They contain no secrets.

use std::path::Path;

use super::credentials::Credentials;
use super::program::Failed;
use super::status::Condition;

/// Adds a hint to an error, if there is one.
pub(super) fn add(mut failed: Failed, here: &Path, url: &str, credentials: &Credentials) -> Failed {
    let hint = if is_untrusted(&failed.said) {
        let here = here.display();
        Some(format!("if the certificate is genuine, trust its issuer with `git -C {here} config http.sslCAInfo FILE`"))
    } else if failed.condition == Condition::Denied {
        denied(&failed.said, url, credentials)
    } else {
        None
    };
    if let Some(hint) = hint {
        failed.said = format!("{}; {hint}", failed.said.trim_end_matches(['.', ';', '\n']));
    }
    failed
}

/// Recognizes the messages of rustls, `OpenSSL` and `GnuTLS`.
fn is_untrusted(said: &str) -> bool {
    ["UnknownIssuer", "CaUsedAsEndEntity", "SSL certificate problem", "certificate verification failed"]
        .iter()
        .any(|words| said.contains(words))
}

fn denied(said: &str, url: &str, credentials: &Credentials) -> Option<String> {
    if said.contains("access: own") {
        // The message has its own hint.
        return None;
    }
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Some(if said.contains("Host key verification failed") {
            "pass a file with the host's key with --ssh-known-hosts-file (`ssh-keyscan` prints it; verify it first)"
                .into()
        } else {
            "pass a private key that the server accepts with --ssh-key-file".into()
        });
    }
    let (file, flag) = match (&credentials.token, &credentials.store) {
        (Some(file), _) => (file, "--token-file"),
        (None, Some(file)) => (file, "--credentials-file"),
        (None, None) if has_password(url) => {
            return Some("the user and password in the URL of the remote have no access".into());
        }
        (None, None) => return Some("pass credentials with --token-file or --credentials-file".into()),
    };
    let shown = file.display();
    match std::fs::read_to_string(file) {
        Err(error) => Some(format!("{flag} {shown} cannot be read: {error}")),
        Ok(text) if text.trim().is_empty() => Some(format!("{flag} {shown} is empty")),
        Ok(_) if credentials.of(&without_password(url)).is_none() => {
            Some(format!("{flag} {shown} has no credentials for this URL"))
        }
        Ok(_)
            if said.contains("401 Unauthorized")
                || said.contains("error: 401")
                || said.contains("Authentication failed") =>
        {
            Some(format!("the remote rejects the credentials in {flag} {shown}"))
        }
        Ok(_) => Some(format!("give the owner of {flag} {shown} access to this repository")),
    }
}

fn has_password(url: &str) -> bool {
    without_password(url) != url
}

/// Removes the password from a URL; keeps the user, which selects credentials.
fn without_password(url: &str) -> String {
    let bare = url.split_once("://").and_then(|(scheme, rest)| {
        let (userinfo, _) = rest.split('/').next()?.rsplit_once('@')?;
        let (user, _) = userinfo.split_once(':')?;
        Some(format!("{scheme}://{user}{}", &rest[userinfo.len()..]))
    });
    bare.unwrap_or_else(|| url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(condition: Condition, said: &str, url: &str, credentials: &Credentials) -> String {
        add(Failed { condition, said: said.to_owned() }, Path::new("/r.git"), url, credentials).said
    }

    #[test]
    fn who_is_not_let_in_is_told_what_it_takes() {
        const URL: &str = "https://git.example.org/team/x.git";
        const REFUSED: &str = "Authentication failed for https://git.example.org: 401 Unauthorized";
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
            Some(folder.path().join(name))
        };
        let token = |token| Credentials { token, ..Credentials::default() };
        let store = |store| Credentials { store, ..Credentials::default() };
        let denied = |said: &str, url: &str, credentials: &Credentials| told(Condition::Denied, said, url, credentials);
        for (said, url, credentials, hint) in [
            (REFUSED, URL, Credentials::default(), "pass credentials with --token-file or --credentials-file"),
            (
                REFUSED,
                "https://ann:secret@git.example.org/x.git",
                Credentials::default(),
                "the URL of the remote have no access",
            ),
            (REFUSED, URL, token(Some(folder.path().join("none"))), "none cannot be read: No such file"),
            (REFUSED, URL, token(file("empty", "\n")), "empty is empty"),
            (REFUSED, URL, token(file("token", "secret\n")), "rejects the credentials in"),
            ("403 Forbidden", URL, token(file("token", "secret\n")), "token access to this repository"),
            (
                REFUSED,
                URL,
                store(file("other", "https://a:secret@example.org\n")),
                "other has no credentials for this URL",
            ),
            (REFUSED, URL, store(file("right", "https://a:secret@git.example.org\n")), "rejects the credentials"),
            ("Permission denied (publickey).", "git@h:x.git", Credentials::default(), "--ssh-key-file"),
            ("Host key verification failed.", "ssh://h/x.git", Credentials::default(), "--ssh-known-hosts-file"),
        ] {
            let told = denied(said, url, &credentials);
            assert!(told.starts_with(said.trim_end_matches('.')) && told.contains(hint), "{told}");
            assert!(!told.contains("secret"), "{told}");
        }
        let own = "needs `access: own`";
        assert_eq!(denied(own, URL, &Credentials::default()), own);
        let untrusted =
            told(Condition::Unreachable, "invalid peer certificate: UnknownIssuer", URL, &Credentials::default());
        assert!(untrusted.ends_with("`git -C /r.git config http.sslCAInfo FILE`"), "{untrusted}");
        assert_eq!(told(Condition::Unreachable, "no route", URL, &Credentials::default()), "no route");
    }
}
