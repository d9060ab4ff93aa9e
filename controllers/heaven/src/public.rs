//! Whether the data of a heaven would be public; pure.

use trishanku_api::{GitHubRepository, TrishankuHeavenSpec};

/// Normalizes a URL to `host/owner/name`, so that all URLs of a repository are equal. Ports are dropped: they only select
/// the protocol.
pub(crate) fn normalized(url: &str) -> String {
    let (has_scheme, rest) = url.split_once("://").map_or((false, url), |(_, rest)| (true, rest));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let rest = rest.trim_end_matches('/');
    let rest = rest.strip_suffix(".git").unwrap_or(rest).to_ascii_lowercase();
    if !has_scheme {
        // As in git@host:owner/name.
        return alias(&rest.replacen(':', "/", 1));
    }
    let (authority, path) = rest.split_once('/').unwrap_or((&rest, ""));
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let host = authority.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(authority, |(host, _)| host);
    alias(&format!("{host}/{path}"))
}

/// Maps GitHub's other host names.
fn alias(url: &str) -> String {
    let other = ["ssh.github.com/", "www.github.com/"].into_iter().find_map(|other| url.strip_prefix(other));
    other.map_or_else(|| url.to_owned(), |path| format!("github.com/{path}"))
}

/// The URLs of a heaven's remotes.
pub(crate) fn remotes(spec: &TrishankuHeavenSpec) -> Vec<String> {
    let git = spec.gitcd.as_ref().and_then(|gitcd| gitcd.git.as_ref());
    let urls = git.into_iter().flat_map(|git| &git.remotes).map(|remote| normalized(&remote.repo));
    urls.flat_map(|url| std::iter::once(anybodys(&url)).flatten().chain([url.clone()]).collect::<Vec<_>>()).collect()
}

/// The name of a repository with unknown owner.
fn anybodys(url: &str) -> Option<String> {
    let parts: Vec<_> = url.split('/').collect();
    let [host, _, name] = parts[..] else { return None };
    Some(format!("{host}/*/{name}"))
}

/// The name of a repository before GitHub was queried. Without an organization, only the token determines the owner.
fn wanted(repository: &GitHubRepository) -> String {
    let api = normalized(repository.spec.api_url.as_deref().unwrap_or("https://github.com"));
    let host = api.split('/').next().unwrap_or_default();
    // The API has its own host for github.com and its tenants; on a GitHub Enterprise server it is a path.
    let host = match host.strip_prefix("api.") {
        Some(rest) if rest == "github.com" || rest.ends_with(".ghe.com") => rest,
        _ => host,
    };
    let owner = repository.spec.organization.as_deref().filter(|organization| !organization.is_empty()).unwrap_or("*");
    format!("{host}/{owner}/{}", repository.metadata.name.as_deref().unwrap_or_default()).to_ascii_lowercase()
}

/// The names that a repository on GitHub has or may have: see [`remotes`].
pub(crate) fn urls(repository: &GitHubRepository) -> Vec<String> {
    let status = repository.status.clone().unwrap_or_default();
    let urls = [status.clone_url, status.html_url];
    urls.into_iter().flatten().map(|url| normalized(&url)).chain([wanted(repository)]).collect()
}

fn is_of(repository: &GitHubRepository, url: &str) -> bool {
    let urls = urls(repository);
    // Once the URL is known, only that counts.
    let is_found = repository.status.as_ref().is_some_and(|status| status.html_url.is_some());
    urls.iter().any(|found| found == url) || !is_found && anybodys(url).is_some_and(|url| urls.contains(&url))
}

/// Why Secrets must not be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leak {
    /// A remote is public; the text says how that is known.
    Public(String),
    /// It is unknown whether a remote is public; the text names the object that will show it.
    Unknown(String),
}

/// Returns a reason if unencrypted Secrets would get to a remote; a public remote takes precedence over an unknown one.
pub(crate) fn leak(spec: &TrishankuHeavenSpec, repositories: &[&GitHubRepository]) -> Option<Leak> {
    let skips_app = spec.skip.as_ref().and_then(|skip| skip.app).unwrap_or_default();
    let apiserver = spec.apiserver.as_ref();
    let is_encrypted = apiserver.is_some_and(|given| {
        given.encryption_configuration_secret_name.is_some()
            || given.extra_args.contains_key("encryption-provider-config")
    });
    if skips_app || is_encrypted || spec.allow_public_secrets == Some(true) {
        return None;
    }
    let git = spec.gitcd.as_ref().and_then(|gitcd| gitcd.git.as_ref());
    let leaks = git.into_iter().flat_map(|git| &git.remotes).flat_map(|remote| {
        let name = remote.name.as_deref().unwrap_or("origin");
        if let Some(public) = remote.public {
            let said = || Leak::Public(format!("remote {name:?} is public, by its field \"public\""));
            return public.then(said).into_iter().collect::<Vec<_>>();
        }
        let url = normalized(&remote.repo);
        let found = repositories.iter().filter(|repository| is_of(repository, &url));
        found.filter_map(|repository| because(name, repository)).collect()
    });
    let (public, unknown): (Vec<_>, Vec<_>) = leaks.partition(|leak| matches!(leak, Leak::Public(_)));
    public.into_iter().chain(unknown).next()
}

/// The verdict on a remote from its `GitHubRepository`.
fn because(name: &str, repository: &GitHubRepository) -> Option<Leak> {
    let called = repository.metadata.name.as_deref().unwrap_or_default();
    let is_private = repository.status.as_ref().and_then(|status| status.private);
    match (is_private, repository.spec.private) {
        (Some(false), _) | (_, Some(false)) => {
            Some(Leak::Public(format!("remote {name:?} is public, according to GitHubRepository {called:?}")))
        }
        (Some(true), _) => None,
        (None, _) => Some(Leak::Unknown(format!(
            "GitHubRepository {called:?} to find out whether remote {name:?} is public (or set the remote's field public)"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use trishanku_api::{GitHubRepositorySpec, GitHubRepositoryStatus};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "shorter at the call sites")]
    fn spec(more: Value) -> TrishankuHeavenSpec {
        let mut spec = json!({"gitcd": {"git": {"remotes": [{"repo": "https://github.com/Example-Org/cluster.git"}]}}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn a_repository_is_known_by_all_its_urls() {
        for url in [
            "https://github.com/o/a",
            "https://me@github.com/O/a.git/",
            "ssh://git@github.com/o/a.git",
            "git@github.com:o/a.git",
            "https://github.com:443/o/a",
            "ssh://git@ssh.github.com:443/o/a.git",
        ] {
            assert_eq!(normalized(url), "github.com/o/a", "{url}");
        }
        assert_ne!(normalized("https://github.com/o/a"), normalized("https://github.com/o/ab"));
    }

    #[test]
    fn a_public_remote_is_reported_unless_secrets_are_encrypted_or_it_is_allowed() {
        let mut repository = GitHubRepository::new("cluster", GitHubRepositorySpec::default());
        let url = Some("https://github.com/example-org/cluster.git".to_owned());
        repository.status = Some(GitHubRepositoryStatus { clone_url: url, private: Some(false), ..Default::default() });
        let public = |leak: Option<Leak>| match leak {
            Some(Leak::Public(told)) => told,
            other => panic!("{other:?}"),
        };
        let told = public(leak(&spec(json!({})), &[&repository]));
        assert!(told.contains("origin") && told.contains("\"cluster\""), "{told}");
        for more in [
            json!({"allowPublicSecrets": true}),
            json!({"skip": {"app": true}}),
            json!({"apiserver": {"encryptionConfigurationSecretName": "e"}}),
            json!({"gitcd": {"git": {"remotes": [{"repo": "https://github.com/example-org/cluster", "public": false}]}}}),
            json!({"gitcd": {"git": {"remotes": [{"repo": "https://github.com/example-org/other"}]}}}),
        ] {
            assert_eq!(leak(&spec(more.clone()), &[&repository]), None, "{more}");
        }
        let said = spec(json!({"gitcd": {"git": {"remotes": [{"name": "desk", "repo": "/x", "public": true}]}}}));
        assert!(public(leak(&said, &[])).contains("desk"));
        repository.status.as_mut().unwrap().private = Some(true);
        assert_eq!(leak(&spec(json!({})), &[&repository]), None);
    }
    #[test]
    fn one_that_has_not_been_looked_at_is_known_by_what_is_wanted() {
        let spec = spec(json!({}));
        let with = |fields: Value| {
            let mut all = json!({"credentialsSecretName": "s", "credentialsSecretTokenKey": "t"});
            all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            GitHubRepository::new("cluster", serde_json::from_value(all).unwrap())
        };
        for fields in [
            json!({"organization": "Example-Org"}),
            json!({"organization": "example-org", "apiUrl": "https://api.github.com:443/", "private": true}),
            json!({"organization": ""}),
        ] {
            let leak = leak(&spec, &[&with(fields.clone())]);
            assert!(matches!(&leak, Some(Leak::Unknown(told)) if told.contains("\"cluster\"")), "{fields}: {leak:?}");
        }
        let public = with(json!({"organization": "example-org", "private": false}));
        let unknown = with(json!({"organization": "example-org"}));
        assert!(matches!(leak(&spec, &[&unknown, &public]), Some(Leak::Public(_))));
        // Another owner; another server; and a user's repository that turns out to be another one.
        let mut other = with(json!({}));
        let url = Some("https://github.com/someone/cluster".to_owned());
        other.status = Some(GitHubRepositoryStatus { html_url: url, private: Some(false), ..Default::default() });
        let others = [
            with(json!({"organization": "other"})),
            with(json!({"organization": "example-org", "apiUrl": "https://github.example.org/api/v3"})),
            other,
        ];
        for other in &others {
            assert_eq!(leak(&spec, &[other]), None, "{other:?}");
        }
        // Heavens are reconciled for all repositories that a remote may be.
        let remotes = remotes(&spec);
        assert!([&unknown, &with(json!({}))].iter().all(|found| urls(found).iter().any(|url| remotes.contains(url))));
    }
}
