//! `gitcd retain`.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gitcd_core::program::Program;
use gitcd_engine::maintenance::retain::{self as maintenance, Retention};
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
    /// When the removed objects are deleted: after gc.pruneExpire (two weeks) by a gitcd that serves the branch, or now, if no gitcd,
    /// Git host or other Git program uses the repository
    #[arg(long, value_enum, default_value_t = Prune::Later)]
    prune: Prune,
    /// Print what would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// When removed objects are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Prune {
    /// After the grace period
    Later,
    /// Immediately
    Now,
}

const EXAMPLES: &str = "Examples:
  gitcd retain --repo=store.git --keep=90d --archive=archive.git
  gitcd retain --repo=store.git --keep-commits=100000 --archive=archive.git --dry-run
  gitcd log --repo=archive.git -p deployments/default/web

The oldest kept commits lose their parents, as in a shallow clone; no commit gets another ID. More is kept than requested if the
journal, another reference or a fork needs it.";

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    super::runtime()?.block_on(retain(args))
}

/// What was done.
struct Done<'a> {
    args: &'a Args,
    repository: &'a Path,
    cut: Option<Cut>,
    pruned: Option<usize>,
    forks: Vec<String>,
}

async fn retain(args: &Args) -> anyhow::Result<()> {
    let config = args.place.config()?;
    let keep = match (args.keep, args.keep_commits) {
        (Some(when), _) => Keep::Since(when),
        (None, commits) => Keep::Commits(commits.unwrap_or_default()),
    };
    let repository = git_dir(&config.repository);
    let git = Program::find().await.context("git cannot be run; install Git 2.32 or later")?;
    let (_running, stopped) = watch::channel(false);
    let retention = Retention::start(git, &repository, stopped).await?;
    let found = {
        let _shown = Step::start("reading the history");
        let needed = maintenance::replayed_from(&repository)?;
        let needed = needed.into_iter().map(|(branch, oid)| (format!("the journal of branch {branch:?}"), oid));
        args.place.open()?.cut(keep, &needed.collect::<Vec<_>>())?
    };
    let mut pruned = None;
    if !args.dry_run {
        let archive = args.archive.as_deref().map(std::path::absolute).transpose()?;
        let _shown = Step::start("cutting the history");
        if let Some(cut) = &found {
            let request = maintenance::Cut {
                revision: cut.revision,
                oldest: [cut.data, cut.metadata],
                references: [config.data_reference.clone(), config.metadata_reference.clone()],
                plan: cut.plan.clone(),
            };
            retention.cut(&request, archive.as_deref()).await?;
        }
        if args.prune == Prune::Now {
            pruned = Some(retention.prune().await?);
        }
    }
    let forks = retention.forks().map(|path| path.display().to_string()).collect();
    Done { args, repository: &repository, cut: found, pruned, forks }.report()
}

impl Done<'_> {
    fn report(&self) -> anyhow::Result<()> {
        let remotes = remotes(self.repository);
        let Self { args, cut, pruned, forks, .. } = self;
        let commits = cut.as_ref().map_or(0, |cut| cut.plan.removed.len());
        if args.json {
            return print_json(&json!({
                "revision": cut.as_ref().map(|cut| cut.revision), "time": cut.as_ref().map(|cut| cut.time),
                "commit": cut.as_ref().map(|cut| cut.data.to_string()), "commits": commits,
                "keptFor": cut.as_ref().and_then(|cut| cut.kept_for.clone()), "prunedObjects": pruned,
                "dryRun": args.dry_run, "remotes": remotes, "forks": forks,
            }));
        }
        let Some(cut) = cut else {
            match pruned {
                None | Some(0) => trishanku_stdio::println!("nothing older can be removed"),
                Some(pruned) => {
                    trishanku_stdio::println!(
                        "nothing older can be removed; pruned {pruned} objects of an earlier cut"
                    );
                }
            }
            return Ok(());
        };
        if let Some(what) = &cut.kept_for {
            trishanku_stdio::println!("more is kept than requested, because {what} needs it");
        }
        let verb = if args.dry_run { "would remove" } else { "removed" };
        trishanku_stdio::println!("{verb} {commits} commits before revision {}", cut.revision);
        if !args.dry_run {
            match pruned {
                Some(pruned) => trishanku_stdio::println!("pruned {pruned} objects"),
                None => {
                    trishanku_stdio::println!("their objects are pruned after gc.pruneExpire (two weeks by default)");
                }
            }
        }
        trishanku_stdio::println!(
            "values of the removed history may still be in: journal segments and snapshots in {}, backups, clones{}",
            self.repository.join("gitcd").display(),
            if args.no_archive { "" } else { ", the archive" }
        );
        for (kind, all) in [("remote", &remotes), ("fork", forks)] {
            all.iter().for_each(|name| trishanku_stdio::println!("  {kind} {name}"));
        }
        Ok(())
    }
}

/// Returns the remotes of the repository, which may have what was removed.
fn remotes(repository: &Path) -> Vec<String> {
    let opened = git2::Repository::open(repository).and_then(|opened| opened.remotes());
    // The names, because a URL may have a password.
    opened.map(|names| names.iter().flatten().flatten().map(ToOwned::to_owned).collect()).unwrap_or_default()
}
