//! `gitcd migrate`: from a running etcd to a branch, and back.

mod client;
mod copier;
mod digest;
mod export;
mod import;
mod run;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Copy a running etcd to a new branch, and cut over to it
    ///
    /// Keys have the same values, revisions, versions and leases as in etcd, with the history since etcd's last compaction, so
    /// watches and caches of clients go on after the cut-over. An import that was interrupted continues when it is run again. At
    /// the end, all keys are compared.
    ///
    /// With --cut-over, etcd raises its alarm CORRUPT: it then refuses all writes, but still answers reads and watches, also after a
    /// restart. To return to it, run `etcdctl alarm disarm`.
    Import(Box<import::Args>),
    /// Write a snapshot for `etcdutl snapshot restore` from a running gitcd, or from a snapshot of one
    ///
    /// Keys have the same values, revisions, versions and leases, with the history since the last compaction.
    Export(Box<export::Args>),
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Command::Import(args) => import::run(args),
        Command::Export(args) => export::run(args),
    }
}

/// A file beside another one, which is removed when it is dropped.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    /// Returns its path, at which there is no file: one that a killed command left is removed.
    ///
    /// # Errors
    /// The folder cannot be created or written to.
    fn beside(path: &Path, suffix: &str) -> anyhow::Result<Self> {
        let name = path.file_name().with_context(|| format!("{} has no name", path.display()))?;
        let mut name = name.to_owned();
        name.push(suffix);
        let path = path.with_file_name(name);
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            gitcd_core::durable::make_folder(folder)?;
        }
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", path.display()))
            }
            _ => Ok(Self(path)),
        }
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // It may not have been created, or it was renamed.
        let _absent = std::fs::remove_file(&self.0);
    }
}
