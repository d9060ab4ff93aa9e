//! `gitcd status`.

mod client;
mod table;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use gitcd_server::status::Status;
use serde_json::json;
use trishanku_service::endpoint::TlsFiles;

pub(super) use self::client::Client;
use super::duration;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// URL of a served branch; may be given several times
    #[arg(
        long = "endpoint",
        env = "GITCD_ENDPOINT",
        default_value = "http://127.0.0.1:2479",
        value_delimiter = ',',
        value_name = "URL"
    )]
    endpoint: Vec<String>,
    /// Print JSON: a list with an object for each server
    #[arg(long)]
    json: bool,
    /// Time limit for each server
    #[arg(long, env = "GITCD_TIMEOUT", default_value = "10s", value_parser = duration::parse, value_name = "DURATION")]
    timeout: Duration,
    #[command(flatten)]
    tls: TlsFiles,
}

const EXAMPLES: &str = "Examples:
  gitcd status
  gitcd status --endpoint=http://127.0.0.1:2479 --endpoint=https://desk:2479 --cacert=ca.crt
  gitcd status --json | jq '.[].status.branches[].remotes[].lag_commits'";

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.tls)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = args.endpoint.iter().map(|url| ask(&client, url, args.timeout));
    let answers = runtime.block_on(futures::future::join_all(asked));
    let mut is_good = true;
    let mut out = trishanku_stdio::stdout();
    let mut statuses = Vec::new();
    for (url, answer) in args.endpoint.iter().zip(answers) {
        match answer {
            Ok((text, status)) => {
                is_good &= status.is_good();
                if args.json {
                    statuses.push(json!({ "endpoint": url, "status": text }));
                } else {
                    statuses.push(json!(null));
                    table::print(&mut out, url, &status, args.endpoint.len() > 1)?;
                }
            }
            Err(error) => {
                is_good = false;
                if args.json {
                    statuses.push(json!({ "endpoint": url, "error": format!("{error:#}") }));
                } else {
                    out.flush()?;
                    trishanku_stdio::eprintln!("gitcd: {url}: {error:#}");
                }
            }
        }
    }
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&statuses)?)?;
    }
    out.flush()?;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the status of a server, raw and parsed.
async fn ask(client: &Client, url: &str, patience: Duration) -> anyhow::Result<(serde_json::Value, Status)> {
    let asked = tokio::time::timeout(patience, client.get(url, "/status"));
    let body = asked.await.with_context(|| format!("no answer in {patience:?}"))??;
    let text: serde_json::Value =
        serde_json::from_slice(&body).context("this is not a gitcd: its answer is no JSON")?;
    let status = serde_json::from_value(text.clone()).context("cannot parse the answer; is this a gitcd?")?;
    Ok((text, status))
}
