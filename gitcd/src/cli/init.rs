//! `gitcd init`.

use std::num::NonZero;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use gitcd_core::revision::Revision;
use gitcd_engine::recovery::{self, Beginning, Initialized};
use gitcd_repo::branch;

use super::progress::Progress;
use super::{Common, boolean, loopback, per_branch};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
    /// Revisions to start from; with existing history, those of the first commit with keys [default: 1]
    #[arg(long, env = "GITCD_START_REVISIONS", value_name = "MAP")]
    start_revisions: Option<String>,
    /// Versions of keys in the commit of existing history that creates them [default: 1]
    #[arg(long, env = "GITCD_VERSIONS", value_name = "MAP")]
    versions: Option<String>,
    /// Read at most N commits of existing history; older keys belong to the first of them
    /// [default: all commits]
    #[arg(long, env = "GITCD_DEPTH", value_name = "N")]
    depth: Option<NonZero<usize>>,
    /// Recreate an existing branch: its history in Git stays, revisions start again
    #[arg(long, env = "GITCD_FORCE", value_parser = boolean)]
    force: bool,
    #[arg(long, env = "GITCD_LOOPBACK_CERTIFICATES", value_name = "FOLDER", help = loopback::HELP)]
    loopback_certificates: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(folder) = &args.loopback_certificates {
        loopback::ensure(folder)?;
    }
    let branches = args.common.branches()?;
    let starts = per_branch("start-revisions", args.start_revisions.as_deref())?;
    let versions = per_branch("versions", args.versions.as_deref())?;
    let names = branches.names(&[&starts, &versions]);
    branches.check(&names)?;
    for name in names {
        let config = branches.branch(&name);
        let start = starts.number("start-revisions", &name)?.unwrap_or(Revision::INITIAL.get()).max(1);
        let version = versions.number("versions", &name)?.unwrap_or(1).max(1);
        let beginning = Beginning { revision: Revision::new(start), version, depth: args.depth, force: args.force };
        let (started, mut shown) = (Instant::now(), Progress::new());
        let done = recovery::init_with(&config, beginning, &mut |branch::Progress { what, done, all }| {
            let of = all.map(|all| format!(" of {all}")).unwrap_or_default();
            shown.show(format_args!("{done}{of} {what}"));
        });
        shown.end();
        let done = done.with_context(|| format!("cannot initialise branch {name:?}"))?;
        let (repository, reference) = (config.repository.display(), &config.data_reference);
        let seconds = started.elapsed().as_secs_f64();
        match done {
            Initialized::Created => trishanku_stdio::println!("created {reference} in {repository}"),
            Initialized::Present => {
                trishanku_stdio::println!("{reference} in {repository} already exists; nothing changed");
            }
            Initialized::Adopted { keys, commits, revision } => trishanku_stdio::println!(
                "took over the history of {reference} in {repository}: {keys} keys, {commits} commits, revision {revision} \
                 ({seconds:.1} s)"
            ),
            Initialized::Converted { keys, revision, renamed, left_out } => {
                trishanku_stdio::println!(
                    "converted {reference} in {repository}, which the Go implementation of gitcd wrote: {keys} keys, revision \
                     {revision} ({seconds:.1} s)"
                );
                if renamed + left_out > 0 {
                    trishanku_stdio::println!(
                        "{renamed} files were renamed, {left_out} ephemeral ones left out, in a separate commit"
                    );
                }
            }
        }
    }
    Ok(())
}
