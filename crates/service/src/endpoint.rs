//! A server that a command line names: its URL, and the files of TLS.
//!
//! ```
//! use trishanku_service::endpoint::{Endpoint, EndpointError};
//!
//! let desk: Endpoint = "http://127.0.0.1:2479".parse().expect("it is a URL");
//! let client = desk.client(None).expect("http needs no certificates").build();
//! # drop(client);
//! let tls: Endpoint = "https://desk:2479".parse().expect("it is a URL");
//! assert!(matches!(tls.client(None), Err(EndpointError::NoAuthorities)));
//! ```

use std::path::{Path, PathBuf};
use std::str::FromStr;

use http::Uri;

use crate::http::{Client, ClientBuilder};
use crate::tls::{ClientConfig, ClientTls, ClientTlsError};

/// Flags for the TLS files of a client, in PEM.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TlsFiles {
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

/// Why TLS files cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFilesError {
    /// A file cannot be read.
    #[error("{}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read.
        source: std::io::Error,
    },
    /// A file has no certificates of CAs.
    #[error("{}", .path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ClientTlsError,
    },
    /// The certificate and the key of the client cannot be used.
    #[error("{} and {}", .cert.display(), .key.display())]
    Identity {
        /// The file with the certificate.
        cert: PathBuf,
        /// The file with the key.
        key: PathBuf,
        /// What is wrong with them.
        source: ClientTlsError,
    },
}

impl TlsFiles {
    /// Reads the files; `None` without CAs.
    ///
    /// # Errors
    /// [`TlsFilesError`].
    pub fn config(&self) -> Result<Option<ClientConfig>, TlsFilesError> {
        let Some(authorities) = &self.cacert else { return Ok(None) };
        let read =
            |path: &Path| std::fs::read(path).map_err(|source| TlsFilesError::Read { path: path.to_owned(), source });
        let tls = ClientTls::new().authorities(&read(authorities)?);
        let tls = tls.map_err(|source| TlsFilesError::Authorities { path: authorities.clone(), source })?;
        let Some((cert, key)) = self.cert.as_ref().zip(self.key.as_ref()) else { return Ok(Some(tls.config())) };
        let config = tls.config_with_identity(&read(cert)?, &read(key)?);
        config.map(Some).map_err(|source| TlsFilesError::Identity { cert: cert.clone(), key: key.clone(), source })
    }
}

/// A server: the scheme and the authority of a URL. The path is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    base: Uri,
}

/// Why a URL does not name a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// It is not a URL.
    #[error("{0:?} is not a URL such as http://127.0.0.1:2479")]
    NoUrl(String),
    /// It has no host.
    #[error("{0:?} contains no host: it must look like http://127.0.0.1:2479")]
    NoHost(String),
    /// It has another scheme.
    #[error("{0} is not supported: http or https")]
    Scheme(String),
    /// There are no CAs for https.
    #[error("https needs --cacert")]
    NoAuthorities,
}

/// Parses a URL; without a scheme, it is http.
impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(url: &str) -> Result<Self, EndpointError> {
        let no_url = || EndpointError::NoUrl(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| no_url())?;
        let host = uri.authority().ok_or_else(|| EndpointError::NoHost(url.to_owned()))?;
        let scheme = uri.scheme_str().unwrap_or("http");
        if !matches!(scheme, "http" | "https") {
            return Err(EndpointError::Scheme(scheme.to_owned()));
        }
        let base = format!("{scheme}://{host}").parse().map_err(|_| no_url())?;
        Ok(Self { base })
    }
}

impl Endpoint {
    /// Returns whether connections use TLS.
    pub fn is_encrypted(&self) -> bool {
        self.base.scheme_str() == Some("https")
    }

    /// Starts a client of the server. The TLS settings are for https alone.
    ///
    /// # Errors
    /// [`EndpointError::NoAuthorities`] if https has no TLS settings.
    pub fn client(&self, tls: Option<ClientConfig>) -> Result<ClientBuilder, EndpointError> {
        let client = Client::builder(self.base.clone());
        match tls {
            _ if !self.is_encrypted() => Ok(client),
            Some(tls) => Ok(client.tls(tls)),
            None => Err(EndpointError::NoAuthorities),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn a_url_names_a_server() {
        for (url, base) in [
            ("http://127.0.0.1:2479", "http://127.0.0.1:2479/"),
            ("https://desk:2479/status?a", "https://desk:2479/"),
            ("desk:2479", "http://desk:2479/"),
        ] {
            let endpoint: Endpoint = url.parse().expect("it is a URL");
            assert_eq!(endpoint.base, base, "{url}");
            assert_eq!(endpoint.client(None).is_err(), endpoint.is_encrypted(), "{url}");
        }
        for (url, error) in [
            ("a b", EndpointError::NoUrl("a b".into())),
            ("/status", EndpointError::NoHost("/status".into())),
            ("ftp://desk", EndpointError::Scheme("ftp".into())),
        ] {
            assert_eq!(url.parse::<Endpoint>(), Err(error), "{url}");
        }
    }

    #[test]
    fn the_files_are_read_and_an_error_names_the_wrong_one() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            tls: TlsFiles,
        }
        let folder = tempfile::TempDir::new().expect("the temporary folder is writable");
        let made = rcgen::generate_simple_self_signed(["desk".to_owned()]).expect("it is a name");
        let file = |name: &str, content: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).expect("the folder is writable");
            path.display().to_string()
        };
        let cert = file("cert.pem", &made.cert.pem());
        let key = file("key.pem", &made.signing_key.serialize_pem());
        let config = |words: &[&str]| {
            let line = Line::try_parse_from([&["x"], words].concat()).expect("they are the flags");
            line.tls.config()
        };
        assert!(config(&[]).expect("there is nothing to read").is_none());
        assert!(config(&["--cacert", &cert]).expect("it is a certificate").is_some());
        assert!(config(&["--cacert", &cert, "--cert", &cert, "--key", &key]).expect("they belong together").is_some());
        let missing = folder.path().join("missing");
        let missing = missing.to_str().expect("the path is UTF-8");
        for (words, wrong) in [
            (&["--cacert", missing][..], missing),
            (&["--cacert", &key], &*key),
            (&["--cacert", &cert, "--cert", &key, "--key", &key], &*format!("{key} and {key}")),
        ] {
            let error = config(words).expect_err("a file is wrong");
            assert_eq!(error.to_string(), wrong);
        }
        assert!(Line::try_parse_from(["x", "--cert", &cert]).is_err(), "a certificate needs its key");
    }
}
