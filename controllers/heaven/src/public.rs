//! Whether everybody could read what a heaven stores: pure.

use trishanku_api::{GitHubRepository, TrishankuHeavenSpec};

/// A URL as far as it tells one repository from another, whatever way leads there.
pub(crate) fn normalized(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let rest = rest.trim_end_matches('/');
    // As in git@host:owner/name.
    rest.strip_suffix(".git").unwrap_or(rest).replacen(':', "/", 1).to_ascii_lowercase()
}

/// The URLs of a heaven's remotes.
pub(crate) fn remotes(spec: &TrishankuHeavenSpec) -> Vec<String> {
    let git = spec.gitcd.as_ref().and_then(|gitcd| gitcd.git.as_ref());
    git.into_iter().flat_map(|git| &git.remotes).map(|remote| normalized(&remote.repo)).collect()
}

/// The URLs by which a repository on GitHub is reached.
pub(crate) fn urls(repository: &GitHubRepository) -> Vec<String> {
    let status = repository.status.clone().unwrap_or_default();
    let urls = [status.clone_url, status.html_url];
    urls.into_iter().flatten().map(|url| normalized(&url)).collect()
}

/// The first remote that everybody can read, and how that is known, if Secrets would get there in the clear.
pub(crate) fn leak(spec: &TrishankuHeavenSpec, repositories: &[&GitHubRepository]) -> Option<String> {
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
    git.into_iter().flat_map(|git| &git.remotes).find_map(|remote| {
        let name = remote.name.as_deref().unwrap_or("origin");
        if let Some(public) = remote.public {
            return public.then(|| format!("remote {name:?} is public, as its field says"));
        }
        let url = normalized(&remote.repo);
        let found = repositories.iter().find(|repository| urls(repository).contains(&url))?;
        let is_public = found.status.as_ref().and_then(|status| status.private) == Some(false);
        let called = found.metadata.name.as_deref().unwrap_or_default();
        is_public.then(|| format!("remote {name:?} is public, as GitHubRepository {called:?} says"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use trishanku_api::{GitHubRepositorySpec, GitHubRepositoryStatus};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "it is written where it is used")]
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
        ] {
            assert_eq!(normalized(url), "github.com/o/a", "{url}");
        }
        assert_ne!(normalized("https://github.com/o/a"), normalized("https://github.com/o/ab"));
    }

    #[test]
    fn a_public_remote_is_told_unless_what_is_stored_is_encrypted_or_that_is_allowed() {
        let mut repository = GitHubRepository::new("cluster", GitHubRepositorySpec::default());
        let url = Some("https://github.com/example-org/cluster.git".to_owned());
        repository.status = Some(GitHubRepositoryStatus { clone_url: url, private: Some(false), ..Default::default() });
        let told = leak(&spec(json!({})), &[&repository]).unwrap();
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
        assert!(leak(&said, &[]).unwrap().contains("desk"));
        repository.status.as_mut().unwrap().private = Some(true);
        assert_eq!(leak(&spec(json!({})), &[&repository]), None);
    }
}
