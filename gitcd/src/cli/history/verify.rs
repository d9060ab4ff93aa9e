//! `gitcd verify`.

use std::io::Write as _;
use std::process::ExitCode;

use serde_json::json;

use super::super::progress::Progress;
use super::print::{ADDED, REMOVED, plain};
use super::{Place, print_json};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in super::super) struct Args {
    #[command(flatten)]
    place: Place,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  gitcd verify --repo=store.git
  gitcd verify --repo=store.git --json | jq .findings";

pub(in super::super) fn run(args: &Args) -> ExitCode {
    match verify(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            trishanku_stdio::eprintln!("gitcd: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn verify(args: &Args) -> anyhow::Result<bool> {
    let history = args.place.open()?;
    let mut shown = (!args.json).then(Progress::new);
    let verified = history.verify(|done, all| {
        if let Some(shown) = &mut shown {
            shown.show(format_args!("{done} of {all} keys"));
        }
    })?;
    drop(shown);
    if args.json {
        print_json(&json!({
            "revision": verified.revision, "keys": verified.keys, "local_keys": verified.local_keys,
            "bytes": verified.bytes, "findings": verified.findings, "more": verified.more,
        }))?;
        return Ok(verified.is_good());
    }
    let mut out = trishanku_stdio::stdout();
    for finding in &verified.findings {
        writeln!(out, "{REMOVED}{}{REMOVED:#}", plain(finding))?;
    }
    if verified.more > 0 {
        writeln!(out, "and {} more", verified.more)?;
    }
    let (style, said) = if verified.is_good() { (ADDED, "OK") } else { (REMOVED, "FAILED") };
    writeln!(
        out,
        "{style}{said}{style:#}: revision {}, {} keys ({} outside the key prefix), {} bytes",
        verified.revision, verified.keys, verified.local_keys, verified.bytes
    )?;
    Ok(verified.is_good())
}
