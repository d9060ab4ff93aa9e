//! gitcd's repository, inspected with stock `git`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(crate) const DATA: &str = "refs/heads/main";
pub(crate) const METADATA: &str = "refs/gitcd/metadata/main";

/// A bare repository that gitcd serves.
pub(crate) struct Repository {
    path: PathBuf,
    /// Words put before `git`, such as `nsenter …`.
    wrapper: Vec<String>,
}

impl Repository {
    pub(crate) fn at(path: &Path) -> Self {
        Self::through(&[], path)
    }

    /// A repository that `git` accesses through a wrapper.
    pub(crate) fn through(wrapper: &[&str], path: &Path) -> Self {
        Self { path: path.to_owned(), wrapper: wrapper.iter().map(ToString::to_string).collect() }
    }

    /// Runs `gitcd init`.
    pub(crate) fn init(path: &Path) -> Self {
        Self::init_through(&[], path)
    }

    /// Runs `gitcd init` through a wrapper.
    pub(crate) fn init_through(wrapper: &[&str], path: &Path) -> Self {
        let repository = format!("--repo={}", path.display());
        let words = [wrapper, &[env!("CARGO_BIN_EXE_gitcd"), "init", &repository]].concat();
        let output = Command::new(words[0]).args(&words[1..]).output().expect("gitcd can be started");
        assert!(output.status.success(), "{words:?}: {output:?}");
        Self::through(wrapper, path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The segments of the branch's journal, oldest first.
    pub(crate) fn journal(&self) -> Vec<PathBuf> {
        let folder = self.path.join("gitcd/default/journal");
        let entries = folder.read_dir().unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut files: Vec<_> = entries
            .map(|entry| entry.expect("the folder is readable").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
            .collect();
        files.sort();
        files
    }

    /// Runs `git ARGUMENTS`, which must succeed, and returns its output.
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "git {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("git's output is UTF-8")
    }

    /// Runs `git ARGUMENTS`, which may fail.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().expect("git is installed")
    }

    /// Stores `content` as a blob and returns its ID.
    pub(crate) fn blob(&self, content: &str) -> String {
        let file = self.path.join("blob-for-test");
        std::fs::write(&file, content).expect("the repository is writable");
        let name = file.display().to_string();
        let id = self.git(&["hash-object", "-w", &name]);
        std::fs::remove_file(&file).expect("it was just written");
        id.trim().to_owned()
    }

    /// Asserts that `git fsck --full --strict` reports nothing.
    pub(crate) fn fsck(&self) {
        let check = || {
            let output = self.run(&["fsck", "--full", "--strict", "--no-dangling", "--no-progress"]);
            (output.status, [output.stdout, output.stderr].concat())
        };
        let (mut status, mut words) = check();
        // The host repacks in the background, and Git reports packs that vanish while it reads them, so try again for a while.
        let is_joined =
            |words: &[u8]| String::from_utf8_lossy(words).lines().all(|line| line.ends_with(".pack index not opened"));
        while !words.is_empty() && is_joined(&words) {
            (status, words) = check();
        }
        assert!(
            status.success() && words.is_empty(),
            "git fsck in {}: {}",
            self.path.display(),
            String::from_utf8_lossy(&words)
        );
    }

    /// Asserts that `gitcd verify` finds nothing.
    pub(crate) fn verify(&self) {
        let repository = format!("--repo={}", self.path.display());
        let words = [env!("CARGO_BIN_EXE_gitcd"), "verify", &repository, "--key-prefixes=default=/registry"];
        let output = Command::new(words[0]).args(&words[1..]).output().expect("gitcd can be started");
        assert!(output.status.success(), "{words:?}: {output:?}");
    }

    /// Returns the ID that a reference points to.
    pub(crate) fn reference(&self, name: &str) -> String {
        self.git(&["rev-parse", "--verify", name]).trim().to_owned()
    }

    /// Returns paths and contents of all files of a tree.
    pub(crate) fn files(&self, tree: &str) -> BTreeMap<String, Vec<u8>> {
        let listing = self.git(&["ls-tree", "-r", "-z", tree]);
        let entries: Vec<_> = listing
            .split_terminator('\0')
            .map(|line| line.split_once('\t').expect("ls-tree puts a tab before the path"))
            .collect();
        let ids: Vec<_> =
            entries.iter().map(|(entry, _)| entry.rsplit(' ').next().expect("mode, type and id")).collect();
        let contents = self.contents(&ids);
        entries.iter().map(|(_, path)| (*path).to_owned()).zip(contents).collect()
    }

    /// The last revision in Git; 0 in the moment when the metadata reference has moved, but the data reference has not.
    pub(crate) fn committed_revision(&self) -> i64 {
        let data = self.git(&["for-each-ref", "--format=%(objectname)", DATA]);
        let line = self.git(&["rev-list", "--no-walk", "--parents", METADATA]);
        let (data, described) = (data.trim(), line.split_whitespace().next_back().unwrap_or_default());
        if !data.is_empty() && data != described {
            let compared = self.command(&["merge-base", "--is-ancestor", data, described]).output();
            if compared.expect("git is installed").status.success() {
                return 0;
            }
        }
        // Of this metadata, since the reference may have moved meanwhile.
        self.revision_of(line.split_whitespace().next().unwrap_or(METADATA))
    }

    /// The revision of the metadata, from which gitcd resumes: after a crash, the data reference may be behind it.
    pub(crate) fn described_revision(&self) -> i64 {
        self.revision_of(METADATA)
    }

    fn revision_of(&self, metadata: &str) -> i64 {
        let state = self.git(&["cat-file", "blob", &format!("{metadata}:state")]);
        let revision = state.lines().find_map(|line| line.strip_prefix("revision "));
        revision
            .and_then(|revision| revision.parse().ok())
            .unwrap_or_else(|| panic!("no revision in the metadata's state: {state}"))
    }

    fn contents(&self, ids: &[&str]) -> Vec<Vec<u8>> {
        use std::io::{BufRead, BufReader, Read, Write};

        let mut child = self
            .command(&["cat-file", "--batch"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("git is installed");
        let mut stdin = child.stdin.take().expect("piped");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut contents = Vec::with_capacity(ids.len());
        for id in ids {
            writeln!(stdin, "{id}").expect("git reads its input");
            stdin.flush().expect("git reads its input");
            let mut line = String::new();
            stdout.read_line(&mut line).expect("git responds");
            let size = line.trim().rsplit(' ').next().and_then(|size| size.parse().ok());
            let size: usize = size.unwrap_or_else(|| panic!("git cat-file: {line}"));
            let mut content = vec![0; size + 1]; // and a line feed
            stdout.read_exact(&mut content).expect("git's response is complete");
            content.pop();
            contents.push(content);
        }
        drop(stdin);
        assert!(child.wait().expect("the child is ours").success());
        contents
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let words: Vec<_> = self.wrapper.iter().map(String::as_str).chain(["git"]).collect();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            // The tests run git as root on repositories of other users.
            .args(["-c", "safe.directory=*", "-C"])
            .arg(&self.path)
            .args(arguments)
            // The user's Git configuration must not affect the tests.
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", "test")
            .env("GIT_AUTHOR_EMAIL", "test@localhost")
            .env("GIT_COMMITTER_NAME", "test")
            .env("GIT_COMMITTER_EMAIL", "test@localhost")
            .env("GIT_TERMINAL_PROMPT", "0");
        command
    }
}
