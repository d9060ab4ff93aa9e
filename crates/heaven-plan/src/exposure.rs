//! Whether Secrets would get to a repository that is not known to be private: a pure function of manifests.

use std::net::IpAddr;
use std::sync::Arc;

use trishanku_api::{AutomatedMergeSpec, GitHubRepository, Gitcd, Remote};
use trishanku_framework::Key;
use trishanku_framework::cache::{Cache, Change};

use crate::HeavenParts;
use crate::encryption::Encryption;
use crate::uses::ReferenceIndex;

/// Normalizes a URL to `host/owner/name`, so that all URLs of a repository are equal. Ports are dropped: they only select
/// the protocol.
fn normalized(url: &str) -> String {
    let (has_scheme, rest) = url.split_once("://").map_or((false, url), |(_, rest)| (true, rest));
    // Only in front of the host: a path may have an @.
    let end = rest.find('/').unwrap_or(rest.len());
    let rest = rest[..end].rfind('@').map_or(rest, |at| &rest[at + 1..]);
    let rest = rest.trim_end_matches('/');
    let rest = rest.strip_suffix(".git").unwrap_or(rest).to_ascii_lowercase();
    if !has_scheme {
        // As in git@host:owner/name, or git@[address]:owner/name.
        let address = rest.starts_with('[').then(|| rest.find(']')).flatten().unwrap_or(0);
        let (host, path) = rest.split_at(address);
        return alias(&format!("{host}{}", path.replacen(':', "/", 1)));
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

/// Returns the remotes of a manifest.
fn given(gitcd: Option<&Gitcd>) -> impl Iterator<Item = &Remote> {
    gitcd.and_then(|gitcd| gitcd.git.as_ref()).into_iter().flat_map(|git| &git.remotes)
}

/// Returns the names of the repositories that the remotes of a manifest may be, to be compared with [`urls`].
pub fn remotes(gitcd: Option<&Gitcd>) -> Vec<String> {
    let urls = given(gitcd).map(|remote| normalized(&remote.repo));
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

/// Returns the names that a repository on GitHub has or may have: see [`remotes`].
pub fn urls(repository: &GitHubRepository) -> Vec<String> {
    let status = repository.status.clone().unwrap_or_default();
    let urls = [status.clone_url, status.html_url];
    urls.into_iter().flatten().map(|url| normalized(&url)).chain([wanted(repository)]).collect()
}

/// Returns the objects that may have a changed repository as a remote, by the index of their [`remotes`].
pub fn users_of(remotes: &ReferenceIndex, change: &Change<'_, GitHubRepository>) -> Vec<Key> {
    let repositories = change.before.into_iter().chain(change.after);
    let users = repositories.flat_map(|repository| {
        let namespace = repository.metadata.namespace.clone().unwrap_or_default();
        urls(repository).into_iter().map(move |url| Key::namespaced(&namespace, &url))
    });
    users.flat_map(|url| remotes.of(&url)).collect()
}

fn is_of(repository: &GitHubRepository, url: &str) -> bool {
    let urls = urls(repository);
    // Once the URL is known, only that counts.
    let is_found = repository.status.as_ref().is_some_and(|status| status.html_url.is_some());
    urls.iter().any(|found| found == url) || !is_found && anybodys(url).is_some_and(|url| urls.contains(&url))
}

/// Why Secrets must not be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leak {
    /// A remote is public; the text says how that is known.
    Public(String),
    /// Nothing says whether a remote is public; the text names it.
    Undeclared(String),
    /// It is unknown whether a remote is public; the text names the object that will show it.
    Unknown(String),
}

impl Leak {
    /// Returns the error of a controller, which says what to do.
    pub fn into_error<E>(
        self,
        public: impl FnOnce(String) -> E,
        undeclared: impl FnOnce(String) -> E,
        unknown: impl FnOnce(String) -> E,
    ) -> E {
        match self {
            Self::Public(how) => public(how),
            Self::Undeclared(what) => undeclared(what),
            Self::Unknown(what) => unknown(what),
        }
    }
}

/// Returns the repositories of a namespace that remotes of its heavens and merges may be.
pub fn repositories_in(cache: &Cache<GitHubRepository>, namespace: Option<&str>) -> Vec<Arc<GitHubRepository>> {
    let keys = cache.keys().into_iter().filter(|found| found.namespace() == namespace);
    keys.filter_map(|found| cache.get(&found)).collect()
}

/// Whether only machines of an internal network can reach a repository: a path, or a host without a public name or address.
fn is_internal(repo: &str) -> bool {
    let has_scheme = repo.contains("://");
    if repo.starts_with("file://") || !has_scheme && (repo.starts_with(['/', '.']) || !repo.contains(':')) {
        return true;
    }
    let url = normalized(repo);
    // The port of an IPv6 address is still there.
    let host = match url.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => url.split('/').next().unwrap_or_default(),
    };
    match host.parse() {
        Ok(IpAddr::V4(address)) => address.is_private() || address.is_loopback() || address.is_link_local(),
        Ok(IpAddr::V6(address)) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
        Err(_) => {
            // Programs also read such hosts as addresses, or as other names.
            let is_unusual = !host.is_ascii()
                || host.starts_with("0x")
                || host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            if is_unusual {
                return false;
            }
            let endings = [".svc", ".cluster.local", ".local", ".internal", ".localhost", ".home.arpa"];
            !host.contains('.') || endings.iter().any(|ending| host.ends_with(ending))
        }
    }
}

/// Returns a reason if a heaven's unencrypted Secrets would get to a remote: rather a public one, then one of which nothing is
/// known.
pub fn of_heaven(heaven: &HeavenParts<'_>, repositories: &[&GitHubRepository], encryption: Encryption) -> Option<Leak> {
    if heaven.skips_app || encryption == Encryption::On || heaven.allow_public_secrets {
        return None;
    }
    match (gravest(heaven.gitcd, repositories)?, encryption) {
        // It decides all of them.
        (_, Encryption::Unknown(what)) => Some(Leak::Unknown(what)),
        (Leak::Public(how), Encryption::Off(Some(why))) => Some(Leak::Public(format!("{how}, {why}"))),
        (Leak::Undeclared(what), Encryption::Off(Some(why))) => Some(Leak::Undeclared(format!("{what}, {why}"))),
        (gravest, _) => Some(gravest),
    }
}

/// Returns the same for a merge, which pushes the Secrets of the branches that it merges to all its remotes. Whether they are
/// encrypted there is not known.
pub fn of_merge(spec: &AutomatedMergeSpec, repositories: &[&GitHubRepository]) -> Option<Leak> {
    let pull = spec.gitcd.as_ref().and_then(|gitcd| gitcd.pull.as_ref());
    let pushes =
        pull.is_none_or(|pull| pull.push_after_merge != Some(false) || pull.push_on_pull_failure == Some(true));
    if !pushes || spec.allow_public_secrets == Some(true) {
        return None;
    }
    gravest(spec.gitcd.as_ref(), repositories)
}

/// Returns the gravest reason why a remote must not get Secrets.
fn gravest(gitcd: Option<&Gitcd>, repositories: &[&GitHubRepository]) -> Option<Leak> {
    let leaks = given(gitcd).flat_map(|remote| {
        let name = remote.name.as_deref().unwrap_or("origin");
        let url = normalized(&remote.repo);
        let found: Vec<_> = repositories.iter().filter(|repository| is_of(repository, &url)).collect();
        if let Some(public) = remote.public {
            let said = || Leak::Public(format!("remote {name:?} is public, by its field \"public\""));
            // What GitHub reports counts more than what the manifest says.
            let is_public = |repository: &GitHubRepository| {
                repository.status.as_ref().is_some_and(|status| status.private == Some(false))
            };
            let reported = found.iter().filter(|found| is_public(found)).find_map(|found| because(name, found));
            return reported.or_else(|| public.then(said)).into_iter().collect::<Vec<_>>();
        }
        if found.is_empty() && !is_internal(&remote.repo) {
            return vec![Leak::Undeclared(format!("remote {name:?} ({url}) may be public"))];
        }
        found.into_iter().filter_map(|repository| because(name, repository)).collect()
    });
    leaks.min_by_key(|leak| match leak {
        Leak::Public(_) => 0,
        Leak::Undeclared(_) => 1,
        Leak::Unknown(_) => 2,
    })
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
    use trishanku_api::{GitHubRepositorySpec, GitHubRepositoryStatus, TrishankuHeavenSpec};

    use super::*;

    const OFF: Encryption = Encryption::Off(None);

    fn of_heaven(
        spec: &TrishankuHeavenSpec,
        repositories: &[&GitHubRepository],
        encryption: Encryption,
    ) -> Option<Leak> {
        super::of_heaven(&HeavenParts::of_spec("a", spec), repositories, encryption)
    }

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
            Some(Leak::Public(reason)) => reason,
            other => panic!("{other:?}"),
        };
        let reason = public(of_heaven(&spec(json!({})), &[&repository], OFF));
        assert!(reason.contains("origin") && reason.contains("\"cluster\""), "{reason}");
        for more in [
            json!({"allowPublicSecrets": true}),
            json!({"skip": {"app": true}}),
            json!({"gitcd": {"git": {"remotes": [{"repo": "https://github.com/example-org/other", "public": false}]}}}),
            json!({"gitcd": {"git": {"remotes": [{"repo": "https://git.team.svc/example-org/cluster"}]}}}),
        ] {
            assert_eq!(of_heaven(&spec(more.clone()), &[&repository], OFF), None, "{more}");
        }
        let denied = spec(json!({"gitcd": {"git": {"remotes": [
            {"repo": "https://github.com/example-org/cluster", "public": false},
        ]}}}));
        assert!(public(of_heaven(&denied, &[&repository], OFF)).contains("GitHubRepository"));
        assert_eq!(of_heaven(&spec(json!({})), &[&repository], Encryption::On), None);
        let off = Encryption::Off(Some("because".to_owned()));
        assert!(public(of_heaven(&spec(json!({})), &[&repository], off)).contains("because"));
        let unknown = Encryption::Unknown("Secret".to_owned());
        assert_eq!(of_heaven(&spec(json!({})), &[&repository], unknown), Some(Leak::Unknown("Secret".to_owned())));
        let said = spec(json!({"gitcd": {"git": {"remotes": [{"name": "desk", "repo": "/x", "public": true}]}}}));
        assert!(public(of_heaven(&said, &[], OFF)).contains("desk"));
        repository.status.as_mut().unwrap().private = Some(true);
        assert_eq!(of_heaven(&spec(json!({})), &[&repository], OFF), None);
    }

    #[test]
    fn a_remote_of_which_nothing_is_known_is_reported_unless_it_is_internal() {
        let with = |repo: &str| spec(json!({"gitcd": {"git": {"remotes": [{"repo": repo}]}}}));
        for repo in [
            "https://git.example.org/x",
            "git@git.example.org:x",
            "ssh://git@git.example.org/x",
            "https://8.8.8.8/x",
            "git://[2001:4860::1]:9418/x",
            "http://local.example.org/x",
            "https://git.example.org/~team@corp/x",
            "git@[2001:4860::1]:x",
            "http://134744072/x",
            "http://0x08080808/x",
            "https://example\u{3002}org/x",
        ] {
            let leak = of_heaven(&with(repo), &[], OFF);
            assert!(matches!(&leak, Some(Leak::Undeclared(what)) if what.contains("origin")), "{repo}: {leak:?}");
        }
        for repo in [
            "/srv/x.git",
            "./x",
            "file:///srv/x",
            "https://git/x",
            "http://git.team.svc:8080/x",
            "http://10.1.2.3:3000/x",
            "http://127.0.0.1/x",
            "http://[::1]:3000/x",
            "ssh://git@[fd00::1]:22/x",
            "git@git.corp.internal:x",
            "http://localhost:1/x",
            "https://git.team.svc.cluster.local/x",
        ] {
            assert_eq!(of_heaven(&with(repo), &[], OFF), None, "{repo}");
        }
    }

    #[test]
    fn a_merge_pushes_secrets_only_to_remotes_that_are_known_to_be_private() {
        let merge = |more: Value| {
            let remotes = json!([
                {"name": "in", "repo": "/srv/in.git"}, {"name": "out", "repo": "https://git.example.org/out"},
            ]);
            let mut spec = json!({"app": {"committerName": "m"}, "gitcd": {"git": {"remotes": remotes}}});
            spec["gitcd"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value::<AutomatedMergeSpec>(spec).unwrap()
        };
        let usual = merge(json!({}));
        assert!(matches!(of_merge(&usual, &[]), Some(Leak::Undeclared(what)) if what.contains("\"out\"")));
        let pushes = json!({"pull": {"pushAfterMerge": false, "pushOnPullFailure": true}});
        assert!(of_merge(&merge(pushes), &[]).is_some());
        assert_eq!(of_merge(&merge(json!({"pull": {"pushAfterMerge": false}})), &[]), None, "it pushes nothing");
        let allowed = AutomatedMergeSpec { allow_public_secrets: Some(true), ..usual.clone() };
        assert_eq!(of_merge(&allowed, &[]), None);
        for (public, is_leak) in [(true, true), (false, false)] {
            let mut said = usual.clone();
            said.gitcd.as_mut().unwrap().git.as_mut().unwrap().remotes[1].public = Some(public);
            assert_eq!(matches!(of_merge(&said, &[]), Some(Leak::Public(_))), is_leak);
        }
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
            let leak = of_heaven(&spec, &[&with(fields.clone())], OFF);
            assert!(
                matches!(&leak, Some(Leak::Unknown(object)) if object.contains("\"cluster\"")),
                "{fields}: {leak:?}"
            );
        }
        let public = with(json!({"organization": "example-org", "private": false}));
        let unknown = with(json!({"organization": "example-org"}));
        assert!(matches!(of_heaven(&spec, &[&unknown, &public], OFF), Some(Leak::Public(_))));
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
            assert!(matches!(of_heaven(&spec, &[other], OFF), Some(Leak::Undeclared(_))), "{other:?}");
        }
        // Heavens are reconciled for all repositories that a remote may be.
        let remotes = remotes(spec.gitcd.as_ref());
        assert!([&unknown, &with(json!({}))].iter().all(|found| urls(found).iter().any(|url| remotes.contains(url))));
    }
}
