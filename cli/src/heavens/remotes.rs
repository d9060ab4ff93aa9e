//! Replaces repositories that manifests name.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use trishanku_api::Gitcd;

use super::error::RenderError;
use super::manifest::Manifests;
use super::secrets::{SecretError, make_folder};

/// `OLD=NEW`: the URL in the manifests, and the URL or folder to use instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteOption {
    old: String,
    new: String,
}

impl FromStr for RemoteOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.rsplit_once('=') {
            Some((old, new)) if !old.is_empty() && !new.is_empty() => {
                Ok(Self { old: old.to_owned(), new: new.to_owned() })
            }
            _ => Err("expected OLD=NEW, such as https://github.com/me/cluster=/srv/cluster.git".to_owned()),
        }
    }
}

/// Replaces the URLs of remotes; returns the repositories that were created because they did not exist.
///
/// # Errors
/// [`RenderError::Option`] if no remote has the old URL, or a repository cannot be created.
pub(super) fn replace(manifests: &mut Manifests, options: &[RemoteOption]) -> Result<Vec<PathBuf>, RenderError> {
    let mut made = Vec::new();
    for option in options {
        let wrong = |problem: String| {
            let value = format!("{}={}", option.old, option.new);
            RenderError::Option { option: "remote-url", value, problem }
        };
        let folder = folder(&option.new);
        let new = folder.as_ref().map_or_else(|| option.new.clone(), |folder| folder.display().to_string());
        let heavens = manifests.heavens.iter_mut().filter_map(|(_, spec)| spec.gitcd.as_mut());
        let merges = manifests.merges.iter_mut().filter_map(|(_, spec)| spec.gitcd.as_mut());
        let remotes = heavens.chain(merges).filter_map(|gitcd: &mut Gitcd| gitcd.git.as_mut());
        let found: Vec<_> =
            remotes.flat_map(|git| &mut git.remotes).filter(|remote| remote.repo == option.old).collect();
        if found.is_empty() {
            return Err(wrong("no remote has this URL".to_owned()));
        }
        let mut branch = None;
        for remote in found {
            remote.repo.clone_from(&new);
            branch = branch.or_else(|| remote.branches.as_ref()?.data.clone());
        }
        if let Some(folder) = folder.filter(|folder| !folder.exists()) {
            make_bare(&folder, branch.as_deref().unwrap_or("main"))?;
            made.push(folder);
        }
    }
    Ok(made)
}

/// Creates an empty bare repository and its parent folders, with `branch` as its HEAD, which clones check out. Only the owner can
/// read them, since they will contain Secrets.
///
/// # Errors
/// [`SecretError::File`] with the error of `git`.
pub(crate) fn make_bare(folder: &Path, branch: &str) -> Result<(), SecretError> {
    let failed = |reason: String| SecretError::File { path: folder.into(), source: std::io::Error::other(reason) };
    make_folder(folder)?;
    let head = format!("--initial-branch={branch}");
    let made = Command::new("git").args(["init", "--quiet", "--bare", &head]).arg(folder).output();
    let made =
        made.map_err(|error| failed(format!("cannot run git: {error}; install Git (the package is called git)")))?;
    if made.status.success() { Ok(()) } else { Err(failed(String::from_utf8_lossy(&made.stderr).trim().to_owned())) }
}

/// The folder of a repository on this machine.
pub(super) fn folder(url: &str) -> Option<PathBuf> {
    if let Some(path) = url.strip_prefix("file://") {
        return Some(path.into());
    }
    // host:path is an SSH address, unless a slash comes before the colon.
    let is_remote = url.contains("://") || url.find(':').is_some_and(|colon| !url[..colon].contains('/'));
    (!is_remote).then(|| std::path::absolute(url).unwrap_or_else(|_| url.into()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn folders_are_distinguished_from_urls() {
        for (url, is_folder) in [
            ("/a/b.git", true),
            ("b.git", true),
            ("./a:b", true),
            ("file:///a", true),
            ("https://h/a", false),
            ("git@h:a", false),
        ] {
            assert_eq!(folder(url).is_some(), is_folder, "{url}");
        }
    }

    #[test]
    fn a_remote_is_replaced_by_a_repository_that_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let git = json!({"gitcd": {"git": {"remotes": [{"repo": "https://h/x"}]}}});
        let heavens = vec![("a".to_owned(), serde_json::from_value(git).unwrap())];
        let mut manifests = Manifests { heavens, ..Manifests::default() };
        let new = dir.path().join("x.git");
        let option = |old: &str| format!("{old}={}", new.display()).parse::<RemoteOption>().unwrap();
        let said = replace(&mut manifests, &[option("https://h/y")]).unwrap_err().to_string();
        assert!(said.contains("no remote has this URL"), "{said}");
        assert_eq!(replace(&mut manifests, &[option("https://h/x")]).unwrap(), std::slice::from_ref(&new));
        assert!(new.join("HEAD").is_file());
        assert_eq!(new.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let git = manifests.heavens[0].1.gitcd.clone().unwrap().git.unwrap();
        assert_eq!(git.remotes[0].repo, new.display().to_string());
    }
}
