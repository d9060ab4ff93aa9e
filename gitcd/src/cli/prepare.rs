//! `gitcd prepare`.

use anyhow::Context;

use super::pull::Access;
use super::{Common, boolean, per_branch};
use crate::merge::Policy;
use crate::merge::scope::Scope;
use crate::pull::prepare::{Preparation, Prepared, prepare};
use crate::pull::remote::Remote;

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are flags of their own, not states")]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
    /// The remote's name, as for `git remote add`
    #[arg(long, env = "GITCD_REMOTE_NAME", default_value = "origin", value_name = "NAME")]
    remote_name: String,
    /// Its URL, or a path
    #[arg(long, env = "GITCD_REMOTE_URL", value_name = "URL")]
    remote_url: String,
    /// Reference of the remote that is going to be merged [default: that of the branch itself]
    #[arg(long, env = "GITCD_REMOTE_DATA_REFERENCE_NAMES", value_name = "MAP")]
    remote_data_reference_names: Option<String>,
    /// Fail if the remote does not have the branch; otherwise it is begun
    #[arg(long, env = "GITCD_FAIL_ON_NO_BRANCH", value_parser = boolean, num_args = 0..=1, default_missing_value = "true", default_value = "false", action = clap::ArgAction::Set, value_name = "BOOL")]
    fail_on_no_branch: bool,
    /// Fail if the remote does not have the branch that is going to be merged
    #[arg(long, env = "GITCD_FAIL_ON_NO_REMOTE_BRANCH", value_parser = boolean, num_args = 0..=1, default_missing_value = "true", default_value = "false", action = clap::ArgAction::Set, value_name = "BOOL")]
    fail_on_no_remote_branch: bool,
    /// Begin with what the remote has of the branch; if not, the remote is only configured
    #[arg(long, env = "GITCD_CLONE", value_parser = boolean, num_args = 0..=1, default_missing_value = "true", default_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    clone: bool,
    /// Begin a branch that is nowhere with the commit that is going to be merged; if not, it begins empty
    #[arg(long, env = "GITCD_BEGIN_WITH_REMOTE_BRANCH", value_parser = boolean, num_args = 0..=1, default_missing_value = "true", default_value = "false", action = clap::ArgAction::Set, value_name = "BOOL")]
    begin_with_remote_branch: bool,
    #[command(flatten)]
    access: Access,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let branches = args.common.branches()?;
    let references = per_branch("remote-data-reference-names", args.remote_data_reference_names.as_deref())?;
    let names = branches.names(&[&references]);
    branches.check(&names)?;
    let runtime = super::runtime()?;
    for name in names {
        let config = branches.branch(&name);
        let remote = Remote {
            name: args.remote_name.clone(),
            data_reference: references.of(&name).map(|name| super::pull::full(name.to_owned())).unwrap_or_default(),
            policy: Policy::Later,
            scope: Scope::default(),
            fast_forward: true,
            fetch: true,
            push_after_merge: false,
            push_on_pull_failure: false,
            credentials: args.access.credentials(),
        };
        let how = Preparation {
            url: args.remote_url.clone(),
            needs_own: args.fail_on_no_branch,
            needs_theirs: args.fail_on_no_remote_branch,
            clone: args.clone,
            begin_with_theirs: args.begin_with_remote_branch,
        };
        let (repository, reference) = (config.repository.display().to_string(), config.data_reference.clone());
        let done =
            runtime.block_on(async { tokio::task::spawn_blocking(move || prepare(&config, &remote, &how)).await })?;
        let origin = &args.remote_name;
        match done.with_context(|| format!("cannot prepare branch {name:?}"))? {
            Prepared::Present => println!("{reference} is in {repository} already; it knows {origin}"),
            Prepared::Cloned(oid) => println!("{reference} in {repository} goes on where {origin} has it, at {oid}"),
            Prepared::BegunWithTheirs(oid) => println!("{reference} in {repository} begins with {origin}'s {oid}"),
            Prepared::Nothing => println!("{repository} knows {origin}, and has no {reference} yet"),
        }
    }
    Ok(())
}
