//! `gitcd log`.

use serde_json::json;

use super::super::age;
use super::print::{self, plain};
use super::{Place, print_json, printed};
use crate::history::fields::{self, Field};
use crate::history::moment::When;
use crate::history::versions::Version;
use crate::history::{CommitInfo, History};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in super::super) struct Args {
    #[command(flatten)]
    place: Place,
    /// So many versions or commits
    #[arg(long, short = 'n', default_value = "40", value_name = "N")]
    limit: std::num::NonZeroUsize,
    /// None from before this: a revision, how long ago (10m), or a time
    #[arg(long, value_parser = When::parse, value_name = "WHEN")]
    since: Option<When>,
    /// Show which fields changed
    #[arg(long, short = 'p', requires = "key")]
    patch: bool,
    /// Do not cut long values
    #[arg(long)]
    whole: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The key, with the branch's prefix or without; all commits of the branch if there is none
    key: Option<String>,
}

const EXAMPLES: &str = "Examples:
  gitcd log --repo=store.git
  gitcd log --repo=store.git -p deployments/shop/web
  gitcd log --repo=store.git --since=10m --json /registry/configmaps/shop/prices";

pub(in super::super) fn run(args: &Args) -> anyhow::Result<()> {
    let history = args.place.open()?;
    match &args.key {
        Some(name) => key(args, &history, name, args.since),
        None => branch(args, &history, args.since),
    }
}

fn key(args: &Args, history: &History, name: &str, since: Option<When>) -> anyhow::Result<()> {
    let key = history.whole_key(name)?;
    let versions = history.versions(&key, args.limit.get(), since)?;
    if versions.is_empty() && since.is_none() {
        anyhow::bail!("{name:?} was never in this branch (its keys begin with {:?})", history.keys().flags().0);
    }
    let mut changes: Vec<Vec<Field>> = Vec::new();
    for version in versions.iter().filter(|_| args.patch) {
        let [before, after] = history.change(&key, version)?;
        changes.push(fields::between(before.as_deref(), after.as_deref()));
    }
    if args.json {
        let told: Vec<_> = versions.iter().enumerate().map(|(at, version)| told(version, changes.get(at))).collect();
        return print_json(&json!(told));
    }
    let head = ["REVISION", "WHEN", "WHAT", "VERSION", "COMMIT", "BY"];
    let mut rows = vec![head.map(ToOwned::to_owned).to_vec()];
    let number = |number: Option<i64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    for version in &versions {
        rows.push(vec![
            number(version.revision),
            ago(version.commit.time),
            version.what.word().to_owned(),
            number(version.version),
            short(&version.commit),
            by(&version.commit),
        ]);
    }
    printed(print::table(&mut anstream::stdout().lock(), &rows, |mut out, at| match changes.get(at) {
        Some(fields) => print::fields(&mut out, fields, "    ", args.whole),
        None => Ok(()),
    }))
}

fn told(version: &Version, changes: Option<&Vec<Field>>) -> serde_json::Value {
    let commit = &version.commit;
    let mut told = json!({
        "what": version.what.word(), "revision": version.revision, "version": version.version,
        "time": commit.time, "by": commit.by(), "author": commit.author, "commit": commit.oid.to_string(),
    });
    if let Some(changes) = changes {
        told["fields"] = changes.iter().map(super::diff::told).collect();
    }
    told
}

fn branch(args: &Args, history: &History, since: Option<When>) -> anyhow::Result<()> {
    let commits = history.commits(args.limit.get(), since)?;
    if args.json {
        let told = commits.iter().map(|(revisions, commit)| {
            let revisions = revisions.map(|own| json!({ "first": own.first, "last": own.last }));
            json!({
                "revisions": revisions, "time": commit.time, "by": commit.by(), "author": commit.author, "commit": commit.oid.to_string(),
                "subject": commit.subject(),
            })
        });
        return print_json(&json!(told.collect::<Vec<_>>()));
    }
    let mut rows = vec![["REVISION", "WHEN", "COMMIT", "WHAT", "BY"].map(ToOwned::to_owned).to_vec()];
    for (revisions, commit) in &commits {
        let revisions = match revisions {
            None => "-".to_owned(),
            Some(own) if own.first == own.last => own.last.to_string(),
            Some(own) => format!("{}-{}", own.first, own.last),
        };
        rows.push(vec![revisions, ago(commit.time), short(commit), plain(commit.subject()), by(commit)]);
    }
    printed(print::table(&mut anstream::stdout().lock(), &rows, |_, _| Ok(())))
}

fn ago(time: i64) -> String {
    format!("{} ago", age::words(age::now().saturating_sub(u64::try_from(time).unwrap_or_default())))
}

fn short(commit: &CommitInfo) -> String {
    commit.oid.to_string()[..10].to_owned()
}

/// Where branches have names, whose it was says more than its client: that is a kube-apiserver each time.
fn by(commit: &CommitInfo) -> String {
    let (author, clients) = (&commit.author, commit.clients().join(", "));
    if clients.is_empty() || author == super::super::COMMITTER_NAME {
        return plain(&commit.by().join(", "));
    }
    plain(&format!("{author} ({clients})"))
}
