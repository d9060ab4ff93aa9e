//! A small disk that can be filled.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A small file system that only a private mount namespace knows; it goes when the test does, however that ends.
pub(crate) struct SmallDisk {
    /// Keeps the namespace; ends with its standard input, so also with the test's process.
    keeper: Child,
    mount: tempfile::TempDir,
}

impl SmallDisk {
    /// Nothing, with the reason printed, if this machine does not let us.
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
            Err(error) => return skip(&format!("unshare cannot be run: {error}")),
        };
        let mut line = String::new();
        let stdout = keeper.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a pipe can be read");
        if line != "mounted\n" {
            keeper.wait().expect("the child is ours");
            return skip("no mount namespace, or no mount in it, is allowed here");
        }
        Some(Self { keeper, mount })
    }

    pub(crate) fn path(&self) -> &Path {
        self.mount.path()
    }

    /// The same folder as this process can reach it.
    fn seen_from_here(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.id()));
        root.join(self.path().strip_prefix("/").expect("a temporary folder is absolute"))
    }

    /// What runs a program within the namespace.
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

    /// Takes all the room that is left.
    pub(crate) fn fill(&self) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.ballast()).expect("the disk is mounted");
        let block = vec![0; 1 << 16];
        while file.write_all(&block).is_ok() {}
        while file.write_all(&[0]).is_ok() {}
    }

    pub(crate) fn make_room(&self) {
        std::fs::remove_file(self.ballast()).expect("it was filled before");
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
