//! `gitcd log`.

use gitcd_history::fields::{self, Field};
use gitcd_history::versions::{ChangeKind, Version};
use gitcd_history::when::When;
use gitcd_history::who::Who;
use gitcd_history::{CommitInfo, History, ResolvedMerge};
use gitcd_merge::Conflict;
use gitcd_repo::actor::{self, Actor, Attribution};
use serde_json::json;

use super::super::age;
use super::print::{self, CHANGED, plain};
use super::{Place, Printing, print_json};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in super::super) struct Args {
    #[command(flatten)]
    place: Place,
    /// Show at most N
    #[arg(long, short = 'n', default_value = "40", value_name = "N")]
    limit: std::num::NonZeroUsize,
    /// Only changes since: a revision, how long ago (10m), a time, or a commit
    #[arg(long, value_parser = When::parse, value_name = "WHEN")]
    since: Option<When>,
    /// Show which fields changed, and conflicts of merges
    #[arg(long, short = 'p', requires = "key")]
    patch: bool,
    #[command(flatten)]
    printing: Printing,
    /// Do not truncate long values
    #[arg(long)]
    whole: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The key, with or without the branch's prefix; without a key, all commits of the branch
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
    let limit = args.limit.get();
    let versions = history.versions(&key, limit, since)?;
    let decisions = if args.patch { history.decisions(&key, limit, since)? } else { Vec::new() };
    if versions.is_empty() && decisions.is_empty() && since.is_none() {
        let neighbours = plain(&history.neighbours(&history.at(When::Now)?, &key)?.to_string());
        anyhow::bail!(
            "{name:?} was never in this branch (its keys begin with {:?}): {neighbours}",
            history.keys().flags().0
        );
    }
    // Conflicts are hidden like the newest version, even if no version is in the range.
    let newest = history.versions(&key, 1, None)?.first().map(|newest| history.change(&key, newest)).transpose()?;
    let newest = newest.unwrap_or_default();
    let mut exposure = args.printing.exposure(history, &key, newest.each_ref().map(|value| value.as_deref()));
    let mut changes = Vec::new();
    for version in &versions {
        let [before, after] = history.change(&key, version)?;
        let values = [before.as_deref(), after.as_deref()];
        exposure = exposure.max(args.printing.exposure(history, &key, values));
        let fields = args.patch.then(|| fields::hidden(fields::between(values[0], values[1]), exposure));
        changes.push(Change {
            who: Who::of(&version.commit, Some(actor::key_name(history.keys(), &key)), values),
            fields,
        });
    }
    let mut entries = entries(versions, changes, decisions);
    entries.truncate(limit);
    for conflict in entries.iter_mut().flat_map(|entry| &mut entry.conflicts) {
        conflict.kept = exposure.value(&conflict.field, conflict.kept.take());
        conflict.lost = exposure.value(&conflict.field, conflict.lost.take());
        conflict.field = exposure.path(&conflict.field).to_owned();
    }
    if args.json {
        return print_json(&json!(entries.iter().map(to_json).collect::<Vec<_>>()));
    }
    let head = ["REVISION", "WHEN", "WHAT", "VERSION", "COMMIT", "BY"];
    let mut rows = vec![head.map(ToOwned::to_owned).to_vec()];
    let number = |number: Option<i64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    for Entry { version, commit, by, .. } in &entries {
        rows.push(vec![
            number(version.as_ref().and_then(|version| version.revision)),
            ago(commit.time),
            word(version.as_ref()).to_owned(),
            number(version.as_ref().and_then(|version| version.version)),
            short(commit),
            by.clone(),
        ]);
    }
    Ok(print::table(&mut trishanku_stdio::stdout(), &rows, |mut out, at| {
        let Some(entry) = entries.get(at) else { return Ok(()) };
        for conflict in &entry.conflicts {
            writeln!(out, "    {CHANGED}!{CHANGED:#} conflict: {}", plain(&conflict.to_string()))?;
        }
        print::fields(&mut out, entry.fields.as_deref().unwrap_or_default(), "    ", args.whole)
    })?)
}

/// A version of a key, or a merge that had a conflict about it and left it unchanged.
struct Entry {
    version: Option<Version>,
    commit: CommitInfo,
    by: String,
    actors: Vec<Actor>,
    managers: Vec<String>,
    fields: Option<Vec<Field>>,
    conflicts: Vec<Conflict>,
}

/// What a version changed: who made it, and the fields if they are printed.
struct Change {
    who: Who,
    fields: Option<Vec<Field>>,
}

/// Merges versions and decisions into one list, newest first.
fn entries(versions: Vec<Version>, changes: Vec<Change>, decisions: Vec<ResolvedMerge>) -> Vec<Entry> {
    let mut decisions = decisions.into_iter().peekable();
    let mut entries = Vec::new();
    let alone = |ResolvedMerge { commit, merged, conflicts, .. }: ResolvedMerge| {
        let by = plain(&merged.by().join(", "));
        Entry { version: None, commit, by, actors: Vec::new(), managers: Vec::new(), fields: None, conflicts }
    };
    for (version, Change { who, fields }) in versions.into_iter().zip(changes) {
        let is_before = |decision: &ResolvedMerge| match version.revision {
            Some(revision) => revision <= decision.revision,
            None => version.commit.time <= decision.commit.time,
        };
        let mut conflicts = Vec::new();
        while let Some(decision) = decisions.next_if(|decision| is_before(decision)) {
            if decision.commit.oid == version.commit.oid {
                conflicts = decision.conflicts;
                break;
            }
            entries.push(alone(decision));
        }
        let commit = version.commit.clone();
        let is_known = version.what != ChangeKind::Boundary;
        let by = if is_known { by(&who) } else { "-".to_owned() };
        let Who { actors, managers, .. } = who;
        let actors = if is_known { actors } else { Vec::new() };
        entries.push(Entry { version: Some(version), commit, by, actors, managers, fields, conflicts });
    }
    entries.extend(decisions.map(alone));
    entries
}

fn word(version: Option<&Version>) -> &'static str {
    version.map_or("conflict", |version| version.what.word())
}

fn to_json(Entry { version, commit, actors, managers, fields, conflicts, .. }: &Entry) -> serde_json::Value {
    // Who wrote what the history begins with is not known.
    let is_known = version.as_ref().is_none_or(|version| version.what != ChangeKind::Boundary);
    let mut entry = json!({
        "what": word(version.as_ref()), "revision": version.as_ref().and_then(|version| version.revision),
        "version": version.as_ref().and_then(|version| version.version),
        "time": commit.time, "by": if is_known { commit.by() } else { Vec::new() }, "actors": actors, "managers": managers,
        "author": is_known.then_some(&commit.author), "commit": commit.oid.to_string(),
    });
    if let Some(fields) = fields {
        entry["fields"] = fields.iter().map(super::diff::to_json).collect();
    }
    if !conflicts.is_empty() {
        let conflict = |Conflict { field, kept, lost }: &Conflict| json!({"path": field, "kept": kept, "lost": lost});
        entry["conflicts"] = conflicts.iter().map(conflict).collect();
    }
    entry
}

fn branch(args: &Args, history: &History, since: Option<When>) -> anyhow::Result<()> {
    let commits = history.commits(args.limit.get(), since)?;
    if args.json {
        let entries = commits.iter().map(|(revisions, commit)| {
            let revisions = revisions.map(|own| json!({ "first": own.first, "last": own.last }));
            json!({
                "revisions": revisions, "time": commit.time, "by": commit.by(), "actors": Attribution::actors(&commit.message, None),
                "author": commit.author, "commit": commit.oid.to_string(), "subject": commit.subject(),
            })
        });
        return print_json(&json!(entries.collect::<Vec<_>>()));
    }
    let mut rows = vec![["REVISION", "WHEN", "COMMIT", "WHAT", "BY"].map(ToOwned::to_owned).to_vec()];
    for (revisions, commit) in &commits {
        let by = by(&Who::of(commit, None, [None, None]));
        rows.push(vec![print::revisions(*revisions), ago(commit.time), short(commit), plain(commit.subject()), by]);
    }
    Ok(print::table(&mut trishanku_stdio::stdout(), &rows, |_, _| Ok(()))?)
}

pub(super) fn ago(time: i64) -> String {
    format!("{} ago", age::words(age::now().saturating_sub(u64::try_from(time).unwrap_or_default())))
}

fn short(commit: &CommitInfo) -> String {
    commit.oid.to_string()[..10].to_owned()
}

fn by(who: &Who) -> String {
    plain(&who.text(super::super::COMMITTER_NAME))
}
