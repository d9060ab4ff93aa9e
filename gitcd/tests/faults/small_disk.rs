//! A small disk that can be filled.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A small tmpfs in a private mount namespace, which disappears with the test however it ends.
pub(crate) struct SmallDisk {
    /// Holds the namespace; exits when its standard input closes, so also with the test process.
    keeper: Child,
    mount: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts the file system; returns `None` and prints the reason if this machine does not permit it.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        let mount = tempfile::tempdir().expect("the temporary folder is writable");
        let script =
            format!("mount -t tmpfs -o size={bytes} tmpfs '{}' && echo mounted && exec cat", mount.path().display());
        let mut unshare = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            unshare.arg("--map-root-user");
        }
        let keeper =
            unshare.args(["--mount", "sh", "-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut keeper = match keeper {
            Ok(keeper) => keeper,
            Err(error) => return skip(&format!("cannot run unshare: {error}")),
        };
        let mut line = String::new();
        let stdout = keeper.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("the pipe is readable");
        if line != "mounted\n" {
            keeper.wait().expect("the child is ours");
            return skip("cannot create a mount namespace, or mount in it");
        }
        Some(Self { keeper, mount })
    }

    pub(crate) fn path(&self) -> &Path {
        self.mount.path()
    }

    /// The mount point as this process can reach it.
    fn seen_from_here(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.id()));
        root.join(self.path().strip_prefix("/").expect("the temporary folder's path is absolute"))
    }

    /// The command prefix that runs a program within the namespace.
    pub(crate) fn wrapper(&self) -> Vec<String> {
        let mut words = vec!["nsenter".to_owned(), format!("--target={}", self.keeper.id()), "--mount".to_owned()];
        if !rustix::process::geteuid().is_root() {
            words.extend(["--user".to_owned(), "--preserve-credentials".to_owned()]);
        }
        words.push("--".to_owned());
        words
    }

    fn ballast(&self) -> PathBuf {
        self.seen_from_here().join("ballast")
    }

    /// Takes all remaining space.
    pub(crate) fn fill(&self) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.ballast()).expect("the disk is mounted");
        let block = vec![0; 1 << 16];
        while file.write_all(&block).is_ok() {}
        while file.write_all(&[0]).is_ok() {}
    }

    pub(crate) fn make_room(&self) {
        std::fs::remove_file(self.ballast()).expect("the disk was filled before");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        self.keeper.wait().expect("the child is ours");
    }
}

fn skip(reason: &str) -> Option<SmallDisk> {
    eprintln!("SKIPPED: {reason}");
    None
}
