//! Repository names and their folders.

use std::path::{Path, PathBuf};

/// Depth limit, for requests and for the cleanup after a crash.
pub(super) const MAX_COMPONENTS: usize = 8;
const MAX_COMPONENT_BYTES: usize = 100;

/// A repository name, without the `.git` suffix. It cannot escape the root.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name(String);

impl Name {
    /// Parses `team/project` or `team/project.git`; `None` if the name is invalid.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let stem = text.strip_suffix(".git").unwrap_or(text);
        let components = stem.split('/');
        let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
        let is_sound = |component: &str| {
            (1..=MAX_COMPONENT_BYTES).contains(&component.len())
                && !component.starts_with('.')
                && component.bytes().all(plain)
        };
        // `a.git.git` would be a repository `a.git`, whose folder could also be that of `a`.
        let is_other = stem.strip_suffix(".git").is_some();
        (!is_other && components.clone().count() <= MAX_COMPONENTS && components.clone().all(is_sound))
            .then(|| Self(stem.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Finds the bare repository of this name below the canonical `root`. Follows symbolic links that stay below it. A folder
    /// inside a repository is none: clients decide what is in `refs`.
    pub(super) fn find(&self, root: &Path) -> Option<PathBuf> {
        let folders = [root.join(format!("{}.git", self.0)), root.join(&self.0)];
        let found = folders.into_iter().find(|folder| is_repository(folder))?;
        let real = found.canonicalize().ok()?;
        let is_inside = [&found, &real].into_iter().any(|folder| is_inside_repository(folder, root));
        (real.starts_with(root) && !is_inside).then_some(real)
    }

    /// Returns the parent folder and file name for a new repository. `None` if the path is taken, inside another repository, or
    /// outside `root`.
    pub(super) fn place(&self, root: &Path) -> Option<(PathBuf, String)> {
        let (folder, last) = self.0.rsplit_once('/').unwrap_or(("", &self.0));
        let mut parent = root.to_owned();
        for component in folder.split('/').filter(|component| !component.is_empty()) {
            parent.push(component);
            let taken = match parent.symlink_metadata() {
                Ok(found) => !found.is_dir() || is_repository(&parent),
                Err(_) => false,
            };
            if taken {
                return None;
            }
        }
        let last = format!("{last}.git");
        let free = [parent.join(&last), root.join(&self.0)].iter().all(|path| path.symlink_metadata().is_err());
        free.then_some((parent, last))
    }
}

/// Whether a folder between `root` and `folder` is a repository.
fn is_inside_repository(folder: &Path, root: &Path) -> bool {
    folder.ancestors().skip(1).take_while(|above| above.starts_with(root)).any(is_repository)
}

/// Whether a folder is a bare repository, by Git's own criteria.
pub(super) fn is_repository(folder: &Path) -> bool {
    folder.join("HEAD").is_file() && folder.join("objects").is_dir() && folder.join("refs").is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_words_with_slashes() {
        for (text, name) in [("a", "a"), ("a.git", "a"), ("team/a-b_c.d.git", "team/a-b_c.d"), ("a.git/b", "a.git/b")] {
            assert_eq!(Name::parse(text).map(|name| name.0).as_deref(), Some(name), "{text}");
        }
        let long = "a".repeat(101);
        let deep = ["a"; 9].join("/");
        for text in [
            "",
            ".git",
            "..",
            "../a",
            "a/..",
            "a/../b",
            "/a",
            "a/",
            "a//b",
            ".a",
            "a/.b",
            "a/.git",
            "a%2e",
            "a b",
            "a\\b",
            "a\0",
            "ä",
            "~a",
            "a.git.git",
            "a/b.git.git",
            &long,
            &deep,
        ] {
            assert_eq!(Name::parse(text), None, "{text}");
        }
    }

    #[test]
    fn links_out_of_the_root_and_repositories_in_repositories_are_not_served() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let root = base.join("root");
        for path in ["root/a.git", "root/team/b", "outside"] {
            git2::Repository::init_bare(base.join(path)).unwrap();
        }
        std::os::unix::fs::symlink(base.join("outside"), root.join("out.git")).unwrap();
        std::os::unix::fs::symlink(&base, root.join("up")).unwrap();
        std::os::unix::fs::symlink(root.join("a.git"), root.join("link.git")).unwrap();
        let find = |name: &str| Name::parse(name).unwrap().find(&root);
        assert_eq!(find("a"), Some(root.join("a.git")));
        assert_eq!(find("team/b.git"), Some(root.join("team/b")));
        assert_eq!(find("link"), Some(root.join("a.git")));
        // A push can make these folders look like repositories.
        for path in ["root/a.git/refs", "root/a.git/refs/heads", "root/team/b/x.git"] {
            git2::Repository::init_bare(base.join(path)).unwrap();
        }
        std::os::unix::fs::symlink(root.join("a.git/refs"), root.join("refs-of-a")).unwrap();
        for name in ["out", "up/outside", "team", "none", "a.git/refs", "a.git/refs/heads", "team/b/x", "refs-of-a"] {
            assert_eq!(find(name), None, "{name}");
        }
        assert_eq!(find("a"), Some(root.join("a.git")));
        let place = |name: &str| Name::parse(name).unwrap().place(&root);
        assert_eq!(place("new/c"), Some((root.join("new"), "c.git".to_owned())));
        for name in ["a", "team", "a.git/inner", "team/b/inner", "up/new", "out"] {
            assert_eq!(place(name), None, "{name}");
        }
    }
}
