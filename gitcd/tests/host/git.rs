//! Repositories, accessed through the stock `git`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(crate) struct Repository {
    path: PathBuf,
}

impl Repository {
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    pub(crate) fn init_bare(path: &Path) -> Self {
        command()
            .args(["init", "--quiet", "--bare", "--initial-branch=main"])
            .arg(path)
            .output()
            .expect("git is installed");
        Self::at(path)
    }

    pub(crate) fn clone(url: &str, path: &Path, options: &[&str]) -> Self {
        let output = Self::try_clone(url, path, options);
        assert!(output.status.success(), "git clone {url}: {output:?}");
        let clone = Self::at(path);
        // The HEAD of a cloned empty repository depends on the protocol.
        if clone.run(&["rev-parse", "--verify", "HEAD"]).status.code() != Some(0) {
            clone.git(&["symbolic-ref", "HEAD", "refs/heads/main"]);
        }
        clone
    }

    pub(crate) fn try_clone(url: &str, path: &Path, options: &[&str]) -> Output {
        command().args(["clone", "--quiet"]).args(options).arg(url).arg(path).output().expect("git is installed")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `git ARGUMENTS`, which must succeed, and returns its output.
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "git {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("git's output is UTF-8").trim().to_owned()
    }

    /// Runs `git ARGUMENTS`, which must fail, and returns its error output.
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "git {arguments:?} succeeds");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        command().arg("-C").arg(&self.path).args(arguments).output().expect("git is installed")
    }

    /// Runs `git ARGUMENTS` with this input and returns the bytes that it prints.
    pub(crate) fn feed(&self, arguments: &[&str], input: &str) -> Vec<u8> {
        let mut child = command()
            .arg("-C")
            .arg(&self.path)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("git is installed");
        child.stdin.take().expect("stdin is piped").write_all(input.as_bytes()).expect("git reads its input");
        let output = child.wait_with_output().expect("the child is ours");
        assert!(output.status.success(), "git {arguments:?}");
        output.stdout
    }

    /// Commits a file named `name` and returns the commit's ID.
    pub(crate) fn commit(&self, name: &str) -> String {
        std::fs::write(self.path.join(name), format!("{name}\n")).expect("the work tree is writable");
        self.git(&["add", name]);
        self.git(&["commit", "--quiet", "--message", name]);
        self.id("HEAD")
    }

    pub(crate) fn id(&self, name: &str) -> String {
        self.git(&["rev-parse", "--verify", name])
    }

    /// Lists all references with their objects.
    pub(crate) fn references(&self) -> String {
        self.git(&["for-each-ref", "--format=%(refname) %(objectname)"])
    }

    pub(crate) fn fsck(&self) {
        let check = || {
            let output = self.run(&["fsck", "--full", "--strict", "--no-dangling", "--no-progress"]);
            let words = [output.stdout, output.stderr].concat();
            (output.status, String::from_utf8_lossy(&words).replace("notice: No default references\n", ""))
        };
        let (mut status, mut notice) = check();
        // The host repacks in the background, and Git reports packs that vanish while it reads them, so try again for a while.
        while !notice.is_empty() && notice.lines().all(|line| line.ends_with(".pack index not opened")) {
            (status, notice) = check();
        }
        assert!(status.success() && notice.is_empty(), "git fsck in {}: {notice}", self.path.display());
    }
}

fn command() -> Command {
    let mut command = Command::new("git");
    command
        .args(["-c", "init.defaultBranch=main", "-c", "commit.gpgSign=false", "-c", "credential.helper="])
        .env_remove("GIT_SSL_CAINFO")
        .env_remove("http_proxy")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_AUTHOR_NAME", "test")
        .env("GIT_AUTHOR_EMAIL", "test@localhost")
        .env("GIT_COMMITTER_NAME", "test")
        .env("GIT_COMMITTER_EMAIL", "test@localhost")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_ASKPASS", "true")
        .stdin(Stdio::null());
    command
}
