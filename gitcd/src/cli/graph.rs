//! `gitcd graph`.

mod draw;
mod fold;
mod lanes;
mod walk;

use std::collections::HashMap;
use std::path::PathBuf;

use git2::{Oid, Repository};

use self::fold::Line;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The repository: a bare one, or a folder with one in .git [default: that of the current folder if
    /// gitcd has served it, otherwise gitcd/repo.git in the user's data folder]
    #[arg(long, env = "GITCD_REPO", value_name = "DIR")]
    repo: Option<PathBuf>,
    /// Draw every commit
    #[arg(long)]
    all: bool,
    /// Show at most N lines
    #[arg(long, default_value_t = 40, value_name = "N")]
    limit: usize,
    /// Print JSON: what would be drawn, line by line
    #[arg(long)]
    json: bool,
    /// Branches, tags or commits to start from [default: refs/heads/* and refs/remotes/*]
    #[arg(value_name = "REFERENCE")]
    references: Vec<String>,
}

const EXAMPLES: &str = "Examples:
  gitcd graph --repo=store.git
  gitcd graph --repo=store.git --all --limit=200 main origin/main";

/// Names of references, by the commit that they point to.
type Names = HashMap<Oid, Vec<String>>;

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let repo = match &args.repo {
        Some(repo) => repo.clone(),
        None => super::repository_here()?,
    };
    let repository = super::open_repository(&repo)?;
    let (names, mut starts) = references(&repository)?;
    if !args.references.is_empty() {
        let resolve = |name: &String| {
            let found = repository.revparse_single(name).and_then(|object| object.peel_to_commit());
            // The library's own message is for programmers.
            let found = found.map_err(|_| anyhow::anyhow!("no branch, tag or commit {name:?} in {}", repo.display()));
            Ok(found?.id())
        };
        starts = args.references.iter().map(resolve).collect::<anyhow::Result<_>>()?;
    }
    let history = walk::read(&repository, &starts)?;
    let mut lines = fold::fold(&history, |oid| names.contains_key(&oid), args.all);
    let more = lines.len() > args.limit || history.is_cut;
    lines.truncate(args.limit);
    if args.json {
        let objects: Vec<_> = lines.iter().map(|line| json(&repository, &names, &history, line)).collect();
        trishanku_stdio::println!("{:#}", serde_json::json!({ "lines": objects, "more": more }));
        return Ok(());
    }
    Ok(draw::print(&mut trishanku_stdio::stdout(), &repository, &names, &history, &lines, more)?)
}

/// Returns all branches, local and of remotes.
fn references(repository: &Repository) -> anyhow::Result<(Names, Vec<Oid>)> {
    let (mut names, mut starts) = (Names::new(), Vec::new());
    for glob in ["refs/heads/*", "refs/remotes/*"] {
        for reference in repository.references_glob(glob)? {
            let reference = reference?;
            // Skips a remote's HEAD, and references without a commit.
            let is_symbolic = reference.kind() == Some(git2::ReferenceType::Symbolic);
            let Ok(commit) = reference.peel_to_commit() else { continue };
            if is_symbolic {
                continue;
            }
            names
                .entry(commit.id())
                .or_default()
                .push(String::from_utf8_lossy(reference.shorthand_bytes()).into_owned());
            starts.push(commit.id());
        }
    }
    Ok((names, starts))
}

/// Returns the first line of a commit's message, without control characters.
fn subject(repository: &Repository, oid: Oid) -> String {
    let found = repository.find_commit(oid);
    let message = found.map(|commit| String::from_utf8_lossy(commit.message_bytes()).into_owned()).unwrap_or_default();
    message.lines().next().unwrap_or_default().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn json(repository: &Repository, names: &Names, history: &walk::History, line: &Line) -> serde_json::Value {
    let text = |oid: &Oid| oid.to_string();
    let parents: Vec<_> = line.parents.iter().map(text).collect();
    let time = |oid: &Oid| history.commits[oid].time;
    if line.folded > 1 {
        serde_json::json!({
            "folded": line.folded, "newest": text(&line.newest), "oldest": text(&line.oldest),
            "newest_time": time(&line.newest), "oldest_time": time(&line.oldest), "parents": parents,
        })
    } else {
        serde_json::json!({
            "commit": text(&line.newest), "time": time(&line.newest), "parents": parents,
            "references": names.get(&line.newest).cloned().unwrap_or_default(),
            "subject": subject(repository, line.newest),
        })
    }
}
