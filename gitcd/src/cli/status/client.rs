//! A minimal HTTP client, with TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

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
    tls: Option<TlsConnector>,
}

impl Client {
    pub(in crate::cli) fn new(files: &Tls) -> anyhow::Result<Self> {
        let tls = files.cacert.as_deref().map(|authorities| tls(authorities, files)).transpose()?;
        Ok(Self { tls: tls.map(|config| TlsConnector::from(Arc::new(config))) })
    }

    /// Returns the body of a page, which must exist.
    pub(in crate::cli) async fn get(&self, url: &str, path: &str) -> anyhow::Result<Bytes> {
        let uri: Uri = url.parse().with_context(|| format!("{url:?} is not a URL"))?;
        let host =
            uri.host().with_context(|| format!("{url:?} contains no host: it must look like http://127.0.0.1:2479"))?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let stream = |port: u16| TcpStream::connect((bare.to_owned(), uri.port_u16().unwrap_or(port)));
        match uri.scheme_str() {
            Some("http") | None => exchange(stream(80).await.context(AWAY)?, host, path).await,
            Some("https") => {
                let tls = self.tls.as_ref().context("https needs --cacert")?;
                let name = ServerName::try_from(bare.to_owned()).context("the host is not valid in a certificate")?;
                let stream = stream(443).await.context(AWAY)?;
                exchange(tls.connect(name, stream).await.context("TLS")?, host, path).await
            }
            Some(other) => bail!("{other} is not supported: http or https"),
        }
    }
}

async fn exchange<S>(stream: S, host: &str, path: &str) -> anyhow::Result<Bytes>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the sender; its errors also fail the request.
    let connection = tokio::spawn(async move { drop(connection.await) });
    let request = Request::get(path).header(header::HOST, host).body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await.context("no answer")?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_BODY_BYTES).collect().await;
    connection.abort();
    match status {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => bail!("it has no {path}: it is not a gitcd, or an old one"),
        status => bail!("it answers {status}"),
    }
    Ok(body.map_err(|error| anyhow::anyhow!("the answer was cut off: {error}"))?.to_bytes())
}

fn tls(authorities: &Path, files: &Tls) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(authorities)? {
        roots.add(authority).with_context(|| authorities.display().to_string())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for all versions")
        .with_root_certificates(roots);
    Ok(match files.cert.as_ref().zip(files.key.as_ref()) {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let secret =
                PrivateKeyDer::from_pem_file(key).with_context(|| format!("{}: no private key", key.display()))?;
            builder.with_client_auth_cert(certificates(cert)?, secret).with_context(|| cert.display().to_string())?
        }
    })
}

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let shown = || format!("{}: no certificates in PEM", path.display());
    let found: Vec<_> =
        CertificateDer::pem_file_iter(path).with_context(shown)?.collect::<Result<_, _>>().with_context(shown)?;
    if found.is_empty() {
        bail!(shown());
    }
    Ok(found)
}
