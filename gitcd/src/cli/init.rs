//! `gitcd init`.

use anyhow::Context;

use super::Common;
use crate::config::PerBranch;
use crate::recovery::{self, Beginning, Initialized};
use crate::store::revision::Revision;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
    /// Revisions to start from
    #[arg(long, env = "GITCD_START_REVISIONS", default_value = "", value_name = "MAP")]
    start_revisions: String,
    /// Versions that keys get when they are taken over from existing history
    #[arg(long, env = "GITCD_VERSIONS", default_value = "", value_name = "MAP")]
    versions: String,
    /// Start anew on a branch that exists: what is in Git stays, revisions start again
    #[arg(long, env = "GITCD_FORCE")]
    force: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let branches = args.common.branches()?;
    let starts = PerBranch::parse("start-revisions", &args.start_revisions)?;
    let versions = PerBranch::parse("versions", &args.versions)?;
    for name in branches.names() {
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
