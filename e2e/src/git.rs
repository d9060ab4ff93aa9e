//! Stock Git on the repository of a control plane.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::Cluster;

/// Runs stock Git in `folder` without the user's configuration, and returns its output.
///
/// # Errors
/// If it fails; the text has the arguments and the output.
pub fn run(folder: &Path, args: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("git");
    plain(command.arg("-C").arg(folder).args(args));
    let output = command.output().context("cannot start git")?;
    let printed = String::from_utf8(output.stdout)?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("git {}: {printed}{errors}", args.join(" "));
    }
    Ok(printed)
}

/// Isolates a command that runs Git from the user's configuration.
pub fn plain(command: &mut Command) {
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env_remove("GIT_DIR");
}

impl Cluster {
    /// Runs Git in the repository of the control plane.
    ///
    /// # Errors
    /// Like [`run`].
    pub fn git(&self, args: &[&str]) -> anyhow::Result<String> {
        run(&self.home().repository(), args)
    }

    /// Returns the committed content of a file, or `None` if it does not exist.
    ///
    /// # Errors
    /// Like [`run`].
    pub fn committed(&self, path: &str) -> anyhow::Result<Option<String>> {
        if self.git(&["ls-tree", "refs/heads/main", "--", path])?.is_empty() {
            return Ok(None);
        }
        let file = format!("refs/heads/main:{path}");
        self.git(&["show", &file]).map(Some)
    }
}
