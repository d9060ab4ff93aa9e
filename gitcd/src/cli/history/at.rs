//! `gitcd at`.

use std::io::Write as _;

use gitcd_history::when::When;
use serde_json::json;

use super::{Place, note, print_json, show, text_or_base64};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in super::super) struct Args {
    #[command(flatten)]
    place: Place,
    /// A revision (4711), how long ago (10m), a time (2026-11-22, '2026-11-22 15:04', 2026-11-22T15:04:05Z), or a commit
    #[arg(value_parser = When::parse)]
    when: When,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Print the value of a key
    Get {
        /// The key, with or without the branch's prefix
        key: String,
        /// Print JSON: the key, its revisions and the value
        #[arg(long)]
        json: bool,
    },
    /// Print the keys
    List {
        /// Only keys with this prefix, with or without the branch's
        #[arg(default_value = "")]
        beginning: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

const EXAMPLES: &str = "Examples:
  gitcd at --repo=store.git 4711 get deployments/shop/web
  gitcd at --repo=store.git 10m list deployments/";

pub(in super::super) fn run(args: &Args) -> anyhow::Result<()> {
    let history = args.place.open()?;
    let moment = history.at(args.when)?;
    match &args.what {
        What::Get { key, json } => show::value(&history, (args.when, &moment), key, *json),
        What::List { beginning, json } => {
            let keys = history.list(&moment, &history.beginning(beginning))?;
            if *json {
                let keys: Vec<_> = keys.iter().map(|key| text_or_base64(key)).collect();
                return print_json(&json!({ "revision": moment.revision, "keys": keys }));
            }
            note(args.when, moment.revision);
            let mut out = trishanku_stdio::plain_stdout();
            let print = |key: &Vec<u8>| out.write_all(&[&key[..], b"\n"].concat());
            Ok(keys.iter().try_for_each(print)?)
        }
    }
}
