//! `gitcd fork`.

use std::path::PathBuf;

use anyhow::Context as _;
use gitcd_core::program::Program;
use gitcd_engine::{maintenance, recovery};
use gitcd_history::when::When;
use gitcd_repo::forks::{Lifetime, Registration, Unregistered};
use gitcd_repo::{branch, git_dir};
use serde_json::json;
use tokio::sync::watch;

use super::history::Place;
use super::history::{note, print_json};
use super::progress::Step;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "they are flags of their own, not states")]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// Folder of the fork's repository, which must not exist or be empty
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Fork the branch as of a revision (4711), how long ago (10m), or a time (2026-11-22, '2026-11-22 15:04',
    /// 2026-11-22T15:04:05Z)
    #[arg(long, value_parser = When::parse, default_value = "now", value_name = "WHEN")]
    at: When,
    /// Make the existing fork in FOLDER independent: copy all objects that it needs into it, and stop sharing. No gitcd may serve it
    #[arg(long, conflicts_with_all = ["at", "temporary", "unregistered"])]
    independent: bool,
    /// Fork although the fork cannot be registered in a repository that is mounted read only here, or belongs to another user. If a gitcd
    /// deletes objects there (a cut, or its daily maintenance), the fork is damaged
    #[arg(long)]
    unregistered: bool,
    /// The fork is used only as long as a process runs that removes it: it counts as removed as soon as its folder is not found
    #[arg(long)]
    temporary: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  gitcd fork --repo=store.git trial.git
  gitcd fork --repo=store.git --at=10m trial.git
  gitcd serve --repo=trial.git --key-prefixes=/registry --listen-urls=http://127.0.0.1:2579

The fork shares the objects of the repository and writes only its own. It is registered there, and in every repository that this one
shares objects with: gitcd removes no history and no objects there while the fork may exist. To discard it, remove its folder. To make
it independent, run `gitcd fork --independent FOLDER` while it is not served; forks of it come first.

Other Git programs do not know forks: set gc.pruneExpire=never in the repository if `git gc` may run there. Repositories that share
objects in other ways, such as with `git clone --shared`, are known to gitcd once it has served them.";

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    if args.independent {
        return super::runtime()?.block_on(make_independent(args));
    }
    let origin = args.place.config()?;
    let folder = std::path::absolute(&args.folder)?;
    let lifetime = if args.temporary { Lifetime::Temporary } else { Lifetime::Permanent };
    // Before the moment is read: from here on, nothing that it needs is removed.
    let unregistered = if args.unregistered { Unregistered::Accepted } else { Unregistered::Refused };
    let registration = Registration::start(&git_dir(&origin.repository), &folder, lifetime, unregistered)?;
    let history = args.place.open()?;
    let moment = history.at(args.at)?;
    let named = branch::Config::named(folder.clone(), branch::DEFAULT_NAME);
    let config = branch::Config { keys: history.keys().clone(), ..named };
    let revision = {
        let _shown = Step::start("forking the branch");
        recovery::fork(&config, registration, history.fork_point(&moment)?)?
    };
    if args.json {
        let (data, time, folder) = (moment.commit.oid.to_string(), moment.commit.time, folder.to_string_lossy());
        return print_json(&json!({
            "repository": folder, "reference": config.data_reference, "revision": revision.get(), "commit": data,
            "time": time,
        }));
    }
    note(args.at, moment.revision);
    trishanku_stdio::println!(
        "forked {} at revision {revision} into {}, where it is the branch main; serve it with --repo={} and the --key-prefixes of \
         the origin",
        origin.data_reference,
        folder.display(),
        args.folder.display()
    );
    Ok(())
}

async fn make_independent(args: &Args) -> anyhow::Result<()> {
    let git = Program::find().await.context("git cannot be run; install Git 2.32 or later")?;
    let repository = git_dir(&std::path::absolute(&args.folder)?);
    let (_running, stopped) = watch::channel(false);
    let was_sharing = {
        let _shown = Step::start("copying the objects");
        maintenance::make_independent(&git, &repository, &stopped).await?
    };
    if args.json {
        return print_json(&json!({ "repository": args.folder.to_string_lossy(), "independent": true }));
    }
    let folder = args.folder.display();
    if was_sharing {
        trishanku_stdio::println!("{folder} is independent: it has all objects that it needs");
    } else {
        trishanku_stdio::println!("{folder} was independent already");
    }
    Ok(())
}
