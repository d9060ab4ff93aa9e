//! People who commit to the repository with Git.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::world::World;

/// The ID of no object.
const NONE: &str = "0000000000000000000000000000000000000000";

impl World {
    /// Commits a change of a file on top of an older commit, as a person does on a branch of their own. `edit` returns the new
    /// content; `None` deletes the file. Returns the commit.
    pub(crate) fn commit_of(
        &self,
        person: &str,
        base: &str,
        key: &str,
        edit: impl FnOnce(String) -> Option<String>,
    ) -> String {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        let index = folder.path().join("index");
        let git = |words: &[&str], input: &str| self.git(&index, person, words, input).expect("Git succeeds");
        let path = key.replace("NS", &self.namespace);
        git(&["read-tree", base], "");
        let entry = match edit(git(&["cat-file", "blob", &format!("{base}:{path}")], "")) {
            Some(content) => format!("100644 {}\t{path}\n", git(&["hash-object", "-w", "--stdin"], &content).trim()),
            None => format!("0 {NONE}\t{path}\n"),
        };
        git(&["update-index", "--index-info"], &entry);
        let tree = git(&["write-tree"], "");
        git(&["commit-tree", tree.trim(), "-p", base, "-m", "a person's commit"], "").trim().to_owned()
    }

    /// Does the same, and waits until gitcd has merged the commit.
    pub(crate) async fn merge_of(
        &self,
        person: &str,
        base: &str,
        key: &str,
        edit: impl FnOnce(String) -> Option<String>,
    ) -> String {
        let commit = self.commit_of(person, base, key, edit);
        // gitcd removes the reference when it has merged the commit. Another scenario may have created one, too.
        let push = || self.git(Path::new("none"), person, &["update-ref", "refs/for/main", &commit, NONE], "");
        self.until_so("a reference to be merged can be created", async || push().is_some()).await;
        self.until_so("the commit is merged", async || self.has_commit(&commit).await).await;
        commit
    }

    /// Runs Git on the repository, with an index of its own. Returns what it prints; `None` if it fails.
    fn git(&self, index: &Path, author: &str, words: &[&str], input: &str) -> Option<String> {
        let [_, repository] = self.places(None);
        let mut git = Command::new("git");
        git.arg("-C").arg(repository).args(words).env("GIT_INDEX_FILE", index).env("GIT_DIR", ".");
        for who in ["AUTHOR", "COMMITTER"] {
            git.env(format!("GIT_{who}_NAME"), author).env(format!("GIT_{who}_EMAIL"), "person@example.org");
        }
        let mut child =
            git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("Git is installed");
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin.write_all(input.as_bytes()).expect("Git reads it");
        drop(stdin);
        let output = child.wait_with_output().expect("Git ends");
        if !output.status.success() {
            eprintln!("{words:?}: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        Some(String::from_utf8(output.stdout).expect("the output is UTF-8"))
    }
}
