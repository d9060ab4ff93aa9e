//! A minimal HTTP client, with TLS.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::{StatusCode, Uri};
use trishanku_service::http::HttpError;
use trishanku_service::tls::{ClientConfig, ClientTls};

/// Largest accepted response.
const MAX_BODY_BYTES: usize = 64 << 20;

const AWAY: &str = "cannot connect; --endpoint says where a branch is served (its --listen-urls)";

/// Flags for TLS files, in PEM.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Tls {
    /// CAs of https servers' certificates (PEM file)
    #[arg(long, env = "GITCD_CACERT", value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Client certificate (PEM file)
    #[arg(long, env = "GITCD_CERT", requires = "key", value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Its key (PEM file)
    #[arg(long, env = "GITCD_KEY", requires = "cert", value_name = "FILE")]
    key: Option<PathBuf>,
}

pub(in crate::cli) struct Client {
    /// `None` without CAs.
    tls: Option<ClientConfig>,
}

impl Client {
    pub(in crate::cli) fn new(files: &Tls) -> anyhow::Result<Self> {
        Ok(Self { tls: files.cacert.as_deref().map(|authorities| tls(authorities, files)).transpose()? })
    }

    /// Returns the body of a page, which must exist. The time limit is the caller's.
    pub(in crate::cli) async fn get(&self, url: &str, path: &str) -> anyhow::Result<Bytes> {
        let uri: Uri = url.parse().with_context(|| format!("{url:?} is not a URL"))?;
        let host = uri
            .authority()
            .with_context(|| format!("{url:?} contains no host: it must look like http://127.0.0.1:2479"))?;
        let scheme = uri.scheme_str().unwrap_or("http");
        let base = format!("{scheme}://{host}").parse().with_context(|| format!("{url:?} is not a URL"))?;
        let client = trishanku_service::http::Client::builder(base).within(Duration::MAX).at_most(MAX_BODY_BYTES);
        let client = match scheme {
            "http" => client,
            "https" => client.tls(self.tls.clone().context("https needs --cacert")?),
            other => bail!("{other} is not supported: http or https"),
        };
        let answer = match client.build().get(path).await {
            Ok(answer) => answer,
            Err(error @ HttpError::Connect(_)) => return Err(anyhow::Error::new(error).context(AWAY)),
            Err(error) => return Err(error.into()),
        };
        match answer.status() {
            StatusCode::OK => Ok(answer.into_body()),
            StatusCode::NOT_FOUND => bail!("it has no {path}: it is not a gitcd, or an old one"),
            status => bail!("it answers {status}"),
        }
    }
}

fn tls(authorities: &Path, files: &Tls) -> anyhow::Result<ClientConfig> {
    let read = |path: &Path| std::fs::read(path).with_context(|| path.display().to_string());
    let tls = ClientTls::new().authorities(&read(authorities)?).with_context(|| authorities.display().to_string())?;
    match files.cert.as_ref().zip(files.key.as_ref()) {
        None => Ok(tls.config()),
        Some((cert, key)) => {
            let identity = tls.config_with_identity(&read(cert)?, &read(key)?);
            identity.with_context(|| format!("{} and {}", cert.display(), key.display()))
        }
    }
}
