//! `gitcd retain`.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gitcd_core::program::Program;
use gitcd_engine::maintenance::retain::{self as maintenance, CutRequest, Retention};
use gitcd_history::retention::{Cuttable, Keep};
use gitcd_history::when::When;
use gitcd_repo::git_dir;
use serde_json::json;
use tokio::sync::watch;

use super::history::{Place, print_json};
use super::progress::Step;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("what").args(["keep", "keep_commits"]).requires("to"))]
#[command(group = clap::ArgGroup::new("to").args(["archive", "no_archive"]).requires("what"))]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// Keep what was committed since this moment: how long ago (90d), a time (2026-11-22), a revision (4711), or a commit
    #[arg(long, value_parser = When::parse, value_name = "WHEN", required_unless_present = "keep_commits")]
    keep: Option<When>,
    /// Keep at least so many commits
    #[arg(long, value_name = "NUMBER")]
    keep_commits: Option<usize>,
    /// The repository that gets all older commits first; a bare one is created if the folder does not exist
    #[arg(long, value_name = "FOLDER", required_unless_present = "no_archive")]
    archive: Option<PathBuf>,
    /// Remove the older commits without a copy
    #[arg(long)]
    no_archive: bool,
    /// When the removed objects are deleted: gc.pruneExpire (two weeks) after the cut by a gitcd that serves the branch, or now, if no
    /// gitcd, Git host or other Git program uses the repository
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
journal or another reference needs it.

Repositories that read objects of this one (`gitcd fork --shared`, `git clone --shared` and `--reference`) may need what is removed. It
stays as long as a gitcd serves them. Otherwise they are damaged, as git-clone(1) warns; `git repack -a -d` gives them their own objects.";

/// How often a cut is planned because references, or the boundary, moved.
const ATTEMPTS: usize = 3;

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    super::runtime()?.block_on(retain(args))
}

/// What was done.
struct Done<'a> {
    args: &'a Args,
    repository: &'a Path,
    planned: Cuttable,
    pruned: Option<usize>,
}

async fn retain(args: &Args) -> anyhow::Result<()> {
    let repository = git_dir(&args.place.config()?.repository);
    // Its errors name the flags.
    drop(args.place.open()?);
    let keep = match (args.keep, args.keep_commits) {
        (Some(when), _) => Keep::Since(when),
        (None, commits) => Keep::Commits(commits.unwrap_or_default()),
    };
    let done = |planned, pruned| Done { args, repository: &repository, planned, pruned };
    if args.dry_run {
        Retention::check(&repository)?;
        return done(plan(args, &repository, keep)?.1, None).report();
    }
    let git = Program::find().await.context("git cannot be run; install Git 2.32 or later")?;
    let (_running, stopped) = watch::channel(false);
    let retention = Retention::start(git, &repository, stopped)?;
    // Before anything is changed: a server may start at any time.
    let mut locks = if args.prune == Prune::Now { Some(retention.lock_branches()?) } else { None };
    retention.prepare()?;
    let archive = args.archive.as_deref().map(std::path::absolute).transpose()?;
    let mut attempt = 1;
    let planned = loop {
        let (request, planned) = plan(args, &repository, keep)?;
        let Some(request) = request else { break planned };
        let _shown = Step::start("cutting the history");
        match retention.cut(&request, archive.as_deref()).await {
            // The archive has most of it now, so the next attempt is short.
            Err(error) if error.is_outdated() && attempt < ATTEMPTS => attempt += 1,
            made => break made.map(|()| planned)?,
        }
    };
    let pruned = match &mut locks {
        Some(locks) => {
            let _shown = Step::start("pruning the objects");
            Some(retention.prune(locks).await?)
        }
        None => None,
    };
    if planned.cut.is_some() && locks.is_none() {
        retention.search().await?;
    }
    done(planned, pruned).report()
}

/// Plans a cut; nothing if there is nothing to remove.
fn plan(args: &Args, repository: &Path, keep: Keep) -> anyhow::Result<(Option<CutRequest>, Cuttable)> {
    let _shown = Step::start("reading the history");
    let config = args.place.config()?;
    let planned = maintenance::references(repository)?;
    let needed = maintenance::replayed_from(repository)?;
    let needed = needed.into_iter().map(|(branch, oid)| (format!("the journal of branch {branch:?}"), oid));
    let cuttable = args.place.open()?.cut(keep, &needed.collect::<Vec<_>>())?;
    let request = cuttable.cut.as_ref().map(|cut| CutRequest {
        revision: cut.revision,
        oldest: [cut.data, cut.metadata],
        references: [config.data_reference, config.metadata_reference],
        plan: cut.plan.clone(),
        planned,
    });
    Ok((request, cuttable))
}

impl Done<'_> {
    fn report(&self) -> anyhow::Result<()> {
        let remotes = remotes(self.repository);
        let Self { args, planned: Cuttable { cut, kept_for }, pruned, .. } = self;
        let cut = cut.as_ref();
        let commits = cut.map_or(0, |cut| cut.plan.removed.len());
        if args.json {
            return print_json(&json!({
                "revision": cut.map(|cut| cut.revision), "time": cut.map(|cut| cut.time),
                "commit": cut.map(|cut| cut.data.to_string()), "commits": commits,
                "keptFor": kept_for, "prunedObjects": pruned,
                "dryRun": args.dry_run, "remotes": remotes,
            }));
        }
        if let Some(what) = kept_for {
            trishanku_stdio::println!("more is kept than requested, because {what} needs it");
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
        let verb = if args.dry_run { "would remove" } else { "removed" };
        trishanku_stdio::println!("{verb} {commits} commits before revision {}", cut.revision);
        if !args.dry_run {
            match pruned {
                Some(pruned) => trishanku_stdio::println!("pruned {pruned} objects"),
                None => {
                    trishanku_stdio::println!(
                        "their objects are pruned by a gitcd that serves the branch, after gc.pruneExpire (two weeks by default)"
                    );
                }
            }
        }
        trishanku_stdio::println!(
            "values of the removed history may still be in: journal segments and snapshots in {}, backups, clones{}",
            self.repository.join("gitcd").display(),
            if args.no_archive { "" } else { ", the archive" }
        );
        remotes.iter().for_each(|name| trishanku_stdio::println!("  remote {name}"));
        if self.repository.join("logs/HEAD").exists() {
            trishanku_stdio::println!(
                "reflogs keep what they name: run `git -C {} reflog expire --expire=all --all`",
                self.repository.display()
            );
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
