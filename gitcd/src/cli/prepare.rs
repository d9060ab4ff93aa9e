//! `gitcd prepare`.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use gitcd_core::blocking::{self, Panicked};
use gitcd_core::error::chain;
use gitcd_repo::branch::Config;
use gitcd_sync::prepare::{Preparation, PrepareError, Prepared, prepare};
use gitcd_sync::progress::FetchProgress;
use gitcd_sync::remote::Remote;
use gitcd_sync::status::Condition;
use tokio::signal::unix::{SignalKind, signal};

use super::progress::{Fetches, clear};
use super::pull::Access;
use super::{Common, boolean, duration, per_branch};

/// First pause between attempts; later pauses are a quarter of the elapsed time.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Longest pause between attempts, to spare remotes that others operate.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

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
    /// References of the remote to merge [default: that of the branch itself]
    #[arg(long, env = "GITCD_REMOTE_DATA_REFERENCE_NAMES", value_name = "MAP")]
    remote_data_reference_names: Option<String>,
    /// Fail if the remote does not have the branch, instead of starting it
    #[arg(long, env = "GITCD_FAIL_ON_NO_BRANCH", value_parser = boolean, num_args = 0..=1, default_missing_value = "true", default_value = "false", action = clap::ArgAction::Set, value_name = "BOOL")]
    fail_on_no_branch: bool,
    /// Fail if the remote does not have the branch to merge
    #[arg(long, env = "GITCD_FAIL_ON_NO_REMOTE_BRANCH", value_parser = boolean, num_args = 0..=1, default_missing_value = "true", default_value = "false", action = clap::ArgAction::Set, value_name = "BOOL")]
    fail_on_no_remote_branch: bool,
    /// Start from the remote's commit of the branch; if false, the remote is only configured
    #[arg(long, env = "GITCD_CLONE", value_parser = boolean, num_args = 0..=1, default_missing_value = "true", default_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    clone: bool,
    /// Start a branch that does not exist yet from the commit to merge; if false, it starts empty
    #[arg(long, env = "GITCD_BEGIN_WITH_REMOTE_BRANCH", value_parser = boolean, num_args = 0..=1, default_missing_value = "true", default_value = "false", action = clap::ArgAction::Set, value_name = "BOOL")]
    begin_with_remote_branch: bool,
    /// How long to wait for a required branch that does not exist yet, and for a remote that does not answer
    #[arg(long, env = "GITCD_WAIT", default_value = "0", value_parser = duration::parse, value_name = "DURATION")]
    wait: Duration,
    #[command(flatten)]
    access: Access,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let runtime = super::runtime()?;
    let prepared = runtime.block_on(async {
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        tokio::select! {
            prepared = prepare_all(args) => prepared,
            // It can be repeated, wherever it stops. PID 1 of a container does not stop without a handler.
            _ = terminate.recv() => bail!("stopped before everything was prepared"),
            _ = interrupt.recv() => bail!("stopped before everything was prepared"),
        }
    });
    runtime.shutdown_background();
    prepared
}

async fn prepare_all(args: &Args) -> anyhow::Result<()> {
    let branches = args.common.branches()?;
    let references = per_branch("remote-data-reference-names", args.remote_data_reference_names.as_deref())?;
    let names = branches.names(&[&references]);
    branches.check(&names)?;
    let began = Instant::now();
    for name in names {
        let config = branches.branch(&name);
        let reference = references.of(&name).map(|name| super::pull::full(name.to_owned())).unwrap_or_default();
        let remote =
            Remote { credentials: args.access.credentials(), ..Remote::named(args.remote_name.clone(), reference) };
        let how = Preparation {
            url: args.remote_url.clone(),
            needs_own: args.fail_on_no_branch,
            needs_theirs: args.fail_on_no_remote_branch,
            clone: args.clone,
            begin_with_theirs: args.begin_with_remote_branch,
            progress: FetchProgress::default(),
        };
        let shown = Fetches::show(args.remote_name.clone(), how.progress.clone());
        let (repository, reference) = (config.repository.display().to_string(), config.data_reference.clone());
        let done = in_time(&config, &remote, &how, began, args.wait).await?;
        drop(shown);
        let origin = &args.remote_name;
        match done.with_context(|| format!("cannot prepare branch {name:?}"))? {
            Prepared::Present => trishanku_stdio::println!("{reference} is already in {repository}, with {origin}"),
            Prepared::Cloned(oid) => {
                trishanku_stdio::println!("{reference} in {repository} continues from {origin}, at {oid}");
            }
            Prepared::BegunWithTheirs(oid) => {
                trishanku_stdio::println!("{reference} in {repository} starts from {origin}'s {oid}");
            }
            Prepared::Nothing => trishanku_stdio::println!("{repository} has {origin}, but has no {reference} yet"),
        }
    }
    Ok(())
}

/// Prepares a branch, and retries until what it needs exists: when everything starts at once, others may still be creating it.
async fn in_time(
    config: &Config,
    remote: &Remote,
    how: &Preparation,
    began: Instant,
    patience: Duration,
) -> Result<Result<Prepared, PrepareError>, Panicked> {
    let mut last_error = String::new();
    loop {
        let (own, theirs, how) = (config.clone(), remote.clone(), how.clone());
        let done = blocking::run("prepare the branch", move || prepare(&own, &theirs, &how)).await?;
        let (elapsed, error) = match &done {
            Err(error) if may_come(error) && began.elapsed() < patience => (began.elapsed(), chain(error)),
            _ => return Ok(done),
        };
        let left = patience.saturating_sub(elapsed);
        if error != last_error {
            clear();
            trishanku_stdio::eprintln!("waiting for up to {} s: {error}", left.as_secs_f64().ceil());
            last_error = error;
        }
        tokio::time::sleep((elapsed / 4).clamp(LOOK_AGAIN, LONGEST_PAUSE).min(left)).await;
    }
}

/// Whether a retry may succeed with nothing changed here.
fn may_come(error: &PrepareError) -> bool {
    match error {
        PrepareError::NoBranch { .. } => true,
        PrepareError::Remote(error) => error.condition == Condition::Unreachable,
        _ => false,
    }
}
