//! `gitcd diff`.

use std::io::Write;
use std::process::ExitCode;

use gitcd_history::fields::{self, Field};
use gitcd_history::moment::Moment;
use gitcd_history::when::When;
use gitcd_history::who::Who;
use gitcd_history::{History, HistoryError};
use gitcd_repo::actor::{self, Actor};
use serde_json::json;

use super::print::{self, ADDED, CHANGED, FAINT, REMOVED, plain};
use super::{Place, Printing, print_json, text_or_base64};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in super::super) struct Args {
    #[command(flatten)]
    place: Place,
    /// From when: a revision, how long ago (10m), a time, a commit, or "nothing" to show all keys as new
    #[arg(long, value_parser = Since::parse, value_name = "WHEN")]
    since: Since,
    /// Until when
    #[arg(long, value_parser = When::parse, default_value = "now", value_name = "WHEN")]
    until: When,
    /// Show only the keys
    #[arg(long)]
    name_only: bool,
    #[command(flatten)]
    printing: Printing,
    /// Do not truncate long values
    #[arg(long)]
    whole: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Only these keys and those below them, with or without the branch's prefix; KEY* matches a prefix
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
}

const EXAMPLES: &str = "Examples:
  gitcd diff --repo=store.git --since=10m
  gitcd diff --repo=store.git --since=4700 --until=4711 deployments/shop/
  gitcd diff --repo=store.git --since='2026-11-22 15:04' --json

Exits with 0 if nothing differs, with 1 if something does, with 2 after an error.";

/// The start of a comparison.
#[derive(Clone, Copy, Debug)]
enum Since {
    /// An empty store.
    Nothing,
    Moment(When),
}

impl Since {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "nothing" { Ok(Self::Nothing) } else { When::parse(text).map(Self::Moment) }
    }
}

pub(in super::super) fn run(args: &Args) -> ExitCode {
    match compare(args) {
        Ok(true) => ExitCode::FAILURE,
        Ok(false) => ExitCode::SUCCESS,
        // As for `diff`, 1 means that something differs.
        Err(error) => {
            trishanku_stdio::eprintln!("gitcd: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn compare(args: &Args) -> anyhow::Result<bool> {
    let history = args.place.open()?;
    let to = history.at(args.until)?;
    let from = match args.since {
        Since::Nothing => None,
        Since::Moment(when) => match history.at(when) {
            Ok(from) => Some(from),
            // The branch was empty then.
            Err(HistoryError::TooEarly { .. }) => None,
            Err(error) => return Err(error.into()),
        },
    };
    let began = from.as_ref().map_or(0, |from| from.revision);
    let wanted: Vec<_> = args.keys.iter().map(|name| Wanted::new(&history, name)).collect();
    let changes = history.between(from.as_ref(), &to)?.keys;
    for (name, wanted) in args.keys.iter().zip(&wanted) {
        if !changes.keys().any(|relative| wanted.covers(&history.keys().absolute(relative))) {
            wanted.check(&history, name, from.as_ref(), &to)?;
        }
    }
    let is_wanted = |key: &[u8]| wanted.is_empty() || wanted.iter().any(|wanted| wanted.covers(key));
    let mut keys = Vec::new();
    let mut out = trishanku_stdio::stdout();
    let mut differs = false;
    for (relative, change) in changes {
        let key = history.keys().absolute(&relative);
        if !is_wanted(&key) {
            continue;
        }
        if !differs && !args.json {
            let line = format!("revision {began} to {}", to.revision);
            writeln!(out, "{FAINT}{line}{FAINT:#}")?;
        }
        differs = true;
        let (sign, style) = match (change.from, change.to) {
            (None, _) => ('+', ADDED),
            (_, None) => ('-', REMOVED),
            _ => ('~', CHANGED),
        };
        let fields = if args.name_only {
            Vec::new()
        } else {
            let value = |blob: Option<git2::Oid>| blob.map(|blob| history.value(blob, None)).transpose();
            let (from, to) = (value(change.from)?, value(change.to)?);
            let exposure = args.printing.exposure(&history, &key, [from.as_deref(), to.as_deref()]);
            fields::hidden(fields::between(from.as_deref(), to.as_deref()), exposure)
        };
        if args.json {
            let what = match sign {
                '+' => "create",
                '-' => "delete",
                _ => "update",
            };
            let actors = actors(&history, &key, from.as_ref(), &to)?;
            keys.push(json!({
                "key": text_or_base64(&key), "what": what, "actors": actors, "fields": fields.iter().map(to_json).collect::<Vec<_>>(),
            }));
        } else {
            let done = writeln!(out, "{style}{sign} {}{style:#}", plain(&String::from_utf8_lossy(&key)));
            done.and_then(|()| print::fields(&mut out, &fields, "    ", args.whole))?;
        }
    }
    if args.json {
        print_json(&json!({ "from": began, "to": to.revision, "keys": keys }))?;
    }
    Ok(differs)
}

/// Versions of a key that are read for their actors.
const MAX_VERSIONS: usize = 256;

/// Returns the users that changed a key between two moments, newest first, as far as commits name them.
fn actors(history: &History, key: &[u8], from: Option<&Moment>, to: &Moment) -> anyhow::Result<Vec<Actor>> {
    let began = from.map_or(0, |from| from.revision);
    let mut actors = Vec::new();
    for version in history.versions(key, MAX_VERSIONS, Some(When::Revision(began + 1)))? {
        if version.revision.is_some_and(|revision| revision <= began || revision > to.revision) {
            continue;
        }
        for actor in Who::of(&version.commit, Some(actor::key_name(history.keys(), key)), [None, None]).actors {
            if !actors.contains(&actor) {
                actors.push(actor);
            }
        }
    }
    Ok(actors)
}

/// Requested keys.
enum Wanted {
    /// All keys with this prefix.
    Beginning(Vec<u8>),
    /// This key, and those below it.
    Key(Vec<u8>),
}

impl Wanted {
    fn new(history: &History, name: &str) -> Self {
        match name.strip_suffix('*') {
            Some(name) => Self::Beginning(history.beginning(name)),
            None if name.is_empty() || name.ends_with('/') => Self::Beginning(history.beginning(name)),
            None => Self::Key(history.beginning(name)),
        }
    }

    /// Fails if a key exists at neither moment. A folder or a prefix may be empty.
    fn check(&self, history: &History, name: &str, from: Option<&Moment>, to: &Moment) -> anyhow::Result<()> {
        let Self::Key(start) = self else { return Ok(()) };
        for moment in from.into_iter().chain([to]) {
            if history.list(moment, start)?.iter().any(|key| self.covers(key)) {
                return Ok(());
            }
        }
        let neighbours = plain(&history.neighbours(to, start)?.to_string());
        let revisions = from.map_or_else(String::new, |from| format!("at revision {} or ", from.revision));
        anyhow::bail!("there is no {name:?} {revisions}at revision {}: {neighbours}", to.revision)
    }

    fn covers(&self, key: &[u8]) -> bool {
        match self {
            Self::Beginning(start) => key.starts_with(start),
            Self::Key(whole) => {
                key.strip_prefix(whole.as_slice()).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
            }
        }
    }
}

/// Converts a field to JSON.
pub(super) fn to_json(field: &Field) -> serde_json::Value {
    let value = |text: &Option<String>| {
        text.as_ref().map(|text| serde_json::from_str(text).unwrap_or_else(|_| serde_json::Value::from(text.as_str())))
    };
    json!({ "path": field.path, "from": value(&field.from), "to": value(&field.to) })
}
