//! `gitcd restore`.

use std::path::PathBuf;

use anyhow::Context;
use gitcd_engine::backup::Backup;
use gitcd_engine::recovery;
use gitcd_server::server::{Config, ServeError, Server};

use super::progress::Step;
use super::{Common, loopback};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Snapshot that `etcdctl snapshot save` took of a gitcd or an etcd
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    common: Common,
    /// Raise the revision by N and compact all revisions before it, so that clients that have seen revisions after the
    /// snapshot list again
    #[arg(long, env = "GITCD_BUMP_REVISION", value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    bump_revision: Option<i64>,
    #[arg(long, env = "GITCD_LOOPBACK_CERTIFICATES", value_name = "FOLDER", help = loopback::HELP)]
    loopback_certificates: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let branches = args.common.branches()?;
    let names = branches.names(&[]);
    let [name] = &names[..] else {
        anyhow::bail!("a snapshot has one branch, and the flags name {}: {}", names.len(), names.join(", "));
    };
    let config = branches.branch(name);
    if let Some(folder) = &args.loopback_certificates {
        loopback::ensure(folder)?;
    }
    let backup = shown("reading the snapshot", || Backup::read(&args.file))?;
    let keys = backup.pairs.len();
    let revision = shown(&format!("creating the branch with {keys} keys"), || {
        recovery::restore(&config, &backup, args.bump_revision)
    })
    .with_context(|| format!("cannot restore branch {name:?}"))?;
    let runtime = super::runtime()?;
    shown("committing the history of the snapshot", || runtime.block_on(commit(config.clone())))
        .with_context(|| format!("cannot commit the restored branch {name:?}"))?;
    let (repository, reference) = (config.repository.display(), &config.data_reference);
    trishanku_stdio::println!(
        "restored {reference} in {repository}: revision {revision}, {} leases; serve it with `gitcd serve --repo={repository}`",
        backup.leases.len()
    );
    Ok(())
}

/// Runs a step, and shows it if it takes long.
fn shown<T>(name: &str, step: impl FnOnce() -> T) -> T {
    let _shown = Step::start(name);
    step()
}

/// Commits what a snapshot has after its base revision, so that the repository has all of it before it is served.
async fn commit(branch: gitcd_repo::branch::Config) -> Result<(), ServeError> {
    Server::start(Config::new(branch)).await?.stop().await
}
