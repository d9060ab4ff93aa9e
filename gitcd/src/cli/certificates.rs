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

impl Certificates {
    pub(super) fn of(
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
