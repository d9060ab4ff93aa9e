//! A client of the status pages.

use std::time::Duration;

use anyhow::bail;
use bytes::Bytes;
use http::StatusCode;
use trishanku_service::endpoint::{Endpoint, TlsFiles};
use trishanku_service::http::HttpError;
use trishanku_service::tls::ClientConfig;

/// Largest accepted response.
const MAX_BODY_BYTES: usize = 64 << 20;

const AWAY: &str = "cannot connect; --endpoint says where a branch is served (its --listen-urls)";

pub(in crate::cli) struct Client {
    /// `None` without CAs.
    tls: Option<ClientConfig>,
}

impl Client {
    pub(in crate::cli) fn new(files: &TlsFiles) -> anyhow::Result<Self> {
        Ok(Self { tls: files.config()? })
    }

    /// Returns the body of a page, which must exist. The time limit is the caller's.
    pub(in crate::cli) async fn get(&self, url: &str, path: &str) -> anyhow::Result<Bytes> {
        let endpoint: Endpoint = url.parse()?;
        let client = endpoint.client(self.tls.clone())?.within(Duration::MAX).at_most(MAX_BODY_BYTES);
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
