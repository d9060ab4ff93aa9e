//! `gitcd show`.

use std::io::Write as _;

use gitcd_history::History;
use gitcd_history::moment::{Moment, Value};
use gitcd_history::when::When;
use serde_json::json;

use super::print::plain;
use super::{Place, note, print_json, text_or_base64};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in super::super) struct Args {
    #[command(flatten)]
    place: Place,
    /// When: a revision, how long ago (10m), a time, or a commit
    #[arg(long, value_parser = When::parse, default_value = "now", value_name = "WHEN")]
    at: When,
    /// Print JSON: the key, its revisions and the value
    #[arg(long)]
    json: bool,
    /// The key, with or without the branch's prefix
    key: String,
}

const EXAMPLES: &str = "Examples:
  gitcd show --repo=store.git deployments/shop/web
  gitcd show --repo=store.git --at=4711 deployments/shop/web > web.json

The value is printed exactly as it is, even that of a Secret, as `git show` does. `gitcd log -p` and `gitcd diff` hide Secrets.";

pub(in super::super) fn run(args: &Args) -> anyhow::Result<()> {
    let history = args.place.open()?;
    let moment = history.at(args.at)?;
    value(&history, (args.at, &moment), &args.key, args.json)
}

/// Prints a value exactly as it was written.
pub(super) fn value(history: &History, (when, moment): (When, &Moment), name: &str, json: bool) -> anyhow::Result<()> {
    let key = history.whole_key(name)?;
    let Some(Value { bytes: value, known }) = history.get(moment, &key)? else {
        let neighbours = plain(&history.neighbours(moment, &key)?.to_string());
        anyhow::bail!(
            "there is no {name:?} at revision {}: {neighbours}; `gitcd log {name}` shows when it existed",
            moment.revision
        );
    };
    if json {
        let record = known.map(|known| known.record);
        let output = json!({
            "key": text_or_base64(&key), "at": moment.revision, "commit": moment.commit.oid.to_string(),
            "create_revision": record.map(|record| record.create_revision),
            "mod_revision": record.map(|record| record.mod_revision),
            "version": record.map(|record| record.version),
            "value": text_or_base64(&value),
        });
        return print_json(&output);
    }
    if known.is_none_or(|known| known.record.mod_revision > moment.revision) && history.is_data(&key) {
        note(when, moment.revision);
    }
    let mut out = trishanku_stdio::plain_stdout();
    Ok(out.write_all(&value).and_then(|()| out.flush())?)
}
