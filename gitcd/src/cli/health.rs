//! `gitcd health`.

use std::process::ExitCode;
use std::time::Duration;

use super::duration;
use trishanku_service::endpoint::TlsFiles;

use super::status::Client;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// URL of a served branch
    #[arg(long, env = "GITCD_ENDPOINT", default_value = "http://127.0.0.1:2479", value_name = "URL")]
    endpoint: String,
    /// Check liveness, which does not require writes
    #[arg(long)]
    live: bool,
    /// Check startup: it accepts writes, or is a hot standby
    #[arg(long, conflicts_with = "live")]
    startup: bool,
    /// Time limit for the answer
    #[arg(long, env = "GITCD_TIMEOUT", default_value = "3s", value_parser = duration::parse, value_name = "DURATION")]
    timeout: Duration,
    #[command(flatten)]
    tls: TlsFiles,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.tls)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let path = match (args.live, args.startup) {
        (true, _) => "/livez",
        (_, true) => "/startupz",
        _ => "/readyz",
    };
    let answer = runtime.block_on(async { tokio::time::timeout(args.timeout, client.get(&args.endpoint, path)).await });
    let said = match answer {
        Ok(Ok(_)) => return Ok(ExitCode::SUCCESS),
        Ok(Err(error)) => format!("{error:#}"),
        Err(_) => format!("no answer in {:?}", args.timeout),
    };
    trishanku_stdio::eprintln!("gitcd: {}{path}: {said}", args.endpoint);
    Ok(ExitCode::FAILURE)
}
