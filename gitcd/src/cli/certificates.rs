//! The flags for certificates of listeners.

use anyhow::bail;
use gitcd_net::tls;
use gitcd_server::config::PerBranch;

use super::per_branch;

/// The files of each branch.
pub(super) struct Certificates {
    /// The names of the flags before `-cert`, `-key` and `-trusted-ca-certs`.
    prefix: &'static str,
    pub(super) certs: PerBranch,
    pub(super) keys: PerBranch,
    pub(super) authorities: PerBranch,
}

/// The certificates of listeners.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_field_names, reason = "the fields are the flags' names")]
pub(super) struct TlsFlags {
    /// Certificates for https listeners (PEM files)
    #[arg(long, env = "GITCD_TLS_CERT", value_name = "MAP")]
    tls_cert: Option<String>,
    /// Their keys (PEM files)
    #[arg(long, env = "GITCD_TLS_KEY", value_name = "MAP")]
    tls_key: Option<String>,
    /// Require client certificates from the CAs in these PEM files
    #[arg(long, env = "GITCD_TLS_TRUSTED_CA_CERTS", value_name = "MAP")]
    tls_trusted_ca_certs: Option<String>,
}

impl TlsFlags {
    pub(super) fn read(&self) -> anyhow::Result<Certificates> {
        let Self { tls_cert, tls_key, tls_trusted_ca_certs } = self;
        Certificates::of("tls", tls_cert.as_deref(), tls_key.as_deref(), tls_trusted_ca_certs.as_deref())
    }
}

/// The certificates of listeners that serve only pages.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_field_names, reason = "the fields are the flags' names")]
pub(super) struct MetricsTlsFlags {
    /// Certificates for https URLs in --listen-metrics-urls (PEM files) [default: those of --tls-cert and its related
    /// flags]
    #[arg(long, env = "GITCD_METRICS_TLS_CERT", value_name = "MAP")]
    metrics_tls_cert: Option<String>,
    /// Their keys (PEM files)
    #[arg(long, env = "GITCD_METRICS_TLS_KEY", value_name = "MAP")]
    metrics_tls_key: Option<String>,
    /// Require client certificates from the CAs in these PEM files at --listen-metrics-urls
    #[arg(long, env = "GITCD_METRICS_TLS_TRUSTED_CA_CERTS", value_name = "MAP")]
    metrics_tls_trusted_ca_certs: Option<String>,
}

impl MetricsTlsFlags {
    pub(super) fn read(&self) -> anyhow::Result<Certificates> {
        let Self { metrics_tls_cert: cert, metrics_tls_key: key, metrics_tls_trusted_ca_certs: authorities } = self;
        Certificates::of("metrics-tls", cert.as_deref(), key.as_deref(), authorities.as_deref())
    }
}

impl Certificates {
    fn of(
        prefix: &'static str,
        certs: Option<&str>,
        keys: Option<&str>,
        authorities: Option<&str>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            prefix,
            certs: per_branch(&format!("{prefix}-cert"), certs)?,
            keys: per_branch(&format!("{prefix}-key"), keys)?,
            authorities: per_branch(&format!("{prefix}-trusted-ca-certs"), authorities)?,
        })
    }

    /// Returns the files of a branch, if any.
    pub(super) fn of_branch(&self, name: &str) -> anyhow::Result<Option<tls::Files>> {
        match (self.certs.of(name), self.keys.of(name), self.authorities.of(name)) {
            (Some(cert), Some(key), authorities) => {
                Ok(Some(tls::Files { cert: cert.into(), key: key.into(), trusted_ca: authorities.map(Into::into) }))
            }
            // CAs alone are refused: a server that should require client certificates must not listen without.
            (None, None, None) => Ok(None),
            _ => {
                let prefix = self.prefix;
                bail!(
                    "branch {name:?}: --{prefix}-cert and --{prefix}-key belong together, and \
                     --{prefix}-trusted-ca-certs needs both"
                )
            }
        }
    }
}
