//! Hints for operators on how to fix a remote that denies access. They contain no secrets.

use super::credentials::Credentials;
use super::status::Condition;
use super::wire::{Cause, PLAIN_HTTP, TransportError};

/// Adds a hint to an error, if there is one.
pub(super) fn add(mut failed: TransportError, url: &str, credentials: &Credentials) -> TransportError {
    let hint = if failed.cause == Cause::UntrustedCertificate {
        Some(match credentials.authorities(url) {
            Some(file) => format!("if the certificate is genuine, add its issuer to {}", file.display()),
            None => "if the certificate is genuine, trust its issuer with --remote-cacert FILE (in a Secret with credentials, ca.crt)"
                .into(),
        })
    } else if failed.cause == Cause::PlainHttp {
        Some(format!(
            "it redirects from https:// to http:// (or Git's url.*.insteadOf rewrites it), where credentials could be read: allow \
             it with {PLAIN_HTTP}"
        ))
    } else if failed.condition == Condition::Denied {
        denied(failed.cause, url, credentials)
    } else {
        None
    };
    if let Some(hint) = hint {
        failed.said = format!("{}; {hint}", failed.said.trim_end_matches(['.', ';', '\n']));
    }
    failed
}

fn denied(cause: Cause, url: &str, credentials: &Credentials) -> Option<String> {
    if cause == Cause::OwnAccess {
        // The message has its own hint.
        return None;
    }
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Some(if cause == Cause::UnknownHostKey {
            "pass a file with the host's key with --ssh-known-hosts-file (`ssh-keyscan` prints it; verify it first)"
                .into()
        } else {
            "pass a private key that the server accepts with --ssh-key-file".into()
        });
    }
    if credentials.are_withheld(url) {
        return Some(format!(
            "credentials are not sent over plain HTTP to another machine: use https://, or allow it with {PLAIN_HTTP}"
        ));
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
        Ok(_) if cause == Cause::Unauthenticated => {
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

    fn hinted(condition: Condition, said: &str, url: &str, credentials: &Credentials) -> String {
        let error = TransportError { condition, said: said.to_owned(), ..TransportError::of(said) };
        add(error, url, credentials).said
    }

    #[test]
    fn an_error_of_denied_access_says_what_to_do() {
        const URL: &str = "https://git.example.org/team/x.git";
        const REFUSED: &str = "Authentication failed for https://git.example.org: 401 Unauthorized";
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
            Some(folder.path().join(name))
        };
        let token = |token| Credentials { token, ..Credentials::default() };
        let store = |store| Credentials { store, ..Credentials::default() };
        let denied =
            |said: &str, url: &str, credentials: &Credentials| hinted(Condition::Denied, said, url, credentials);
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
            let hinted = denied(said, url, &credentials);
            assert!(hinted.starts_with(said.trim_end_matches('.')) && hinted.contains(hint), "{hinted}");
            assert!(!hinted.contains("secret"), "{hinted}");
        }
        let own = "needs `access: own`";
        assert_eq!(denied(own, URL, &Credentials::default()), own);
        let untrusted = hinted(
            Condition::Unreachable,
            "SSL certificate problem: self-signed certificate",
            URL,
            &Credentials::default(),
        );
        assert!(untrusted.contains("issuer with --remote-cacert FILE"), "{untrusted}");
        let redirected = hinted(
            Condition::Unreachable,
            "fatal: unable to access 'https://h/x/': Protocol \"http\" disabled",
            URL,
            &Credentials::default(),
        );
        assert!(redirected.contains("--allow-plain-http-credentials"), "{redirected}");
        let plain = denied(REFUSED, "http://git.example.org/team/x.git", &token(file("token", "secret\n")));
        assert!(plain.contains("use https://") && !plain.contains("rejects"), "{plain}");
        assert_eq!(hinted(Condition::Unreachable, "no route", URL, &Credentials::default()), "no route");
    }
}
