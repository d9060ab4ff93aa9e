//! `gitcd init`.

use anyhow::Context;

use super::{Common, boolean, per_branch};
use crate::recovery::{self, Beginning, Initialized};
use crate::store::revision::Revision;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
    /// Revisions to start from [default: 1]
    #[arg(long, env = "GITCD_START_REVISIONS", value_name = "MAP")]
    start_revisions: Option<String>,
    /// Versions that keys get when they are taken over from existing history [default: 1]
    #[arg(long, env = "GITCD_VERSIONS", value_name = "MAP")]
    versions: Option<String>,
    /// Start anew on a branch that exists: what is in Git stays, revisions start again
    #[arg(long, env = "GITCD_FORCE", value_parser = boolean)]
    force: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let branches = args.common.branches()?;
    let starts = per_branch("start-revisions", args.start_revisions.as_deref())?;
    let versions = per_branch("versions", args.versions.as_deref())?;
    let names = branches.names(&[&starts, &versions]);
    branches.check(&names)?;
    for name in names {
        let config = branches.branch(&name);
        let start = starts.number("start-revisions", &name)?.unwrap_or(Revision::INITIAL.get()).max(1);
        let version = versions.number("versions", &name)?.unwrap_or(1).max(1);
        let beginning = Beginning { revision: Revision::new(start), version, force: args.force };
        let done = recovery::init(&config, beginning).with_context(|| format!("cannot initialise branch {name:?}"))?;
        let (repository, reference) = (config.repository.display(), &config.data_reference);
        match done {
            Initialized::Created => println!("created {reference} in {repository}"),
            Initialized::Adopted => println!("took over the history of {reference} in {repository}"),
            Initialized::Present => println!("{reference} in {repository} is there already; nothing changed"),
        }
    }
    Ok(())
}
