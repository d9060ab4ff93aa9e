//! `gitcd health`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::duration;
use super::status::{Client, Files};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A URL at which a branch is served
    #[arg(long, env = "GITCD_ENDPOINT", default_value = "http://127.0.0.1:2479", value_name = "URL")]
    endpoint: String,
    /// Ask whether it is alive, which it is while it refuses writes, too
    #[arg(long)]
    live: bool,
    /// How long it has to answer
    #[arg(long, env = "GITCD_TIMEOUT", default_value = "3s", value_parser = duration::parse, value_name = "DURATION")]
    timeout: Duration,
    /// Authorities that a https server's certificate must be from (PEM file)
    #[arg(long, env = "GITCD_CACERT", value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Certificate to show to the server (PEM file)
    #[arg(long, env = "GITCD_CERT", requires = "key", value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Its key (PEM file)
    #[arg(long, env = "GITCD_KEY", requires = "cert", value_name = "FILE")]
    key: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let files = Files { authorities: args.cacert.clone(), identity: args.cert.clone().zip(args.key.clone()) };
    let client = Client::new(&files)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let path = if args.live { "/livez" } else { "/readyz" };
    let answer = runtime.block_on(async { tokio::time::timeout(args.timeout, client.get(&args.endpoint, path)).await });
    let said = match answer {
        Ok(Ok(_)) => return Ok(ExitCode::SUCCESS),
        Ok(Err(error)) => format!("{error:#}"),
        Err(_) => format!("no answer in {:?}", args.timeout),
    };
    eprintln!("gitcd: {}{path}: {said}", args.endpoint);
    Ok(ExitCode::FAILURE)
}
