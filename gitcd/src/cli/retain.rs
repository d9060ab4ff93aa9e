//! `gitcd retain`.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use gitcd_core::program::Program;
use gitcd_engine::maintenance::retain as maintenance;
use gitcd_engine::maintenance::retain::Prune;
use gitcd_engine::recovery::StateLock;
use gitcd_history::retention::{Cut, Keep};
use gitcd_history::when::When;
use gitcd_repo::git_dir;
use serde_json::json;
use tokio::sync::watch;

use super::history::{Place, print_json};
use super::progress::Step;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("what").required(true))]
#[command(group = clap::ArgGroup::new("to").required(true))]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// Keep what was committed since this moment: how long ago (90d), a time (2026-11-22), or a revision (4711)
    #[arg(long, value_parser = When::parse, value_name = "WHEN", group = "what")]
    keep: Option<When>,
    /// Keep at least so many commits
    #[arg(long, value_name = "NUMBER", group = "what")]
    keep_commits: Option<usize>,
    /// The repository that gets all older commits first; a bare one is created if the folder does not exist
    #[arg(long, value_name = "FOLDER", group = "to")]
    archive: Option<PathBuf>,
    /// Remove the older commits without a copy
    #[arg(long, group = "to")]
    no_archive: bool,
    /// Print what would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  gitcd retain --repo=store.git --keep=90d --archive=archive.git
  gitcd retain --repo=store.git --keep-commits=100000 --archive=archive.git --dry-run
  gitcd log --repo=archive.git -p deployments/default/web

Revisions since the last compaction stay. The oldest kept commits lose their parents, as in a shallow clone; no commit gets another ID. The current state, and all that other
branches have not merged yet, stays. While a gitcd serves the branch, the space is freed after gc.pruneExpire (two weeks).";

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    super::runtime()?.block_on(retain(args))
}

async fn retain(args: &Args) -> anyhow::Result<()> {
    let config = args.place.config()?;
    let keep = match (args.keep, args.keep_commits) {
        (Some(when), _) => Keep::Since(when),
        (None, commits) => Keep::Commits(commits.unwrap_or_default()),
    };
    let repository = git_dir(&config.repository);
    let found = {
        let _shown = Step::start("reading the history");
        let needed = maintenance::replayed_from(&repository)?;
        let needed = needed.into_iter().map(|(branch, oid)| (format!("the journal of branch {branch:?}"), oid));
        args.place.open()?.cut(keep, &needed.collect::<Vec<_>>())?
    };
    let is_served = StateLock::is_taken(&repository, &config.data_reference);
    let mut pruned = 0;
    if !args.dry_run {
        let archive = args.archive.as_deref().map(std::path::absolute).transpose()?;
        let request = found.as_ref().map(|cut| maintenance::Cut {
            revision: cut.revision,
            oldest: [cut.data, cut.metadata],
            references: [config.data_reference.clone(), config.metadata_reference.clone()],
            boundary: cut.boundary.clone(),
            removed: cut.removed.clone(),
        });
        let git = Program::find().await.context("git cannot be run; install Git 2.32 or later")?;
        let (_running, stopped) = watch::channel(false);
        let when = if is_served { Prune::Later } else { Prune::Now };
        let _shown = Step::start("cutting the history");
        pruned = maintenance::retain(&git, &repository, request.as_ref(), archive.as_deref(), when, &stopped).await?;
    }
    match found {
        Some(cut) => report(args, &cut, is_served, pruned),
        None => nothing(args, pruned),
    }
}

fn nothing(args: &Args, pruned: usize) -> anyhow::Result<()> {
    if args.json {
        return print_json(&json!({ "commits": 0, "prunedObjects": pruned, "dryRun": args.dry_run }));
    }
    match pruned {
        0 => trishanku_stdio::println!("nothing is older"),
        pruned => trishanku_stdio::println!("nothing is older; {pruned} objects of an earlier cut are gone"),
    }
    Ok(())
}

fn report(args: &Args, cut: &Cut, is_served: bool, pruned: usize) -> anyhow::Result<()> {
    if args.json {
        return print_json(&json!({
            "revision": cut.revision, "time": cut.time, "commit": cut.data.to_string(), "commits": cut.commits,
            "keptFor": cut.kept_for, "prunedObjects": pruned, "dryRun": args.dry_run,
        }));
    }
    if let Some(reference) = &cut.kept_for {
        trishanku_stdio::println!("more is kept, since {reference} starts from it");
    }
    let Cut { revision, commits, .. } = cut;
    if args.dry_run {
        trishanku_stdio::println!("would remove {commits} commits before revision {revision}");
        return Ok(());
    }
    let space = match (is_served, pruned) {
        (true, _) => "the space is freed after gc.pruneExpire, since a gitcd serves the branch".to_owned(),
        (false, 0) => {
            bail!("the older commits are still needed by something else in the repository; nothing was freed")
        }
        (false, pruned) => format!("{pruned} objects are gone"),
    };
    trishanku_stdio::println!("removed {commits} commits before revision {revision}; {space}");
    Ok(())
}
