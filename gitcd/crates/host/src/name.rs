//! Names of repositories, and the folders that they mean.

use std::path::{Path, PathBuf};

/// Deeper ones are not looked for, neither by clients nor when crashes are cleaned up after.
pub(super) const MAX_COMPONENTS: usize = 8;
const MAX_COMPONENT_BYTES: usize = 100;

/// The name of a repository, without `.git` at its end. It cannot lead out of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name(String);

impl Name {
    /// `team/project` or `team/project.git`; `None` for everything that is no such name.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let stem = text.strip_suffix(".git").unwrap_or(text);
        let components = stem.split('/');
        let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
        let is_sound = |component: &str| {
            (1..=MAX_COMPONENT_BYTES).contains(&component.len())
                && !component.starts_with('.')
                && component.bytes().all(plain)
        };
        // Of another ending the first would be a part of the name, and the folder one that has another name, too.
        let is_other = stem.strip_suffix(".git").is_some();
        (!is_other && components.clone().count() <= MAX_COMPONENTS && components.clone().all(is_sound))
            .then(|| Self(stem.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The bare repository of this name below `root`, a path without symbolic links. Links below it are followed as long as they
    /// stay below it.
    pub(super) fn find(&self, root: &Path) -> Option<PathBuf> {
        let folders = [root.join(format!("{}.git", self.0)), root.join(&self.0)];
        let found = folders.into_iter().find(|folder| is_repository(folder))?;
        let real = found.canonicalize().ok()?;
        real.starts_with(root).then_some(real)
    }

    /// Where a repository of this name may be made: the folder around it and the name in it. `None` if something is there, or
    /// if it would be inside of another repository or outside of `root`.
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

/// As Git decides it.
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
        for name in ["out", "up/outside", "team", "none"] {
            assert_eq!(find(name), None, "{name}");
        }
        let place = |name: &str| Name::parse(name).unwrap().place(&root);
        assert_eq!(place("new/c"), Some((root.join("new"), "c.git".to_owned())));
        for name in ["a", "team", "a.git/inner", "team/b/inner", "up/new", "out"] {
            assert_eq!(place(name), None, "{name}");
        }
    }
}
