//! `gitcd fork`.

use std::path::PathBuf;

use gitcd_engine::recovery;
use gitcd_history::when::When;
use gitcd_repo::alternates::ObjectsInUse;
use gitcd_repo::branch::{self, ForkObjects};
use gitcd_repo::git_dir;
use serde_json::json;

use super::history::Place;
use super::history::{note, print_json};
use super::progress::Step;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// Folder of the fork's repository, which must not exist or be empty
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Fork the branch as of a revision (4711), how long ago (10m), a time (2026-11-22, '2026-11-22 15:04',
    /// 2026-11-22T15:04:05Z), or a commit
    #[arg(long, value_parser = When::parse, default_value = "now", value_name = "WHEN")]
    at: When,
    /// Read the objects in the origin, instead of linking or copying them: for a fork that is discarded soon. It is damaged if objects
    /// that it needs are deleted there while no gitcd serves the fork
    #[arg(long)]
    shared: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  gitcd fork --repo=store.git trial.git
  gitcd fork --repo=store.git --at=10m trial.git
  gitcd serve --repo=trial.git --key-prefixes=/registry --listen-urls=http://127.0.0.1:2579

The fork has hard links to the objects of the repository, so it needs no space at first, and nothing that is done to one of the two
changes the other. On another file system, the objects are copied. To discard the fork, remove its folder.";

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let origin = args.place.config()?;
    let origin_dir = git_dir(&origin.repository);
    // Before the moment is read: from here on, nothing that it needs is deleted.
    let _in_use = ObjectsInUse::all(&origin_dir);
    let history = args.place.open()?;
    let moment = history.at(args.at)?;
    let folder = std::path::absolute(&args.folder)?;
    let objects = if args.shared { ForkObjects::Shared } else { ForkObjects::Linked };
    let named = branch::Config::named(folder.clone(), branch::DEFAULT_NAME);
    let config = branch::Config { keys: history.keys().clone(), ..named };
    let revision = {
        let _shown = Step::start("forking the branch");
        recovery::fork(&config, &origin_dir, objects, history.fork_point(&moment)?)?
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
