//! A work tree of stock `git`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::text;

pub(crate) struct Work {
    folder: TempDir,
}

impl Work {
    pub(crate) fn new() -> Self {
        let work = Self { folder: tempfile::tempdir().expect("the temporary folder is writable") };
        work.git(&["init", "-q", "-b", "main"]);
        work
    }

    pub(crate) fn clone(repository: &Path) -> Self {
        let work = Self { folder: tempfile::tempdir().expect("the temporary folder is writable") };
        work.git(&["clone", "-q", "-b", "main", &repository.display().to_string(), "."]);
        work
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub(crate) fn write(&self, file: &str, content: &str) {
        let path = self.path(file);
        std::fs::create_dir_all(path.parent().expect("the file has a parent folder")).expect("the folder is writable");
        std::fs::write(path, content).expect("the folder is writable");
    }

    pub(crate) fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    /// Replaces a text that the file must contain.
    pub(crate) fn edit(&self, file: &str, from: &str, to: &str) {
        let before = self.read(file);
        assert!(before.contains(from), "no {from} in {before}");
        self.write(file, &before.replace(from, to));
    }

    /// Commits all changes.
    pub(crate) fn commit(&self, subject: &str) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-qm", subject]);
    }

    /// Runs `git ARGUMENTS`, which must succeed, and returns both output streams.
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments, "");
        let words = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "git {arguments:?}: {words}");
        words
    }

    /// Like [`Work::git`], with the commit date in seconds since 1970.
    pub(crate) fn git_at(&self, time: u64, arguments: &[&str]) {
        let output = self.run(arguments, &format!("{time} +0000"));
        assert!(output.status.success(), "git {arguments:?}: {}", text(&output.stderr));
    }

    pub(crate) fn run(&self, arguments: &[&str], date: &str) -> Output {
        let mut command = Command::new("git");
        command
            .args(["-c", "safe.directory=*", "-C"])
            .arg(self.folder.path())
            .args(arguments)
            // The user's Git configuration must not affect the tests.
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_EDITOR", "true");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "test").env(format!("GIT_{who}_EMAIL"), "test@localhost");
            if !date.is_empty() {
                command.env(format!("GIT_{who}_DATE"), date);
            }
        }
        command.output().expect("git is installed")
    }
}
