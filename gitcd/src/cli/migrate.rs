//! `gitcd migrate`: from a running etcd to a branch, and back.

mod copy;
mod digest;
mod export;
mod import;
mod source;

use std::path::{Path, PathBuf};

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
struct Temporary(PathBuf);

impl Temporary {
    fn beside(path: &Path, suffix: &str) -> Self {
        let mut path = path.as_os_str().to_owned();
        path.push(suffix);
        Self(path.into())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // It may not have been created, or it was renamed.
        let _absent = std::fs::remove_file(&self.0);
    }
}
