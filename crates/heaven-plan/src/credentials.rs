//! Credentials of remotes: whether they would be readable on the network; pure.

use k8s_openapi::api::core::v1::Secret;
use trishanku_api::{Gitcd, Remote};
use trishanku_service::plain_http::is_exposed;

use crate::plan::PlanError;

/// Key of a list of credentials, which takes precedence over all others.
const LIST: &str = ".git-credentials";

/// Checks that the credentials in a Secret would not be sent to a remote over plain HTTP, unless the manifest allows it. gitcd
/// checks the same in the pod; here, the object reports it before there is one.
///
/// Without the Secret, nothing is known, and pods wait for it.
///
/// # Errors
/// [`PlanError`] with the remote.
pub fn check_encryption(gitcd: Option<&Gitcd>, secret: Option<&Secret>) -> Result<(), PlanError> {
    let (Some(gitcd), Some(secret)) = (gitcd, secret) else { return Ok(()) };
    for (at, remote) in exposed_remotes(gitcd) {
        if are_for(secret, &remote.repo) {
            let problem = "would get the credentials in the Secret that credentialsSecretName names over plain HTTP, which does \
                           not encrypt them: use https://, or set gitcd.allowPlainHttpCredentials";
            return Err(PlanError::value(format!("gitcd.git.remotes[{at}].repo"), &remote.repo, problem));
        }
    }
    Ok(())
}

/// Returns the remotes over plain HTTP on other machines, with their positions, unless the manifest allows credentials there.
pub fn exposed_remotes(gitcd: &Gitcd) -> impl Iterator<Item = (usize, &Remote)> {
    let is_allowed = gitcd.allow_plain_http_credentials == Some(true);
    let remotes = gitcd.git.iter().flat_map(|git| &git.remotes).enumerate();
    remotes.filter(move |(_, remote)| !is_allowed && is_exposed(&remote.repo))
}

/// Returns whether gitcd would send credentials in a Secret to a URL.
fn are_for(secret: &Secret, url: &str) -> bool {
    let value = |key: &str| {
        let value = secret.data.as_ref()?.get(key)?;
        Some(String::from_utf8_lossy(&value.0).trim().to_owned())
    };
    if let Some(list) = value(LIST) {
        return list.lines().any(|line| line.contains('@') && origin(line.trim()) == origin(url));
    }
    let has_password = value("password").is_some_and(|password| !password.is_empty());
    has_password && value("url").is_none_or(|server| server.is_empty() || origin(&server) == origin(url))
}

/// Returns scheme and host with port, as gitcd compares them: the default scheme is HTTPS, and default ports are removed.
fn origin(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (scheme, host) = (scheme.to_ascii_lowercase(), host.to_ascii_lowercase());
    let usual = if scheme == "http" { ":80" } else { ":443" };
    format!("{scheme}://{}", host.strip_suffix(usual).unwrap_or(&host))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const PLAIN: &str = "http://git.team.svc:8080/cluster.git";

    fn checked(repo: &str, data: &Value, allowed: &Value) -> Result<(), String> {
        let gitcd = json!({
            "credentialsSecretName": "git", "allowPlainHttpCredentials": allowed,
            "git": {"remotes": [{"repo": "https://git.example.org/x"}, {"name": "team", "repo": repo}]},
        });
        let data = data.as_object().unwrap().iter();
        let data = data.map(|(key, value)| (key.clone(), k8s_openapi::ByteString(value.as_str().unwrap().into())));
        let secret = Secret { data: Some(data.collect()), ..Secret::default() };
        let gitcd: Gitcd = serde_json::from_value(gitcd).unwrap();
        check_encryption(Some(&gitcd), Some(&secret)).map_err(|error| error.to_string())
    }

    #[test]
    fn credentials_that_would_be_sent_over_plain_http_are_reported_with_the_remote() {
        let password = json!({"username": "ann", "password": "secret"});
        for data in [
            password.clone(),
            json!({"password": "secret", "url": "http://git.team.svc:8080"}),
            json!({"password": "secret", "url": ""}),
            json!({".git-credentials": "https://ann:secret@git.example.org\nhttp://ann:secret@git.team.svc:8080\n"}),
        ] {
            let said = checked(PLAIN, &data, &Value::Null).unwrap_err();
            for words in ["spec.gitcd.git.remotes[1].repo", PLAIN, "https://", "allowPlainHttpCredentials"] {
                assert!(said.contains(words), "{said}");
            }
            assert!(!said.contains("secret\""), "{said}");
            assert_eq!(checked(PLAIN, &data, &json!(true)), Ok(()), "{data}");
            assert!(checked(PLAIN, &data, &json!(false)).is_err(), "{data}");
        }
        for (repo, data) in [
            ("https://git.team.svc/x", &password),
            ("http://127.0.0.1:2480/x", &password),
            ("git@git.team.svc:x", &password),
            ("/srv/x.git", &password),
            // Nothing is sent there.
            (PLAIN, &json!({"password": "secret", "url": "https://git.example.org"})),
            (PLAIN, &json!({"password": "secret", "url": "git.team.svc:8080"})),
            (PLAIN, &json!({"ca.crt": "PEM"})),
            (PLAIN, &json!({".git-credentials": "https://ann:secret@git.team.svc:8080", "password": "secret"})),
        ] {
            assert_eq!(checked(repo, data, &Value::Null), Ok(()), "{repo} {data}");
        }
        assert_eq!(check_encryption(None, None), Ok(()));
    }
}
